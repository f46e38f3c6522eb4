"""The records that a streams group writes, all of version 0."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.group.assignors.contract import rows_of
from penstock.core.group.contract import Record
from penstock.core.group.modern.records import RecordKeys
from penstock.core.group.streams.members import StreamsMember
from penstock.core.group.streams.tasks import Tasks, TaskSets
from penstock.core.group.streams.topology import Topology
from penstock.wire.messages.streams_group_records import (
    LastAssignmentConfig,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    TaskIds,
)

KEYS: RecordKeys[StreamsMember] = RecordKeys(
    StreamsGroupMetadataKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
)
member_record = KEYS.member_record
assignment_record = KEYS.assignment_record
member_tombstones = KEYS.member_tombstones


def epoch_record(
    group_id: str, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> Record:
    """The group's epoch, with what it depends on: topics, whether they suit the topology, and settings."""
    rows = [LastAssignmentConfig(key, configs[key]) for key in sorted(configs)]
    value = StreamsGroupMetadataValue(epoch, metadata_hash, validated_topology_epoch, rows)
    return Record(StreamsGroupMetadataKey(group_id), value)


def topology_record(group_id: str, topology: Topology) -> Record:
    """The group's topology."""
    return Record(StreamsGroupTopologyKey(group_id), topology.value())


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> Record:
    """The group epoch that the target assignment belongs to. It follows the target records that changed."""
    value = StreamsGroupTargetAssignmentMetadataValue(epoch, now_ms)
    return Record(StreamsGroupTargetAssignmentMetadataKey(group_id), value)


def target_record(group_id: str, member_id: str, target: TaskSets) -> Record:
    """A member's target tasks."""

    def rows(tasks: Tasks) -> list[TaskIds]:
        return [TaskIds(*row) for row in rows_of(tasks)]

    return Record(
        StreamsGroupTargetAssignmentMemberKey(group_id, member_id),
        StreamsGroupTargetAssignmentMemberValue(rows(target.active), rows(target.standby), rows(target.warmup)),
    )
