"""Messages of the group family.

Generated from definitions/streams_group_records.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class StreamsGroupMetadataKey(NamedTuple):
    """Version 0."""

    group_id: str = ""


class LastAssignmentConfig(NamedTuple):
    key: str = ""
    value: str = ""


class StreamsGroupMetadataValue(NamedTuple):
    """Version 0, flexible from 0."""

    epoch: int = 0
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    last_assignment_configs: Sequence[LastAssignmentConfig] | None = ()


class StreamsGroupMemberMetadataKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    member_id: str = ""


class Endpoint(NamedTuple):
    host: str = ""
    port: int = 0


class KeyValue(NamedTuple):
    key: str = ""
    value: str = ""


class StreamsGroupMemberMetadataValue(NamedTuple):
    """Version 0, flexible from 0."""

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Sequence[KeyValue] = ()


class StreamsGroupTargetAssignmentMetadataKey(NamedTuple):
    """Version 0."""

    group_id: str = ""


class StreamsGroupTargetAssignmentMetadataValue(NamedTuple):
    """Version 0, flexible from 0."""

    assignment_epoch: int = 0
    assignment_timestamp: int = 0


class StreamsGroupTargetAssignmentMemberKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    member_id: str = ""


class TaskIds(NamedTuple):
    subtopology_id: str = ""
    partitions: Sequence[int] = ()


class StreamsGroupTargetAssignmentMemberValue(NamedTuple):
    """Version 0, flexible from 0."""

    active_tasks: Sequence[TaskIds] = ()
    standby_tasks: Sequence[TaskIds] = ()
    warmup_tasks: Sequence[TaskIds] = ()


class StreamsGroupCurrentMemberAssignmentKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    member_id: str = ""


class AssignedTaskIds(NamedTuple):
    subtopology_id: str = ""
    partitions: Sequence[int] = ()
    assignment_epochs: Sequence[int] | None = ()


class StreamsGroupCurrentMemberAssignmentValue(NamedTuple):
    """Version 0, flexible from 0."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    active_tasks: Sequence[AssignedTaskIds] = ()
    standby_tasks: Sequence[AssignedTaskIds] = ()
    warmup_tasks: Sequence[AssignedTaskIds] = ()
    active_tasks_pending_revocation: Sequence[AssignedTaskIds] = ()
    standby_tasks_pending_revocation: Sequence[AssignedTaskIds] = ()
    warmup_tasks_pending_revocation: Sequence[AssignedTaskIds] = ()


class StreamsGroupTopologyKey(NamedTuple):
    """Version 0."""

    group_id: str = ""


class TopicConfig(NamedTuple):
    key: str = ""
    value: str = ""


class TopicInfo(NamedTuple):
    name: str = ""
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: Sequence[TopicConfig] = ()


class CopartitionGroup(NamedTuple):
    source_topics: Sequence[int] = ()
    source_topic_regex: Sequence[int] = ()
    repartition_source_topics: Sequence[int] = ()


class Subtopology(NamedTuple):
    subtopology_id: str = ""
    source_topics: Sequence[str] = ()
    source_topic_regex: Sequence[str] = ()
    state_changelog_topics: Sequence[TopicInfo] = ()
    repartition_sink_topics: Sequence[str] = ()
    repartition_source_topics: Sequence[TopicInfo] = ()
    copartition_groups: Sequence[CopartitionGroup] = ()


class StreamsGroupTopologyValue(NamedTuple):
    """Version 0, flexible from 0."""

    epoch: int = 0
    subtopologies: Sequence[Subtopology] = ()
