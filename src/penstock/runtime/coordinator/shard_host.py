"""Drives one coordinator shard on its partition of an internal topic.

The order is always the same: an event goes into the shard, its records are replayed into it at once and appended at the
end of the event loop's turn, many events to one batch, and replies are sent when that batch is committed. If an append
fails, the shard and the log differ; the shard is dropped and loaded again from the log.

Changes by members of consumer groups are gathered for a few milliseconds instead, as in Kafka. librdkafka's consumers
rely on that: one that leaves while it must revoke partitions cannot rejoin. Applications that change their subscription
and then revert it mostly do so within a millisecond, so that by the time of the response the member is gone.

Records are encoded before they are replayed. An event whose records the log would refuse for their size fails alone:
in a batch with those of others it would fail them all.

An answer that needs no record is not confirmed by other replicas. A broker that was replaced and has not learned it
would answer from what it knew then; only one that surely leads returns what makes clients give up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from penstock.core.contract import Effects, ProducerIdentity, Reply, Timer, TimerKey
from penstock.core.contract import Record as CoordinatorRecord
from penstock.core.replica.producer_state import AppendOrigin, EndMarker
from penstock.model.errors import ApiError, ErrorCode, ProtocolError
from penstock.model.ids import NO_PRODUCER_ID
from penstock.runtime.coordinator.timers import Timers
from penstock.runtime.env import Env
from penstock.runtime.replication.commit_waiters import fail_quietly
from penstock.runtime.replication.partition import Partition
from penstock.storage.producers.replay import read_end_marker
from penstock.wire.frame import decode_coordinator_key, decode_versioned, encode_coordinator_key, encode_versioned
from penstock.wire.record_types import BatchTooLarge
from penstock.wire.records import HEADER_SIZE, BatchHeader, Compression, Record, build_batch, read_header, read_records

LOAD_BYTES = 4 * 1024 * 1024
DECOMPRESSED_BYTES_MAX = 2**30
# Records with more than this many encoded bytes are split into several batches.
BATCH_BYTES_MAX = 512 * 1024
# At most this much of a batch is its header, and so much of a record is neither key nor value.
BATCH_OVERHEAD_BYTES = HEADER_SIZE
RECORD_OVERHEAD_BYTES = 48
REPLAYS_PER_TURN = 2000

# After these, a member joins anew, and a producer gives up or aborts its transaction.
FINAL = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)

Confirm = Callable[[Partition], Awaitable[bool]]
Encoded = tuple[bytes, bytes | None]

logger = logging.getLogger("penstock.coordinator")


async def always(_: Partition) -> bool:
    """For a broker that no other could replace."""
    return True


class Shard(Protocol):
    """What a coordinator core provides; see core/contract.py."""

    def replay(self, key: object, value: Any, offset: int = ..., producer_id: int = ...) -> None: ...

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None: ...

    def load(self, records: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
        """Take in stored records; returns those that must be decoded and replayed."""

    def loaded(self, now_ms: int) -> Effects: ...

    def timer_fired(self, key: TimerKey, now_ms: int) -> Effects: ...

    def unloaded(self) -> Effects: ...


ShardT = TypeVar("ShardT", bound=Shard)


class ShardHost(Generic[ShardT]):
    """One partition of the internal topic and its shard."""

    def __init__(
        self,
        env: Env,
        kind: str,
        partition: Partition,
        shard: ShardT,
        on_failure: Callable[[], None],
        count: Callable[[list[CoordinatorRecord]], None] = lambda _: None,
        linger_ms: int = 0,
        *,
        has_deltas: bool = False,
        confirm: Confirm = always,
    ) -> None:
        self._env = env
        self._confirm = confirm
        self._count = count
        self._linger_ms = linger_ms
        self._kind = kind
        self._has_deltas = has_deltas
        self._partition = partition
        self._on_failure = on_failure
        # By decision, so that none is written by halves.
        self._records: list[list[Encoded]] = []
        self._records_count = 0
        self._replies: list[Reply] = []
        self._scheduled: asyncio.Handle | None = None
        # Completes when the last batch is committed.
        self._committing: asyncio.Future[None] | None = None
        self._is_left = False
        self.shard = shard
        self.is_loaded = False
        self.timers: Timers[TimerKey] = Timers(env.monotonic_ms, self._timer_fired)

    def perform(self, effects: Effects, *, gather: bool = False) -> None:
        """Carry out the shard's effects; with `gather` its records may wait to be written together with others."""
        if self._is_left:
            _refuse(effects.replies, _left())
            return
        if not effects.records:
            if effects.timers:
                self._set_timers(effects.timers)
            self._reply_when_committed(self._without_final(effects.replies))
            return
        try:
            records, encoded = self._encode(effects)
        except ApiError as error:
            # Members whose requests fail like this must still be missed when they go. What was not recorded is not
            # done, so nothing is cancelled; a timer of what is not there is ignored.
            self._set_timers([timer for timer in effects.timers if timer.deadline_ms is not None])
            _refuse(effects.replies, error)
            return
        if effects.timers:
            self._set_timers(effects.timers)
        self._count(records)
        if effects.producer is not None:
            self._perform_in_transaction(effects, encoded, effects.producer)
            return
        self._replay(records, self._partition.log.end_offset + self._records_count)
        if encoded:
            self._records.append(encoded)
            self._records_count += len(encoded)
        self._replies += effects.replies
        self._schedule(self._linger_ms if gather else 0)

    def _encode(self, effects: Effects) -> tuple[list[CoordinatorRecord], list[Encoded]]:
        """The records, and how they are written.

        Raises UNKNOWN_SERVER_ERROR, as Kafka does, where one that a request depends on is larger than the log takes.
        One on which no request depends is left out: the other records, of other groups, still count.
        """
        records: list[CoordinatorRecord] = []
        encoded: list[Encoded] = []
        for record in effects.records:
            try:
                key, value, version = record
                row = encode_coordinator_key(key), None if value is None else encode_versioned(value, version)
                size = _size_of(row) + BATCH_OVERHEAD_BYTES
                if size > self._partition.settings.max_message_bytes:
                    raise BatchTooLarge(size, self._partition.settings.max_message_bytes)
            except (BatchTooLarge, ValueError) as error:
                # A string may be longer than its length field.
                why = f"{self._partition.name}: a {type(record.key).__name__} cannot be written: {error}"
                logger.error("%s", why)
                if effects.replies:
                    raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, why) from error
                continue
            records.append(record)
            encoded.append(row)
        return records, encoded

    def _schedule(self, linger_ms: int) -> None:
        """Write the records after a delay, or at the end of the turn, whichever is earlier."""
        loop = asyncio.get_running_loop()
        if self._scheduled is None and linger_ms:
            self._scheduled = loop.call_later(linger_ms / 1000, self._flush)
        elif self._scheduled is None or (not linger_ms and isinstance(self._scheduled, asyncio.TimerHandle)):
            self._cancel_flush()
            self._scheduled = loop.call_soon(self._flush)

    def _cancel_flush(self) -> None:
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None

    def _set_timers(self, timers: list[Timer]) -> None:
        """Use a monotonic clock: what is due in ten seconds is due then, even if the wall clock is changed."""
        ahead_ms = self._env.monotonic_ms() - self._env.now_ms()
        for key, deadline_ms in timers:
            self.timers.set(key, None if deadline_ms is None else deadline_ms + ahead_ms)

    def _perform_in_transaction(self, effects: Effects, encoded: list[Encoded], producer: ProducerIdentity) -> None:
        """Append a batch of the producer's own; the log may reject it, so it is replayed only afterwards."""
        self.flush()
        offset = self._partition.log.end_offset
        try:
            self._check_here()
            next_offset = self._append([encoded], producer)
        except ApiError as error:
            if self._partition.log.end_offset != offset:
                self._fail(effects.replies, error)
            elif error.code == ErrorCode.INVALID_PRODUCER_EPOCH:
                _refuse(effects.replies, error)
            else:
                _refuse(effects.replies, as_coordinator_error(error))
            return
        self._replay(effects.records, offset, producer.producer_id)
        self._committing = self._partition.committed(next_offset)
        self._reply_when_committed(effects.replies)

    def _replay(self, records: list[CoordinatorRecord], offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply a decision's records to the shard."""
        try:
            for record in records:
                self.shard.replay(record.key, record.value, offset, producer_id)
                offset += 1
        except BaseException:
            # The shard has a part of the decision, and the log none or all of it.
            self._on_failure()
            raise

    def end_transaction(self, producer: ProducerIdentity, marker: EndMarker) -> asyncio.Future[None]:
        """Append a transaction's marker; completes when it is committed. Raises ApiError when it may not be written."""
        self.flush()
        self._check_here()
        appended = self._partition.append_marker(*producer, marker, self._env.now_ms())
        self.shard.replay_end_transaction(producer.producer_id, not marker.aborted)
        committing = self._committing = self._partition.committed(appended.next_offset)
        committing.add_done_callback(lambda done: self._committed(done, []))
        return committing

    def _without_final(self, replies: list[Reply]) -> list[Reply]:
        """The replies but those that make clients give up, which are sent once this broker surely leads."""
        final: list[Reply] = []
        others: list[Reply] = []
        for reply in replies:
            (final if is_final(reply.response) else others).append(reply)
        if final:
            self._env.spawn(self._send_final(final), f"final answers of {self._partition.name}")
        return others

    async def _send_final(self, replies: list[Reply]) -> None:
        try:
            await self.confirm()
        except ApiError as error:
            _refuse(replies, error)
        else:
            self._reply_when_committed(replies)

    async def confirm(self) -> None:
        """Return if this broker surely leads; otherwise raise NOT_COORDINATOR."""
        if not await self._confirm(self._partition) or self._is_left:
            raise ApiError(ErrorCode.NOT_COORDINATOR, "another broker may be the coordinator by now")

    def _reply_when_committed(self, replies: list[Reply]) -> None:
        """No reply may contain something that could still be lost."""
        if not replies:
            return
        if self._records:
            self._replies += replies
            return
        if self._committing is not None and self._committing.done() and not _has_succeeded(self._committing):
            # No reply waited for it. Its records are in the log, and may still be lost.
            self._committing = self.settled()
        if self._committing is None or _has_succeeded(self._committing):
            _send(replies)
        else:
            self._committing.add_done_callback(lambda done: self._committed(done, replies))

    @property
    def partition(self) -> Partition:
        """The partition of the internal topic."""
        return self._partition

    def settled(self) -> asyncio.Future[None] | None:
        """A future that completes when all decisions so far are committed; None when they are.

        It fails at once while too few replicas are in sync: clients that may try again should not wait for those.
        """
        self.flush()
        try:
            # What the shard has decided may not be in the log, nor ever get there.
            self._check_here()
            if self._partition.high_watermark < self._partition.log.end_offset:
                self._partition.check_enough_replicas()
        except ApiError as error:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            fail_quietly(failed, error)
            return failed
        committed = self._partition.committed(self._partition.log.end_offset)
        return None if committed.done() and committed.exception() is None else committed

    async def load(self) -> None:
        """Read the partition into the shard, yielding to other work."""
        log = self._partition.log
        latest: dict[bytes, bytes | None] = {}
        offset = log.start_offset
        while offset < log.end_offset:
            data = log.read(offset, LOAD_BYTES, minimum_one_batch=True).read()
            if not data:
                break
            position = 0
            while position < len(data):
                header = read_header(data, position)
                if header.producer_id >= 0:
                    self._load_of_transaction(data, position, header)
                elif not header.is_control:
                    records = read_records(data, DECOMPRESSED_BYTES_MAX, position)
                    if self._has_deltas:
                        for row in records:
                            self._replay_stored(row.key or b"", row.value, row.offset)
                        records = []
                    for key, value in self.shard.load([(row.key, row.value) for row in records if row.key is not None]):
                        # Replayed in the order in which the latest records of all keys were written.
                        latest.pop(key, None)
                        latest[key] = value
                offset = header.next_offset
                position += header.size_bytes
            await asyncio.sleep(0)
            if self._is_left:
                return
        for number, (key, value) in enumerate(latest.items()):
            if value is not None:
                self._replay_stored(key, value)
            if number % REPLAYS_PER_TURN == REPLAYS_PER_TURN - 1:
                await asyncio.sleep(0)
                if self._is_left:
                    return
        # The end of the log may not be committed yet.
        self._committing = self._partition.committed(log.end_offset)
        self.is_loaded = True
        self.perform(self.shard.loaded(self._env.now_ms()))

    def _load_of_transaction(self, data: bytes, position: int, header: BatchHeader) -> None:
        """Records and markers of transactions take effect in the order of the log."""
        if header.is_control:
            marker = read_end_marker(data, position)
            if marker is not None:
                self.shard.replay_end_transaction(header.producer_id, not marker.aborted)
            return
        for row in read_records(data, DECOMPRESSED_BYTES_MAX, position):
            if row.key is not None and row.value is not None:
                self._replay_stored(row.key, row.value, row.offset, header.producer_id)

    def _replay_stored(
        self, key: bytes, value: bytes | None, offset: int = -1, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        try:
            message, classes = decode_coordinator_key(self._kind, key)
            decoded = None if value is None else decode_versioned(classes.value, value)
            self.shard.replay(message, decoded, offset, producer_id)
        except ProtocolError as error:
            # A record of a later version: it is skipped, the others are not.
            logger.warning("%s: skipping a record of an unknown kind: %s", self._partition.name, error)

    def leave(self) -> None:
        """This broker no longer coordinates here: waiting requests fail."""
        self._is_left = True
        self.timers.clear()
        _send(self.shard.unloaded().replies)
        _refuse(self._replies, _left())
        self._cancel_flush()
        self._records.clear()
        self._records_count = 0
        self._replies.clear()
        self.is_loaded = False

    def flush(self) -> None:
        """Append at once what is waiting to be appended."""
        if self._records:
            self._flush()

    def _check_here(self) -> None:
        """Raises NOT_COORDINATOR, also when this shard could not be written and is loaded again."""
        if self._is_left:
            raise _left()

    def _timer_fired(self, key: TimerKey) -> None:
        self.perform(self.shard.timer_fired(key, self._env.now_ms()))

    def _flush(self) -> None:
        self._cancel_flush()
        records, self._records, self._records_count = self._records, [], 0
        replies, self._replies = self._replies, []
        if not records:
            _send(replies)
            return
        try:
            next_offset = self._append(records)
        except ApiError as error:
            self._fail(replies, error)
            return
        self._committing = self._partition.committed(next_offset)
        self._reply_when_committed(replies)

    def _append(self, decisions: list[list[Encoded]], producer: ProducerIdentity | None = None) -> int:
        now_ms = self._env.now_ms()
        self._partition.check_enough_replicas()
        next_offset = self._partition.log.end_offset
        for portion in _portions(decisions, self._partition.settings.max_message_bytes):
            rows = [Record(number, now_ms, key, value) for number, (key, value) in enumerate(portion)]
            if producer is None:
                batch = build_batch(rows, compression=Compression.NONE)
            else:
                producer_id, producer_epoch = producer
                batch = build_batch(rows, producer_id=producer_id, producer_epoch=producer_epoch, transactional=True)
            next_offset = self._partition.append(bytearray(batch), now_ms, AppendOrigin.COORDINATOR).next_offset
        return next_offset

    def _committed(self, done: asyncio.Future[None], replies: list[Reply]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            _send(replies)
        else:
            known = error if isinstance(error, ApiError) else ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            self._fail(replies, known)

    def _fail(self, replies: list[Reply], error: ApiError) -> None:
        _refuse(replies, as_coordinator_error(error))
        if self._is_left:
            return
        logger.error("%s: cannot write, reloading it: %s", self._partition.name, error)
        self._on_failure()


def _has_succeeded(future: asyncio.Future[None]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _left() -> ApiError:
    return ApiError(ErrorCode.NOT_COORDINATOR, "this broker is no longer the coordinator")


def as_coordinator_error(error: ApiError) -> ApiError:
    """The error for a coordinator's client when its partition cannot be written or has another leader."""
    if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ApiError(ErrorCode.NOT_COORDINATOR, error.message)
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)


def _size_of(record: Encoded) -> int:
    """At most how much a record adds to a batch."""
    key, value = record
    return RECORD_OVERHEAD_BYTES + len(key) + len(value or b"")


def _portions(decisions: list[list[Encoded]], size_max: int) -> Iterator[list[Encoded]]:
    """The records of each batch, in order.

    A leader may die after any batch. So the records of a decision are in one, unless they are larger than a batch may
    be; a record that is larger by itself has a batch of its own.
    """
    portion: list[Encoded] = []
    size = BATCH_OVERHEAD_BYTES
    for decision in decisions:
        decision_size = sum(map(_size_of, decision))
        if portion and size + decision_size > min(BATCH_BYTES_MAX, size_max):
            yield portion
            portion, size = [], BATCH_OVERHEAD_BYTES
        if size + decision_size <= size_max:
            portion += decision
            size += decision_size
            continue
        for record in decision:
            added = _size_of(record)
            if portion and size + added > size_max:
                yield portion
                portion, size = [], BATCH_OVERHEAD_BYTES
            portion.append(record)
            size += added
    if portion:
        yield portion


def is_final(answer: object) -> bool:
    """Whether an answer makes its client give up: with its error, or with that of a member or a partition in it."""
    if isinstance(answer, ErrorCode):
        return answer in FINAL
    if isinstance(answer, ApiError):
        return answer.code in FINAL
    if isinstance(answer, Mapping):
        return any(isinstance(error, ErrorCode) and error in FINAL for error in answer.values())
    if _has_final_error(answer):
        return True
    # Heartbeats of share and streams groups are answered together with what is to be done for them.
    response = getattr(answer, "response", None)
    if response is not None:
        return is_final(response)
    # Members that leave, and partitions whose offsets are committed, by topic.
    rows = [*getattr(answer, "members", ()), *getattr(answer, "topics", ())]
    return any(_has_final_error(row) or any(map(_has_final_error, getattr(row, "partitions", ()))) for row in rows)


def _has_final_error(row: object) -> bool:
    return getattr(row, "error_code", ErrorCode.NONE) in FINAL


def _send(replies: list[Reply]) -> None:
    for reply in replies:
        token = reply.token
        assert isinstance(token, asyncio.Future)
        if not token.done():
            token.set_result(reply.response)


def _refuse(replies: list[Reply], error: ApiError) -> None:
    for reply in replies:
        assert isinstance(reply.token, asyncio.Future)
        if not reply.token.done():
            reply.token.set_exception(error)
            # The caller may have disconnected; the exception need not be retrieved.
            reply.token.exception()
