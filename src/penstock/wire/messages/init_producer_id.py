"""Messages of the InitProducerId API.

Generated from definitions/init_producer_id.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from typing import NamedTuple


class InitProducerIdRequest(NamedTuple):
    """Versions 0-6, flexible from 2."""

    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    enable2_pc: bool = False
    keep_prepared_txn: bool = False

    def response_class(self) -> type[InitProducerIdResponse]:
        return InitProducerIdResponse


class InitProducerIdResponse(NamedTuple):
    """Versions 0-6, flexible from 2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1
