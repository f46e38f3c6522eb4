"""The transactional ids of one partition of `__transaction_state`.

A transaction goes through three steps. Partitions are added to it. It is decided: one record states how it ends, and
when that is committed the response is sent and, at the same moment, `Markers` to all its partitions. Each partition
that has its marker is reported with `markers_written`, and the last one completes it. A coordinator that takes over
finds decided transactions in the log and sends the markers of all their partitions again.

A transaction that stays open longer than its producer's timeout is aborted here, with a higher epoch that fences the
producer. Only `replay` changes durable state; which markers are still missing is not durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from penstock.core.contract import Caller, Effects, ProducerIdentity, Record, Reply, Timer, TimerKey, Token
from penstock.core.transaction import decisions
from penstock.core.transaction.contract import Markers, TransactionSettings
from penstock.core.transaction.listing import TransactionFilter, described, is_listed, listed
from penstock.core.transaction.states import TransactionState
from penstock.core.transaction.transaction import NO_EPOCH, Transaction
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition
from penstock.wire.messages import describe_transactions, list_transactions
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue

TIMEOUT_TIMER = "transaction timeout"
# A transaction with the maximum timeout is never aborted here.
TIMEOUT_NEVER_MS = 2**31 - 1

# From these versions on clients know PRODUCER_FENCED; before them they know its older name.
FENCED_SINCE_INIT = 4
FENCED_SINCE_END = 2
# EndTxn of this version requests a new epoch.
BUMP_SINCE = 5
# After looking at so many ids, whether they have expired, others get their turn.
EXPIRED_PER_TURN = 500

StoredRecord = tuple[bytes, bytes | None]


class TransactionShard:
    """Every event returns the effects that the shell must carry out."""

    def __init__(
        self,
        settings: TransactionSettings,
        coordinator_epoch: Callable[[str], int],
        cluster_version: Callable[[], int],
        marker_token: Callable[[], Token],
    ) -> None:
        """`coordinator_epoch` is the leader epoch of an id's partition on this broker, `cluster_version` the level of
        transaction.version, and `marker_token` creates the tokens that `Markers` are sent to."""
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        self._cluster_version = cluster_version
        self._marker_token = marker_token
        self._transactions: dict[str, Transaction] = {}
        # The markers of decided transactions, with the partitions that are not known to have theirs yet.
        self._due: dict[str, tuple[Markers, dict[TopicPartition, None]]] = {}
        # Producers that named their id in InitProducerId, and the id they got.
        self._continued: dict[str, tuple[ProducerIdentity, ProducerIdentity]] = {}

    def init_needs_producer_id(self, transactional_id: str) -> bool:
        """Whether `init_producer_id` must come with a fresh producer id."""
        return transactional_id not in self._transactions or self.end_needs_producer_id(transactional_id)

    def end_needs_producer_id(self, transactional_id: str) -> bool:
        """Whether `end_txn` must come with a fresh producer id."""
        transaction = self._transactions.get(transactional_id)
        return transaction is not None and transaction.is_exhausted

    def init_producer_id(
        self,
        request: InitProducerIdRequest,
        caller: Caller,
        token: Token,
        now_ms: int,
        fresh_producer_id: int = NO_PRODUCER_ID,
    ) -> Effects:
        """A producer starts, and fences the one that had its transactional id before."""
        error, expected = self._check_init(request)
        if error is not ErrorCode.NONE:
            return Effects(replies=[Reply(token, InitProducerIdResponse(error_code=error))])
        transactional_id = request.transactional_id or ""
        wanted = decisions.Initialization(transactional_id, request.transaction_timeout_ms, expected, fresh_producer_id)
        decision = decisions.initialize(
            self._transactions.get(transactional_id),
            wanted,
            self._continued_by(transactional_id),
            self._cluster_version(),
            now_ms,
        )
        effects = Effects()
        if isinstance(decision, ErrorCode):
            code = _known_as(decision, caller.api_version >= FENCED_SINCE_INIT)
            response = InitProducerIdResponse(error_code=code)
        elif decision.state.is_prepared:
            self._prepare(decision, effects, now_ms)
            response = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            self._store(decision, effects)
            self._remember(transactional_id, expected, decision.identity)
            response = InitProducerIdResponse(producer_id=decision.producer_id, producer_epoch=decision.producer_epoch)
        effects.replies.append(Reply(token, response))
        return effects

    def _check_init(self, request: InitProducerIdRequest) -> tuple[ErrorCode, ProducerIdentity | None]:
        named = (request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_EPOCH)
        if not request.transactional_id or any(named) != all(named):
            return ErrorCode.INVALID_REQUEST, None
        if not 0 < request.transaction_timeout_ms <= self._settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT, None
        return ErrorCode.NONE, ProducerIdentity(request.producer_id, request.producer_epoch) if all(named) else None

    def _continued_by(self, transactional_id: str) -> ProducerIdentity | None:
        transaction = self._transactions.get(transactional_id)
        known = self._continued.get(transactional_id)
        return known[0] if known and transaction and known[1] == transaction.identity else None

    def _remember(self, transactional_id: str, expected: ProducerIdentity | None, became: ProducerIdentity) -> None:
        if expected is None:
            self._continued.pop(transactional_id, None)
        elif expected != became:
            self._continued[transactional_id] = (expected, became)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        client_version: int,
        token: Token,
        now_ms: int,
    ) -> Effects:
        """Adds partitions to the transaction; the reply is an ErrorCode for all of them."""
        if not transactional_id:
            return Effects(replies=[Reply(token, ErrorCode.INVALID_REQUEST)])
        effects = Effects()
        decision = decisions.add_partitions(
            self._transactions.get(transactional_id), producer, partitions, client_version, now_ms
        )
        error = decision if isinstance(decision, ErrorCode) else ErrorCode.NONE
        if not isinstance(decision, ErrorCode):
            self._store(decision, effects)
        effects.replies.append(Reply(token, error))
        return effects

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition is part of the producer's open transaction."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        transaction = self._transactions.get(transactional_id)
        return {one: decisions.verify_partition(transaction, producer, one) for one in partitions}

    def end_txn(
        self,
        request: EndTxnRequest,
        caller: Caller,
        token: Token,
        now_ms: int,
        fresh_producer_id: int = NO_PRODUCER_ID,
    ) -> Effects:
        """Commits or aborts; answered when the decision is committed, before the markers are written."""
        effects = Effects()
        if not request.transactional_id:
            return Effects(replies=[Reply(token, EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST))])
        transaction = self._transactions.get(request.transactional_id)
        producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        bumps = caller.api_version >= BUMP_SINCE
        if bumps:
            decision = decisions.end_with_bump(transaction, producer, request.committed, fresh_producer_id, now_ms)
        else:
            decision = decisions.end(transaction, producer, request.committed, now_ms)
        if isinstance(decision, ErrorCode):
            now = transaction.identity if transaction and bumps and decision is ErrorCode.NONE else _NO_PRODUCER
            error = _known_as(decision, caller.api_version >= FENCED_SINCE_END)
            response = EndTxnResponse(error_code=error, producer_id=now.producer_id, producer_epoch=now.producer_epoch)
        else:
            self._prepare(decision, effects, now_ms)
            now = decision.completed(now_ms).identity if bumps else _NO_PRODUCER
            response = EndTxnResponse(producer_id=now.producer_id, producer_epoch=now.producer_epoch)
        effects.replies.append(Reply(token, response))
        return effects

    def describe(self, transactional_id: str) -> describe_transactions.TransactionState:
        """One id's transaction."""
        return described(transactional_id, self._transactions.get(transactional_id))

    def listing(self, wanted: TransactionFilter, now_ms: int) -> list[list_transactions.TransactionState]:
        """A row for every matching id."""
        return [listed(one) for one in self._transactions.values() if is_listed(one, wanted, now_ms)]

    def markers_written(self, written: Markers, partitions: Iterable[TopicPartition], now_ms: int) -> Effects:
        """These partitions have their marker, or need none any more; the last ones complete the transaction.

        `written` is compared by identity: reports of an earlier decision don't count for a later one.
        """
        effects = Effects()
        markers, unmarked = self._due.get(written.transactional_id, (None, {}))
        if markers is not written:
            return effects
        for partition in partitions:
            unmarked.pop(partition, None)
        if not unmarked:
            assert self._transactions[written.transactional_id].state.is_prepared
            self._complete(self._transactions[written.transactional_id], effects, now_ms)
        return effects

    def expire(self, now_ms: int) -> Iterator[Effects]:
        """Remove transactional ids that have been idle for too long.

        A few at a time: each piece is to be carried out before the next one is requested.
        """
        used_since_ms = now_ms - self._settings.transactional_id_expiration_ms
        names = [*self._transactions]
        for start in range(0, len(names), EXPIRED_PER_TURN):
            found = (self._transactions.get(name) for name in names[start : start + EXPIRED_PER_TURN])
            yield Effects(
                records=[
                    Record(TransactionLogKey(one.transactional_id), None)
                    for one in found
                    if one is not None and one.state.is_idle and one.updated_ms <= used_since_ms
                ]
            )

    def load(self, records: Iterable[StoredRecord]) -> list[StoredRecord]:
        """Stored records are all decoded and replayed."""
        return [*records]

    def replay(
        self,
        key: Any,
        value: TransactionLogValue | None,
        offset: int = -1,  # noqa: ARG002
        producer_id: int = NO_PRODUCER_ID,  # noqa: ARG002
    ) -> None:
        """Apply one record."""
        if not isinstance(key, TransactionLogKey):
            return
        if value is None or value.transaction_status == TransactionState.DEAD:
            self._transactions.pop(key.transactional_id, None)
            self._continued.pop(key.transactional_id, None)
        else:
            self._transactions[key.transactional_id] = Transaction.from_record(key.transactional_id, value)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """The coordinator's own log has no transactions in it."""

    def loaded(self, now_ms: int) -> Effects:
        """All records are replayed: decided transactions are carried out, open ones may time out from now on."""
        effects = Effects()
        for transaction in [*self._transactions.values()]:
            if transaction.state is TransactionState.ONGOING:
                # It began by another broker's clock: better to wait too long than to abort it too early.
                effects.timers.append(_timeout(transaction, now_ms))
            elif transaction.state is TransactionState.PREPARE_EPOCH_FENCE:
                self._prepare(transaction.fenced(self._cluster_version(), now_ms), effects, now_ms)
            elif transaction.state.is_prepared:
                self._carry_out(transaction, effects, now_ms)
        return effects

    def timer_fired(self, key: TimerKey, now_ms: int) -> Effects:
        """A transaction has been open for too long."""
        effects = Effects()
        transaction = self._transactions.get(key[1])
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            return effects
        self._prepare(transaction.fenced(self._cluster_version(), now_ms), effects, now_ms)
        return effects

    def unloaded(self) -> Effects:
        """This broker no longer coordinates these ids; no requests are parked except for commits."""
        return Effects()

    def _prepare(self, decided: Transaction, effects: Effects, now_ms: int) -> None:
        assert decided.state.is_prepared, "a decision is stored before its markers are sent"
        self._store(decided, effects)
        self._carry_out(decided, effects, now_ms)

    def _carry_out(self, decided: Transaction, effects: Effects, now_ms: int) -> None:
        assert decided.state.is_prepared
        if not decided.partitions:
            self._complete(decided, effects, now_ms)
            return
        transactional_id = decided.transactional_id
        markers = Markers(
            transactional_id,
            decided.producer_id,
            decided.producer_epoch,
            decided.is_commit,
            self._coordinator_epoch(transactional_id),
            tuple(decided.partitions),
            decided.client_version,
        )
        assert markers.partitions, "a transaction without partitions is complete at once"
        assert len(set(markers.partitions)) == len(markers.partitions), "each partition gets one marker"
        self._due[transactional_id] = (markers, dict(decided.partitions))
        effects.replies.append(Reply(self._marker_token(), markers))

    def _complete(self, decided: Transaction, effects: Effects, now_ms: int) -> None:
        assert decided.state.is_prepared, "only a decided transaction can be completed"
        self._due.pop(decided.transactional_id, None)
        self._store(decided.completed(now_ms), effects)

    def _store(self, after: Transaction, effects: Effects) -> None:
        before = self._transactions.get(after.transactional_id)
        was_ongoing = before is not None and before.state is TransactionState.ONGOING
        is_ongoing = after.state is TransactionState.ONGOING
        if is_ongoing and not was_ongoing:
            effects.timers.append(_timeout(after, after.started_ms))
        elif was_ongoing and not is_ongoing:
            effects.timers.append(Timer((TIMEOUT_TIMER, after.transactional_id), None))
        assert after.state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE), "it is never written"
        effects.records.append(after.record(self._cluster_version()))


_NO_PRODUCER = ProducerIdentity(NO_PRODUCER_ID, NO_EPOCH)


def _timeout(transaction: Transaction, since_ms: int) -> Timer:
    never = transaction.timeout_ms == TIMEOUT_NEVER_MS
    # Kafka aborts what is older than its timeout, so a transaction gets all of it.
    deadline_ms = None if never else since_ms + transaction.timeout_ms + 1
    return Timer((TIMEOUT_TIMER, transaction.transactional_id), deadline_ms)


def _known_as(error: ErrorCode, knows_fenced: bool) -> ErrorCode:
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED and not knows_fenced else error
