"""A shell for one transaction shard: a clock that stands still until told, timers, a log of encoded records.

It keeps the order that coordinators rely on: records are appended and replayed, then timers are set and replies sent.
Markers that are due wait in `markers` until the test writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.core.contract import Caller, Effects, ProducerIdentity, Record, TimerKey
from penstock.core.transaction.contract import Markers, TransactionSettings
from penstock.core.transaction.shard import TransactionShard
from penstock.core.transaction.transaction import Transaction
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_PRODUCER_ID, TopicPartition
from penstock.wire.frame import decode_coordinator_key, decode_versioned, encode_coordinator_key, encode_versioned
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FIRST_PRODUCER_ID = 1000
MARKER_TOKEN = "markers"


class TransactionWorld:
    """One shard, driven by hand."""

    def __init__(self, settings: TransactionSettings | None = None, cluster_version: int = 2) -> None:
        self.settings = settings or TransactionSettings()
        self.cluster_version = cluster_version
        self.now_ms = 1_000_000
        self.coordinator_epoch = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.markers: list[Markers] = []
        self.shard = self._new_shard()
        self.observer: Callable[[Effects], None] = lambda _effects: None
        self._next_producer_id = FIRST_PRODUCER_ID

    def init(
        self,
        transactional_id: str,
        expected: ProducerIdentity | None = None,
        timeout_ms: int = 60_000,
        version: int = 5,
    ) -> InitProducerIdResponse:
        """InitProducerId."""
        named = expected or ProducerIdentity(-1, -1)
        request = InitProducerIdRequest(transactional_id, timeout_ms, *named)
        fresh = self.take_producer_id() if self.shard.init_needs_producer_id(transactional_id) else NO_PRODUCER_ID
        effects = self.shard.init_producer_id(request, _caller(version), 0, self.now_ms, fresh)
        response = self._perform(effects)
        assert isinstance(response, InitProducerIdResponse)
        return response

    def started(self, transactional_id: str, timeout_ms: int = 60_000) -> ProducerIdentity:
        """A producer that has its id and epoch."""
        response = self.init(transactional_id, timeout_ms=timeout_ms)
        assert response.error_code == ErrorCode.NONE
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        client_version: int = 2,
    ) -> ErrorCode:
        """AddPartitionsToTxn or AddOffsetsToTxn."""
        effects = self.shard.add_partitions(transactional_id, producer, [*partitions], client_version, 0, self.now_ms)
        error = self._perform(effects)
        assert isinstance(error, ErrorCode)
        return error

    def end(self, transactional_id: str, producer: ProducerIdentity, commit: bool, version: int = 5) -> EndTxnResponse:
        """EndTxn."""
        fresh = NO_PRODUCER_ID
        if version >= 5 and self.shard.end_needs_producer_id(transactional_id):
            fresh = self.take_producer_id()
        request = EndTxnRequest(transactional_id, *producer, commit)
        response = self._perform(self.shard.end_txn(request, _caller(version), 0, self.now_ms, fresh))
        assert isinstance(response, EndTxnResponse)
        return response

    def take_producer_id(self) -> int:
        """An id that no producer has had."""
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def write_markers(self, markers: Markers, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Report partitions that have their marker; all of them unless told otherwise."""
        written = markers.partitions if partitions is None else partitions
        self._perform(self.shard.markers_written(markers, written, self.now_ms))

    def write_all_markers(self) -> None:
        """Every partition of every decided transaction has its marker."""
        while self.markers:
            self.write_markers(self.markers.pop(0))

    def advance(self, milliseconds: int) -> None:
        """Let time pass; timers fire in their order."""
        until_ms = self.now_ms + milliseconds
        while True:
            key = min(self.timers, key=self.timers.__getitem__, default=None)
            if key is None or self.timers[key] > until_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self._perform(self.shard.timer_fired(key, self.now_ms))
        self.now_ms = until_ms

    def expire(self) -> None:
        """Forget transactional ids that are not in use."""
        for effects in self.shard.expire(self.now_ms):
            self._perform(effects)

    def fail_over(self) -> None:
        """Another coordinator takes over with nothing but the log; markers that were under way are forgotten."""
        self.timers.clear()
        self.markers.clear()
        self.coordinator_epoch += 1
        self.shard = self.replayed()
        self._perform(self.shard.loaded(self.now_ms))

    def replayed(self) -> TransactionShard:
        """Another shard that knows only the newest record of each id."""
        shard = self._new_shard()
        latest: dict[bytes, bytes | None] = {}
        for key, value in self.log:
            latest.pop(key, None)
            latest[key] = value
        for key, value in shard.load(latest.items()):
            message, classes = decode_coordinator_key("transaction", key)
            shard.replay(message, None if value is None else decode_versioned(classes.value, value))
        return shard

    def transaction(self, transactional_id: str) -> Transaction:
        """What the shard knows of an id."""
        return self.shard._transactions[transactional_id]

    def force(self, transaction: Transaction) -> None:
        """Put an id into a state that would take long to reach."""
        self._append(transaction.record(self.cluster_version))

    def _perform(self, effects: Effects) -> Any:
        answer = None
        for record in effects.records:
            self._append(record)
        for timer in effects.timers:
            self.timers.pop(timer.key, None)
            if timer.deadline_ms is not None:
                self.timers[timer.key] = timer.deadline_ms
        for token, response in effects.replies:
            if token == MARKER_TOKEN:
                self.markers.append(response)
            else:
                assert answer is None, "a request was answered twice"
                answer = response
        self.observer(effects)
        return answer

    def _append(self, record: Record) -> None:
        value = None if record.value is None else encode_versioned(record.value, record.value_version)
        self.shard.replay(record.key, record.value, len(self.log))
        self.log.append((encode_coordinator_key(record.key), value))

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(
            self.settings, lambda _id: self.coordinator_epoch, lambda: self.cluster_version, lambda: MARKER_TOKEN
        )


def _caller(version: int) -> Caller:
    return Caller("client", "/127.0.0.1", version)
