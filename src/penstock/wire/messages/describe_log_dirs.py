"""Messages of the DescribeLogDirs API.

Generated from definitions/describe_log_dirs.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DescribableLogDirTopic(NamedTuple):
    topic: str = ""
    partitions: Sequence[int] = ()


class DescribeLogDirsRequest(NamedTuple):
    """Versions 1-5, flexible from 2."""

    topics: Sequence[DescribableLogDirTopic] | None = ()

    def response_class(self) -> type[DescribeLogDirsResponse]:
        return DescribeLogDirsResponse


class DescribeLogDirsPartition(NamedTuple):
    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[DescribeLogDirsPartition] = ()


class DescribeLogDirsResult(NamedTuple):
    error_code: int = 0
    log_dir: str = ""
    topics: Sequence[DescribeLogDirsTopic] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False
    full_in_ms: int = -1


class DescribeLogDirsResponse(NamedTuple):
    """Versions 1-5, flexible from 2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    results: Sequence[DescribeLogDirsResult] = ()
