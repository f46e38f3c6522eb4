"""Messages of the ListOffsets API.

Generated from definitions/list_offsets.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ListOffsetsPartition(NamedTuple):
    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0


class ListOffsetsTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[ListOffsetsPartition] = ()


class ListOffsetsRequest(NamedTuple):
    """Versions 1-11, flexible from 6."""

    replica_id: int = 0
    isolation_level: int = 0
    topics: Sequence[ListOffsetsTopic] = ()
    timeout_ms: int = 0

    def response_class(self) -> type[ListOffsetsResponse]:
        return ListOffsetsResponse


class ListOffsetsPartitionResponse(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsTopicResponse(NamedTuple):
    name: str = ""
    partitions: Sequence[ListOffsetsPartitionResponse] = ()


class ListOffsetsResponse(NamedTuple):
    """Versions 1-11, flexible from 6."""

    throttle_time_ms: int = 0
    topics: Sequence[ListOffsetsTopicResponse] = ()
