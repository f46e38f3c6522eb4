"""A streams group: its members, the topology, and the target assignment of tasks.

The epochs are those of a consumer group. Before any of them counts, the topics must suit the topology:

    EMPTY        it has no members
    NOT_READY    topics are missing, or have the wrong number of partitions: there are no tasks
    ASSIGNING    the group epoch is ahead of the assignment epoch
    RECONCILING  some member has not reached the target assignment yet
    STABLE       all members have reached it

All of this is durable, and only `replay` changes it, in whatever order a compacted log has left the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from penstock.core.group.contract import Record
from penstock.core.group.group import GroupKind
from penstock.core.group.streams.internal_topics import ConfiguredTopology
from penstock.core.group.streams.members import StreamsMember
from penstock.core.group.streams.records import group_tombstones
from penstock.core.group.streams.tasks import TaskSets, tasks_of
from penstock.core.group.streams.topology import Topology, topology_of
from penstock.model.errors import ErrorCode
from penstock.wire.messages import streams_group_records as records
from penstock.wire.messages.list_groups import ListedGroup

STREAMS_GROUP_KEYS = (
    records.StreamsGroupMetadataKey,
    records.StreamsGroupMemberMetadataKey,
    records.StreamsGroupTargetAssignmentMetadataKey,
    records.StreamsGroupTargetAssignmentMemberKey,
    records.StreamsGroupCurrentMemberAssignmentKey,
    records.StreamsGroupTopologyKey,
)
# OffsetCommit carries a member epoch from this version on.
_COMMIT_WITH_EPOCH_VERSION = 9


class StreamsState(StrEnum):
    """The states, as StreamsGroupDescribe prints them. Nobody ever sees a dead one."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class StreamsGroup:
    """One streams group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # As in Kafka 4.3, the first member makes it 2. Members start at 1, where they have nothing yet.
        self.epoch = 1
        self.metadata_hash = 0
        self.validated_topology_epoch = -1
        self.assignment_configs: Mapping[str, str] = {}
        self.assignment_epoch = 1
        self.assignment_timestamp_ms = 0
        self.topology: Topology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, TaskSets] = {}
        # Soft state: the topology with the topics there are, and whether they were looked at since they last changed.
        self.configured: ConfiguredTopology | None = None
        self.metadata_is_current = False
        # Soft state: whether the first assignment of a group that was empty waits for more members.
        self.is_delayed = False
        # Soft state: rises when what the members' endpoints serve has changed.
        self.endpoint_epoch = 0
        # Soft state: who asked the whole application to shut down.
        self.shutdown_member_id: str | None = None

    @property
    def kind(self) -> GroupKind:
        """Streams."""
        return GroupKind.STREAMS

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def state(self) -> StreamsState:
        """The group's state, as the module describes it."""
        if not self.members:
            return StreamsState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsState.STABLE
        return StreamsState.RECONCILING

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read the topic."""
        return bool(self.members) and self.topology is not None and topic in self.topology.source_topics

    def needs(self, names: Iterable[str]) -> bool:
        """Whether the topology has any of these topics."""
        return self.topology is not None and not self.topology.required_topics.isdisjoint(names)

    def listed(self) -> ListedGroup:
        """The group's row in ListGroups."""
        return ListedGroup(self.group_id, self.kind.value, self.state.value, self.kind.value)

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, api_version: int, *, transactional: bool
    ) -> ErrorCode:
        """Members commit in their own epoch (but see `allows_late_commit`); without one the group must be empty."""
        if generation < 0 and not self.members:
            return ErrorCode.NONE
        if transactional and generation == -1 and not member_id and instance_id is None:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and api_version < _COMMIT_WITH_EPOCH_VERSION:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE if generation == member.member_epoch else ErrorCode.STALE_MEMBER_EPOCH

    def allows_late_commit(self, member_id: str, epoch: int, partitions: Iterable[tuple[str, int]]) -> bool:
        """Whether a commit in an earlier epoch is the member's own: it has had all these tasks since then."""
        member = self.members[member_id]
        if self.topology is None or epoch > member.member_epoch:
            return False
        for topic, number in partitions:
            subtopology = self.topology.source_topics.get(topic)
            since = None if subtopology is None else member.active_epochs.get((subtopology, number))
            if since is None or epoch < since:
                return False
        return True

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Members read in their own epoch; a request without a member id may always read."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.member_epoch else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_delete(self) -> ErrorCode:
        """Always allowed: offsets of topics that members read are protected one by one."""
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        """Only an empty group may be deleted."""
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def retention_starts_ms(self, commit_timestamp_ms: int) -> int | None:
        """Each offset's retention counts from its commit."""
        return commit_timestamp_ms

    def tombstones(self) -> list[Record]:
        """The records that delete the group."""
        return group_tombstones(self.group_id, list(self.members))

    def replay(self, key: Any, value: Any) -> None:
        """Apply one record of this group, except the tombstone of the group itself."""
        if isinstance(key, records.StreamsGroupMetadataKey):
            self.epoch, self.metadata_hash, self.validated_topology_epoch, configs = value
            self.assignment_configs = {row.key: row.value for row in configs or ()}
        elif isinstance(key, records.StreamsGroupMemberMetadataKey):
            self._replay_member(key.member_id, value)
        elif isinstance(key, records.StreamsGroupCurrentMemberAssignmentKey):
            self._replay_assignment(key.member_id, value)
        elif isinstance(key, records.StreamsGroupTargetAssignmentMetadataKey):
            self.assignment_epoch, self.assignment_timestamp_ms = (-1, 0) if value is None else value
        elif isinstance(key, records.StreamsGroupTargetAssignmentMemberKey):
            self.targets.pop(key.member_id, None)
            if value is not None:
                self.targets[key.member_id] = TaskSets(*(tasks_of(rows) for rows in value))
        elif isinstance(key, records.StreamsGroupTopologyKey):
            self.topology = None if value is None else topology_of(value)
        else:
            raise AssertionError(f"{type(key).__name__} is not a record of a streams group")

    def _replay_member(self, member_id: str, value: records.StreamsGroupMemberMetadataValue | None) -> None:
        if value is not None:
            known = self.members.get(member_id) or StreamsMember(member_id)
            self.members[member_id] = known.with_metadata(value)
            return
        self.members.pop(member_id, None)
        if not self.members:
            self.shutdown_member_id = None

    def _replay_assignment(
        self, member_id: str, value: records.StreamsGroupCurrentMemberAssignmentValue | None
    ) -> None:
        known = self.members.get(member_id)
        if value is not None:
            self.members[member_id] = (known or StreamsMember(member_id)).with_assignment(value)
        elif known is not None:
            self.members[member_id] = known.without_assignment()
