"""Messages of the DescribeProducers API.

Generated from definitions/describe_producers.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TopicRequest(NamedTuple):
    name: str = ""
    partition_indexes: Sequence[int] = ()


class DescribeProducersRequest(NamedTuple):
    """Version 0, flexible from 0."""

    topics: Sequence[TopicRequest] = ()

    def response_class(self) -> type[DescribeProducersResponse]:
        return DescribeProducersResponse


class ProducerState(NamedTuple):
    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1


class PartitionResponse(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: Sequence[ProducerState] = ()


class TopicResponse(NamedTuple):
    name: str = ""
    partitions: Sequence[PartitionResponse] = ()


class DescribeProducersResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    topics: Sequence[TopicResponse] = ()
