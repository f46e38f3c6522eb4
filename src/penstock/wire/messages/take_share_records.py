"""Messages of the TakeShareRecords API.

Generated from definitions/take_share_records.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID
from penstock.wire.primitives import RecordBuffers


class TakeShareRecordsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    group_id: str = ""
    member_id: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()
    max_records: int = 0
    max_bytes: int = 0
    max_wait_ms: int = 0
    offset_reset: str | None = None

    def response_class(self) -> type[TakeShareRecordsResponse]:
        return TakeShareRecordsResponse


class TakenRecords(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    delivery_count: int = 0


class TakenPartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    records: RecordBuffers | None = None
    acquired_records: Sequence[TakenRecords] = ()
    incarnation: int = -1


class TakeShareRecordsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    lock_ms: int = 0
    partitions: Sequence[TakenPartition] = ()
