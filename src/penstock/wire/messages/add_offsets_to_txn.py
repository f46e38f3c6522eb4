"""Messages of the AddOffsetsToTxn API.

Generated from definitions/add_offsets_to_txn.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class AddOffsetsToTxnRequest(NamedTuple):
    """Versions 0-4, flexible from 3."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""

    def response_class(self) -> type[AddOffsetsToTxnResponse]:
        return AddOffsetsToTxnResponse


class AddOffsetsToTxnResponse(NamedTuple):
    """Versions 0-4, flexible from 3."""

    throttle_time_ms: int = 0
    error_code: int = 0
