"""Messages of the DescribeHotKeys API.

Generated from definitions/describe_hot_keys.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DescribeHotKeysRequest(NamedTuple):
    """Version 0, flexible from 0."""

    topic: str = ""
    partitions: Sequence[int] | None = ()
    records_max: int = 0
    keys_max: int = 0

    def response_class(self) -> type[DescribeHotKeysResponse]:
        return DescribeHotKeysResponse


class HotKeyRow(NamedTuple):
    key: bytes = b""
    is_cut: bool = False
    records: int = 0
    size_bytes: int = 0


class HotPartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""
    first_offset: int = 0
    next_offset: int = 0
    records: int = 0
    size_bytes: int = 0
    keyless_records: int = 0
    keyless_bytes: int = 0
    records_error: int = 0
    bytes_error: int = 0
    keys: Sequence[HotKeyRow] = ()


class DescribeHotKeysResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    partitions: Sequence[HotPartition] = ()
