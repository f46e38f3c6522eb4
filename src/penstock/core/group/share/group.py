"""A share group: its members, the target assignment, and its share-partitions.

`modern/group.py` has its epochs. A member takes over its target at once, so a group with members is always stable.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.core.group.assignors.contract import Partitions, partitions_of
from penstock.core.group.contract import Record
from penstock.core.group.group import GroupKind
from penstock.core.group.modern.group import GroupState, ModernGroup
from penstock.core.group.share.members import ShareMember
from penstock.core.group.share.partitions import SharePartitions
from penstock.core.group.share.records import KEYS
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages import share_group_records as records

SHARE_GROUP_KEYS = (*KEYS, records.ShareGroupStatePartitionMetadataKey)


class ShareGroup(ModernGroup[ShareMember, Partitions]):
    """One share group."""

    kind = GroupKind.SHARE
    keys = KEYS
    member_type = ShareMember

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.partitions = SharePartitions()
        # How many members subscribe to a topic.
        self.name_counts: Counter[str] = Counter()
        # Soft state: whether what is initialized was looked at since it last changed.
        self.assignment_is_current = False
        # Soft state: when the share coordinator was last asked to initialize partitions of a topic.
        self.asked_ms: dict[Uuid, int] = {}

    @property
    def state(self) -> GroupState:
        """The group's state."""
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return topic in self.name_counts

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

    def retention_starts_ms(self, commit_timestamp_ms: int) -> int | None:  # noqa: ARG002
        """A share group does not expire."""
        return None

    def tombstones(self) -> list[Record]:
        """The records that delete the group."""
        others = [records.ShareGroupStatePartitionMetadataKey(self.group_id)]
        return self.keys.group_tombstones(self.group_id, self.members, others)

    def _target_of(self, value: Any) -> Partitions:
        return partitions_of(value.topic_partitions)

    def _replay_other(self, key: object, value: records.ShareGroupStatePartitionMetadataValue | None) -> None:
        assert isinstance(key, records.ShareGroupStatePartitionMetadataKey)
        self.assignment_is_current = False
        if value is None:
            self.partitions = SharePartitions()
            return
        self.partitions = SharePartitions(
            partitions_of(value.initializing_topics),
            partitions_of(value.initialized_topics),
            frozenset(bytes(row.topic_id) for row in value.deleting_topics),
        )

    def _put(self, old: ShareMember | None, new: ShareMember | None) -> None:
        super()._put(old, new)
        if old is not None:
            self.name_counts -= Counter(old.subscribed_topic_names)
        if new is not None:
            self.name_counts.update(new.subscribed_topic_names)
