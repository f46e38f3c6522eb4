"""Messages of the SettleShareRecord API.

Generated from definitions/settle_share_record.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class SettleShareRecordRequest(NamedTuple):
    """Version 0, flexible from 0."""

    group_id: str = ""
    member_id: str = ""
    topic_id: bytes = ZERO_UUID
    partition: int = 0
    offset: int = 0
    delivery_count: int = 0
    kind: int = 0
    incarnation: int = -1

    def response_class(self) -> type[SettleShareRecordResponse]:
        return SettleShareRecordResponse


class SettleShareRecordResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    lock_ms: int = 0
