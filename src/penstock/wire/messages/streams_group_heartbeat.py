"""Messages of the StreamsGroupHeartbeat API.

Generated from definitions/streams_group_heartbeat.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class KeyValue(NamedTuple):
    key: str = ""
    value: str = ""


class TopicInfo(NamedTuple):
    name: str = ""
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: Sequence[KeyValue] = ()


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


class Topology(NamedTuple):
    epoch: int = 0
    subtopologies: Sequence[Subtopology] = ()


class TaskIds(NamedTuple):
    subtopology_id: str = ""
    partitions: Sequence[int] = ()


class Endpoint(NamedTuple):
    host: str = ""
    port: int = 0


class TaskOffset(NamedTuple):
    subtopology_id: str = ""
    partition: int = 0
    offset: int = 0


class StreamsGroupHeartbeatRequest(NamedTuple):
    """Version 0, flexible from 0."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    endpoint_information_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active_tasks: Sequence[TaskIds] | None = None
    standby_tasks: Sequence[TaskIds] | None = None
    warmup_tasks: Sequence[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: Sequence[KeyValue] | None = None
    task_offsets: Sequence[TaskOffset] | None = None
    task_end_offsets: Sequence[TaskOffset] | None = None
    shutdown_application: bool = False

    def response_class(self) -> type[StreamsGroupHeartbeatResponse]:
        return StreamsGroupHeartbeatResponse


class Status(NamedTuple):
    status_code: int = 0
    status_detail: str = ""


class TopicPartition(NamedTuple):
    topic: str = ""
    partitions: Sequence[int] = ()


class EndpointToPartitions(NamedTuple):
    user_endpoint: Endpoint = Endpoint()
    active_partitions: Sequence[TopicPartition] = ()
    standby_partitions: Sequence[TopicPartition] = ()


class StreamsGroupHeartbeatResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    task_offset_interval_ms: int = 0
    status: Sequence[Status] | None = ()
    active_tasks: Sequence[TaskIds] | None = None
    standby_tasks: Sequence[TaskIds] | None = None
    warmup_tasks: Sequence[TaskIds] | None = None
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: Sequence[EndpointToPartitions] | None = None
