"""Messages of the ListTransactions API.

Generated from definitions/list_transactions.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ListTransactionsRequest(NamedTuple):
    """Versions 0-2, flexible from 0."""

    state_filters: Sequence[str] = ()
    producer_id_filters: Sequence[int] = ()
    duration_filter: int = -1
    transactional_id_pattern: str | None = None

    def response_class(self) -> type[ListTransactionsResponse]:
        return ListTransactionsResponse


class TransactionState(NamedTuple):
    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""


class ListTransactionsResponse(NamedTuple):
    """Versions 0-2, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: Sequence[str] = ()
    transaction_states: Sequence[TransactionState] = ()
