"""Messages of the DescribeTransactions API.

Generated from definitions/describe_transactions.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DescribeTransactionsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    transactional_ids: Sequence[str] = ()

    def response_class(self) -> type[DescribeTransactionsResponse]:
        return DescribeTransactionsResponse


class TopicData(NamedTuple):
    topic: str = ""
    partitions: Sequence[int] = ()


class TransactionState(NamedTuple):
    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: Sequence[TopicData] = ()


class DescribeTransactionsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    transaction_states: Sequence[TransactionState] = ()
