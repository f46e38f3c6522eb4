"""Messages of the StreamsGroupDescribe API.

Generated from definitions/streams_group_describe.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class StreamsGroupDescribeRequest(NamedTuple):
    """Version 0, flexible from 0."""

    group_ids: Sequence[str] = ()
    include_authorized_operations: bool = False

    def response_class(self) -> type[StreamsGroupDescribeResponse]:
        return StreamsGroupDescribeResponse


class KeyValue(NamedTuple):
    key: str = ""
    value: str = ""


class TopicInfo(NamedTuple):
    name: str = ""
    partitions: int = 0
    replication_factor: int = 0
    topic_configs: Sequence[KeyValue] = ()


class Subtopology(NamedTuple):
    subtopology_id: str = ""
    source_topics: Sequence[str] = ()
    repartition_sink_topics: Sequence[str] = ()
    state_changelog_topics: Sequence[TopicInfo] = ()
    repartition_source_topics: Sequence[TopicInfo] = ()


class Topology(NamedTuple):
    epoch: int = 0
    subtopologies: Sequence[Subtopology] | None = None


class Endpoint(NamedTuple):
    host: str = ""
    port: int = 0


class TaskOffset(NamedTuple):
    subtopology_id: str = ""
    partition: int = 0
    offset: int = 0


class TaskIds(NamedTuple):
    subtopology_id: str = ""
    partitions: Sequence[int] = ()


class Assignment(NamedTuple):
    active_tasks: Sequence[TaskIds] = ()
    standby_tasks: Sequence[TaskIds] = ()
    warmup_tasks: Sequence[TaskIds] = ()


class Member(NamedTuple):
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Sequence[KeyValue] = ()
    task_offsets: Sequence[TaskOffset] = ()
    task_end_offsets: Sequence[TaskOffset] = ()
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    is_classic: bool = False


class DescribedGroup(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: Topology | None = None
    members: Sequence[Member] = ()
    authorized_operations: int = -2147483648


class StreamsGroupDescribeResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    groups: Sequence[DescribedGroup] = ()
