"""Messages of the EndTxn API.

Generated from definitions/end_txn.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class EndTxnRequest(NamedTuple):
    """Versions 0-5, flexible from 3."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False

    def response_class(self) -> type[EndTxnResponse]:
        return EndTxnResponse


class EndTxnResponse(NamedTuple):
    """Versions 0-5, flexible from 3."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
