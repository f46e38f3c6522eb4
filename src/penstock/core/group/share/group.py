"""A share group: its members, the target assignment, and its share-partitions.

The epochs are those of a consumer group, but a member takes over its target at once, so a group with members is always
stable. All of it is durable, and only `replay` changes it, in whatever order a compacted log has left the records.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any

from penstock.core.group.assignors.contract import Partitions, partitions_of
from penstock.core.group.contract import Record
from penstock.core.group.group import GroupKind
from penstock.core.group.share.members import ShareMember
from penstock.core.group.share.partitions import SharePartitions
from penstock.core.group.share.records import group_tombstones
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages import share_group_records as records
from penstock.wire.messages.list_groups import ListedGroup

SHARE_GROUP_KEYS = (
    records.ShareGroupMemberMetadataKey,
    records.ShareGroupMetadataKey,
    records.ShareGroupTargetAssignmentMetadataKey,
    records.ShareGroupTargetAssignmentMemberKey,
    records.ShareGroupCurrentMemberAssignmentKey,
    records.ShareGroupStatePartitionMetadataKey,
)


class ShareState(StrEnum):
    """The states, as ShareGroupDescribe prints them. Nobody ever sees a dead one."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareGroup:
    """One share group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # As in Kafka 4.3, the first member makes it 2.
        self.epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 1
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.partitions = SharePartitions()
        # How many members subscribe to a topic.
        self.name_counts: Counter[str] = Counter()
        # Soft state: whether the topics, and what is initialized, were looked at since they last changed.
        self.metadata_is_current = False
        self.assignment_is_current = False
        # Soft state: when the share coordinator was last asked to initialize partitions of a topic.
        self.asked_ms: dict[Uuid, int] = {}

    @property
    def kind(self) -> GroupKind:
        """Share."""
        return GroupKind.SHARE

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def state(self) -> ShareState:
        """The group's state."""
        return ShareState.STABLE if self.members else ShareState.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return topic in self.name_counts

    def listed(self) -> ListedGroup:
        """The group's row in ListGroups."""
        return ListedGroup(self.group_id, self.kind.value, self.state.value, self.kind.value)

    def check_offset_commit(
        self,
        member_id: str,  # noqa: ARG002
        instance_id: str | None,  # noqa: ARG002
        generation: int,  # noqa: ARG002
        api_version: int,  # noqa: ARG002
        *,
        transactional: bool,  # noqa: ARG002
    ) -> ErrorCode:
        """Never allowed: a share group acknowledges records instead."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:  # noqa: ARG002
        """Allowed, but there are none."""
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """Never allowed; DeleteShareGroupOffsets is the request for it."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_delete(self) -> ErrorCode:
        """Only an empty group may be deleted."""
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def retention_starts_ms(self, commit_timestamp_ms: int) -> int | None:  # noqa: ARG002
        """A share group does not expire."""
        return None

    def tombstones(self) -> list[Record]:
        """The records that delete the group."""
        return group_tombstones(self.group_id, list(self.members))

    def replay(self, key: Any, value: Any) -> None:
        """Apply one record of this group, except the tombstone of the group itself."""
        if isinstance(key, records.ShareGroupMetadataKey):
            self.epoch, self.metadata_hash = value
        elif isinstance(key, records.ShareGroupMemberMetadataKey):
            known = self.members.get(key.member_id)
            if value is not None:
                self._put(known, (known or ShareMember(key.member_id)).with_metadata(value))
            elif known is not None:
                self._remove(known)
        elif isinstance(key, records.ShareGroupCurrentMemberAssignmentKey):
            known = self.members.get(key.member_id)
            if value is not None:
                self._put(known, (known or ShareMember(key.member_id)).with_assignment(value))
            elif known is not None:
                self._put(known, known.without_assignment())
        elif isinstance(key, records.ShareGroupTargetAssignmentMetadataKey):
            self.assignment_epoch = -1 if value is None else value.assignment_epoch
        elif isinstance(key, records.ShareGroupTargetAssignmentMemberKey):
            self.targets.pop(key.member_id, None)
            if value is not None:
                self.targets[key.member_id] = partitions_of(value.topic_partitions)
        elif isinstance(key, records.ShareGroupStatePartitionMetadataKey):
            self._replay_state(value)
        else:
            raise AssertionError(f"{type(key).__name__} is not a record of a share group")

    def _replay_state(self, value: records.ShareGroupStatePartitionMetadataValue | None) -> None:
        self.assignment_is_current = False
        if value is None:
            self.partitions = SharePartitions()
            return
        self.partitions = SharePartitions(
            partitions_of(value.initializing_topics),
            partitions_of(value.initialized_topics),
            frozenset(bytes(row.topic_id) for row in value.deleting_topics),
        )

    def _put(self, old: ShareMember | None, new: ShareMember) -> None:
        if old is not None:
            self.name_counts -= Counter(old.subscribed_topic_names)
        self.name_counts.update(new.subscribed_topic_names)
        self.members[new.member_id] = new

    def _remove(self, member: ShareMember) -> None:
        self.name_counts -= Counter(member.subscribed_topic_names)
        del self.members[member.member_id]
