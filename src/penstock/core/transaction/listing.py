"""How transactions look to administrators: DescribeTransactions and ListTransactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.core.transaction.states import TransactionState
from penstock.core.transaction.transaction import Transaction, by_topic
from penstock.model.errors import ErrorCode
from penstock.wire.messages import describe_transactions, list_transactions

NO_DURATION = -1


class TransactionFilter(NamedTuple):
    """Which transactions to list; None, or no duration, matches all."""

    states: frozenset[TransactionState] | None = None
    producer_ids: frozenset[int] | None = None
    longer_than_ms: int = NO_DURATION
    matches: Callable[[str], bool] | None = None


def described(transactional_id: str, transaction: Transaction | None) -> describe_transactions.TransactionState:
    """The answer of DescribeTransactions for one id."""
    if transaction is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return describe_transactions.TransactionState(error, transactional_id)
    return describe_transactions.TransactionState(
        ErrorCode.NONE,
        transactional_id,
        transaction.state.title,
        transaction.timeout_ms,
        transaction.started_ms,
        transaction.producer_id,
        transaction.producer_epoch,
        [describe_transactions.TopicData(*row) for row in by_topic(transaction.partitions).items()],
    )


def listed(transaction: Transaction) -> list_transactions.TransactionState:
    """The row of ListTransactions for one id."""
    return list_transactions.TransactionState(
        transaction.transactional_id, transaction.producer_id, transaction.state.title
    )


def is_listed(transaction: Transaction, wanted: TransactionFilter, now_ms: int) -> bool:
    """Whether a transaction matches the filter."""
    states, producer_ids, longer_than_ms, matches = wanted
    return (
        (states is None or transaction.state in states)
        and (producer_ids is None or transaction.producer_id in producer_ids)
        # Kafka counts from the start of the last transaction, even if it has ended or never began.
        and (longer_than_ms < 0 or now_ms - transaction.started_ms > longer_than_ms)
        and (matches is None or matches(transaction.transactional_id))
    )
