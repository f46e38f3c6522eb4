"""Messages of the DescribeTopicPartitions API.

Generated from definitions/describe_topic_partitions.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class TopicRequest(NamedTuple):
    name: str = ""


class Cursor(NamedTuple):
    topic_name: str = ""
    partition_index: int = 0


class DescribeTopicPartitionsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    topics: Sequence[TopicRequest] = ()
    response_partition_limit: int = 2000
    cursor: Cursor | None = None

    def response_class(self) -> type[DescribeTopicPartitionsResponse]:
        return DescribeTopicPartitionsResponse


class DescribeTopicPartitionsResponsePartition(NamedTuple):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None
    offline_replicas: Sequence[int] = ()


class DescribeTopicPartitionsResponseTopic(NamedTuple):
    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = ()
    topic_authorized_operations: int = -2147483648


class DescribeTopicPartitionsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = ()
    next_cursor: Cursor | None = None
