"""What a request may do to a transactional id: the next `Transaction`, or the error code for its client.

ErrorCode.NONE means that the request has already been carried out, and is acknowledged again.

Producers are identified by producer id and epoch. The current pair may continue. A replaced one is fenced, but a client
that missed the response to its own request may repeat it: an EndTxn of version 2, which bumps the epoch, is recognised
by the epoch before; an InitProducerId with a producer id (KIP-360) by that id. While a decided transaction waits for
its markers every request gets CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from penstock.core.contract import ProducerIdentity
from penstock.core.transaction.states import TransactionState
from penstock.core.transaction.transaction import EPOCH_BUMPS, EPOCH_MAX, Transaction
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition

Decision = Transaction | ErrorCode

# The partitions of a transaction are one record, which grows by a few bytes when it is decided: one that could be
# started and not decided would keep readers waiting forever. This is half of what the log takes by default.
PARTITIONS_BYTES_MAX = 512 * 1024


class Initialization(NamedTuple):
    """An InitProducerId. `expected` is the id and epoch that the producer thinks it has; `fresh_producer_id` is new."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None
    fresh_producer_id: int


def initialize(
    transaction: Transaction | None,
    wanted: Initialization,
    repeats: ProducerIdentity | None,
    cluster_version: int,
    now_ms: int,
) -> Decision:
    """A producer starts. An open transaction is aborted first: the result is then prepared, and the client retries.

    `repeats` is the producer that the current epoch was given to, if known.
    """
    _, timeout_ms, expected, fresh_producer_id = wanted
    if transaction is None:
        assert fresh_producer_id != NO_PRODUCER_ID
        created = Transaction(wanted.transactional_id, fresh_producer_id, timeout_ms, now_ms)
        return created.initialized(timeout_ms, now_ms)
    if transaction.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_current = expected is None or expected == transaction.identity
    if not transaction.state.is_idle:
        # A fenced producer must not end what its successor has begun.
        return transaction.fenced(cluster_version, now_ms) if is_current else ErrorCode.PRODUCER_FENCED
    if not is_current and expected not in (repeats, transaction.ended):
        return ErrorCode.PRODUCER_FENCED
    if (is_current and transaction.is_exhausted) or transaction.producer_epoch == EPOCH_MAX:
        assert fresh_producer_id != NO_PRODUCER_ID
        return transaction.rotated(fresh_producer_id, timeout_ms, now_ms)
    assert transaction.state.is_idle
    assert transaction.producer_epoch < EPOCH_MAX, "the last epoch is for fencing alone"
    return transaction.initialized(timeout_ms, now_ms, again=not is_current)


def add_partitions(
    transaction: Transaction | None,
    producer: ProducerIdentity,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Decision:
    """Add partitions to a transaction, starting one if necessary."""
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = _check_producer(transaction, producer)
    if error is not ErrorCode.NONE:
        return error
    if transaction.state is TransactionState.ONGOING and all(one in transaction.partitions for one in partitions):
        return ErrorCode.NONE
    after = transaction.with_partitions(partitions, client_version, now_ms)
    assert after.identity == producer, "adding partitions fences no producer"
    assert after.partitions.keys() >= transaction.partitions.keys(), "a transaction only grows while it is open"
    return ErrorCode.UNKNOWN_SERVER_ERROR if after.partitions_bytes > PARTITIONS_BYTES_MAX else after


def verify_partition(
    transaction: Transaction | None, producer: ProducerIdentity, partition: TopicPartition
) -> ErrorCode:
    """Whether a partition is part of the producer's open transaction, checked before the first write to it."""
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    error = _check_producer(transaction, producer)
    if error is not ErrorCode.NONE:
        return error
    if transaction.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE


def end(transaction: Transaction | None, producer: ProducerIdentity, commit: bool, now_ms: int) -> Decision:
    """A client of version 1 ends its transaction; it keeps its epoch, by which a repeated request is recognised."""
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    error = _check_producer(transaction, producer)
    if error is not ErrorCode.NONE:
        return error
    if transaction.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is TransactionState.ONGOING:
        return transaction.decided(commit, 0, now_ms, NO_PRODUCER_ID)
    assert transaction.identity == producer
    done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    return ErrorCode.NONE if transaction.state is done else ErrorCode.INVALID_TXN_STATE


def end_with_bump(
    transaction: Transaction | None, producer: ProducerIdentity, commit: bool, fresh_producer_id: int, now_ms: int
) -> Decision:
    """A client of version 2 ends its transaction and gets a new epoch, or a new producer id after the last one.

    It may abort without an open transaction, and gets a new epoch for that as well.
    """
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if producer == transaction.ended:
        if commit and transaction.state is TransactionState.COMPLETE_ABORT:
            # A client repeats what it sent, so the coordinator aborted the transaction, and the commit was on its way
            # (KAFKA-20785). Nothing of it took effect, and this error, unlike INVALID_TXN_STATE, is not a client's bug.
            return ErrorCode.PRODUCER_FENCED
        if not commit and transaction.state is TransactionState.COMPLETE_COMMIT:
            return ErrorCode.INVALID_TXN_STATE
        if transaction.producer_epoch < EPOCH_MAX:
            return ErrorCode.NONE
        # The coordinator aborted it with the epoch reserved for fencing; this producer continues with another id.
        return transaction.decided(False, EPOCH_BUMPS, now_ms, fresh_producer_id)
    error = _check_producer(transaction, producer)
    if error is not ErrorCode.NONE:
        return error
    if transaction.state is not TransactionState.ONGOING and commit:
        return ErrorCode.INVALID_TXN_STATE
    next_producer_id = NO_PRODUCER_ID
    if transaction.is_exhausted:
        assert fresh_producer_id != NO_PRODUCER_ID
        next_producer_id = fresh_producer_id
    return transaction.decided(commit, EPOCH_BUMPS, now_ms, next_producer_id)


def _check_producer(transaction: Transaction, producer: ProducerIdentity) -> ErrorCode:
    if transaction.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if transaction.producer_epoch == producer.producer_epoch else ErrorCode.PRODUCER_FENCED
