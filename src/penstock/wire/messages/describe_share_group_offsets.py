"""Messages of the DescribeShareGroupOffsets API.

Generated from definitions/describe_share_group_offsets.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class DescribeShareGroupOffsetsRequestTopic(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[int] = ()


class DescribeShareGroupOffsetsRequestGroup(NamedTuple):
    group_id: str = ""
    topics: Sequence[DescribeShareGroupOffsetsRequestTopic] | None = ()


class DescribeShareGroupOffsetsRequest(NamedTuple):
    """Versions 0-1, flexible from 0."""

    groups: Sequence[DescribeShareGroupOffsetsRequestGroup] = ()

    def response_class(self) -> type[DescribeShareGroupOffsetsResponse]:
        return DescribeShareGroupOffsetsResponse


class DescribeShareGroupOffsetsResponsePartition(NamedTuple):
    partition_index: int = 0
    start_offset: int = 0
    leader_epoch: int = 0
    lag: int = -1
    error_code: int = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponseTopic(NamedTuple):
    topic_name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[DescribeShareGroupOffsetsResponsePartition] = ()


class DescribeShareGroupOffsetsResponseGroup(NamedTuple):
    group_id: str = ""
    topics: Sequence[DescribeShareGroupOffsetsResponseTopic] = ()
    error_code: int = 0
    error_message: str | None = None


class DescribeShareGroupOffsetsResponse(NamedTuple):
    """Versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    groups: Sequence[DescribeShareGroupOffsetsResponseGroup] = ()
