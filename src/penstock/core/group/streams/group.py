"""A streams group: its members, the topology, and the target assignment of tasks.

`modern/group.py` has its epochs and states. Before any of the epochs counts, the topics must suit the topology:
otherwise the group is NOT_READY, and there are no tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.core.group.contract import Record
from penstock.core.group.group import GroupKind
from penstock.core.group.modern.group import GroupState, ModernGroup
from penstock.core.group.streams.internal_topics import ConfiguredTopology
from penstock.core.group.streams.members import StreamsMember
from penstock.core.group.streams.records import KEYS
from penstock.core.group.streams.tasks import TaskSets, tasks_of
from penstock.core.group.streams.topology import Topology, topology_of
from penstock.wire.messages import streams_group_records as records

STREAMS_GROUP_KEYS = (*KEYS, records.StreamsGroupTopologyKey)


class StreamsGroup(ModernGroup[StreamsMember, TaskSets]):
    """One streams group. A commit in an earlier epoch may still be allowed: see `allows_late_commit`."""

    kind = GroupKind.STREAMS
    keys = KEYS
    member_type = StreamsMember

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.validated_topology_epoch = -1
        self.assignment_configs: Mapping[str, str] = {}
        self.assignment_timestamp_ms = 0
        self.topology: Topology | None = None
        # Soft state: the topology with the topics there are.
        self.configured: ConfiguredTopology | None = None
        # Soft state: whether the first assignment of a group that was empty waits for more members.
        self.is_delayed = False
        # Soft state: rises when what the members' endpoints serve has changed.
        self.endpoint_epoch = 0
        # Soft state: who asked the whole application to shut down.
        self.shutdown_member_id: str | None = None

    @property
    def state(self) -> GroupState:
        """The group's state, as the module describes it."""
        has_topics = self.topology is not None and self.topology.epoch == self.validated_topology_epoch
        return super().state if has_topics or self.is_empty else GroupState.NOT_READY

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read the topic."""
        return bool(self.members) and self.topology is not None and topic in self.topology.source_topics

    def needs(self, names: Iterable[str]) -> bool:
        """Whether the topology has any of these topics."""
        return self.topology is not None and not self.topology.required_topics.isdisjoint(names)

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

    def tombstones(self) -> list[Record]:
        """The records that delete the group."""
        return self.keys.group_tombstones(self.group_id, self.members, [records.StreamsGroupTopologyKey(self.group_id)])

    def _replay_epoch(self, value: records.StreamsGroupMetadataValue) -> None:
        self.epoch, self.metadata_hash, self.validated_topology_epoch, configs = value
        self.assignment_configs = {row.key: row.value for row in configs or ()}

    def _replay_target_epoch(self, value: records.StreamsGroupTargetAssignmentMetadataValue | None) -> None:
        self.assignment_epoch, self.assignment_timestamp_ms = (-1, 0) if value is None else value

    def _target_of(self, value: Any) -> TaskSets:
        return TaskSets(*(tasks_of(rows) for rows in value))

    def _replay_other(self, key: object, value: records.StreamsGroupTopologyValue | None) -> None:
        assert isinstance(key, records.StreamsGroupTopologyKey)
        self.topology = None if value is None else topology_of(value)

    def _put(self, old: StreamsMember | None, new: StreamsMember | None) -> None:
        super()._put(old, new)
        if not self.members:
            self.shutdown_member_id = None
