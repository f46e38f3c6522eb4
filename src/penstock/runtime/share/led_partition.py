"""A share-partition that this broker leads: its state machine, the writes that make changes durable, and its locks.

Writes go out one at a time; what changes meanwhile goes with the next one. Fetches that wait for records are woken when
some come back or are due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.core.share.acknowledgements import Acknowledgement, AckType
from penstock.core.share.batches import with_records
from penstock.core.share.contract import Acquired, Write
from penstock.core.share.dead_letters import Origin, identified, is_unidentified
from penstock.core.share.partition import ANY_INCARNATION, SharePartition
from penstock.core.share.runs import NO_DELAY, NO_PRODUCER_ID, StateBatch
from penstock.core.share.state import ShareKey
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.replication.commit_waiters import fail_quietly
from penstock.runtime.replication.partition import Partition
from penstock.runtime.share.counters import ShareCounters
from penstock.runtime.share.dead_letter_topics import DeadLetterTopics
from penstock.runtime.share.letters import DeadLetterWriter
from penstock.runtime.share.persister import Persister, StoredState
from penstock.runtime.share.reading import FoundRecords, ShareReader
from penstock.runtime.share.settings import ShareGroupSettings
from penstock.runtime.share.tier_window import Tier

# After a write that failed, locks that ended are looked at again after this time.
RETRY_MS = 1_000
# The clock by which records are due may be set: it is looked at this often at least.
TIMER_MAX_MS = 60_000
# A producer of dead letters ends before its sequences begin anew.
SEQUENCE_MAX = 2**31 - 1
INCARNATION_BITS = 62
# The error for clients whose leader cannot write.
_FENCED = frozenset((ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH))
_UNAVAILABLE = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
_AS_THEY_ARE = frozenset(
    (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR)
)


class AcquiredBatch(NamedTuple):
    """What a member gets: batches, and which of their records are its own."""

    records: list[memoryview]
    acquired: list[Acquired]
    incarnation: int = ANY_INCARNATION


class LedSharePartition:
    """`on_lost` is called when the stored state is not this leader's any more."""

    def __init__(
        self,
        env: Env,
        key: ShareKey,
        partition: Partition,
        persister: Persister,
        stored: StoredState,
        settings: Callable[[], ShareGroupSettings],
        dead_letters: DeadLetterTopics,
        counters: ShareCounters,
        on_lost: Callable[[LedSharePartition], None],
        on_idle: Callable[[LedSharePartition], None],
        tier: Tier | None = None,
    ) -> None:
        """`settings` returns the group's settings as they are now; `on_idle` is called when all letters are written."""
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.is_closed = False
        self.lock_timeouts = 0
        self._env = env
        self._persister = persister
        self._state_epoch = stored.state_epoch
        self._write_number = stored.write_number
        self._settings = settings
        self._counters = counters
        self._on_lost = on_lost
        self.share = SharePartition(
            stored.start_offset,
            stored.batches,
            settings().partition,
            delays=stored.delays,
            now_ms=env.monotonic_ms(),
            incarnation=env.random.getrandbits(INCARNATION_BITS),
        )
        self._reader = ShareReader(env, partition, self.share, self._wake, tier)
        self._take_producer_id = dead_letters.take_producer_id
        self._letter_producer: tuple[int, int] | None = None
        self._letters = DeadLetterWriter(
            env,
            self.share,
            Origin(*partition.name, key.group),
            dead_letters,
            counters,
            settings,
            self._reader.record,
            self._store,
            lambda: on_idle(self),
        )
        self._unwritten: list[tuple[Write, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._not_before_ms = 0
        self._is_refilling = False
        self._waiting: dict[Callable[[], None], None] = {}

    async def prepare(self, floor: int) -> None:
        """Look for delayed records among those that were looked at before; to be called before anything else."""
        start = floor if floor != NO_DELAY else self.share.start
        await self._reader.load(start, self._settings(), self._is_over)
        self._letters.nudge()
        self._set_timer()

    def _is_over(self) -> bool:
        return self.is_over

    @property
    def is_over(self) -> bool:
        """Whether this broker does not lead here any more."""
        return self.is_closed or self.partition.leader_epoch != self.leader_epoch or not self.partition.is_leader

    @property
    def is_busy(self) -> bool:
        """Whether dead letters are on their way, or a member holds records."""
        return self._letters.is_busy or self.share.is_held

    @property
    def may_have_records(self) -> bool:
        """Whether there may be records to hand out, or this broker does not lead here any more."""
        offset = self.share.next_offset()
        return self.is_over or (offset is not None and offset < self.partition.high_watermark)

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called when records may be had, or never again here."""
        self._waiting[listener] = None

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""
        self._waiting.pop(listener, None)

    def find(self, size_max: int, settings: ShareGroupSettings, *, minimum_one_batch: bool) -> FoundRecords | None:
        """What could be handed out now; None for nothing. Raises ApiError where the log cannot be read."""
        self.share.settings = settings.partition
        self._admit_due()
        self.share.raise_start(self.partition.log.start_offset)
        return self._reader.find(size_max, settings, minimum_one_batch=minimum_one_batch)

    def acquire(
        self,
        member: str,
        found: FoundRecords,
        records_max: int,
        *,
        batch_size: int,
        is_strict: bool,
    ) -> AcquiredBatch:
        """Hand out what `find` has found, in the same turn."""
        acquired = self.share.acquire(
            member, found.ranges, records_max, self._env.monotonic_ms(), batch_size=batch_size, is_strict=is_strict
        )
        self._reader.handed_out()
        self._set_timer()
        records = with_records(found.batches, acquired)
        self.partition.counters.read(sum(map(len, records)))
        return AcquiredBatch(records, acquired, self.share.incarnation)

    def _admit_due(self) -> bool:
        """Records that came back and have waited long enough, and delayed ones that are due; whether there are any."""
        share, now_ms = self.share, self._env.now_ms()
        has_woken = share.wake(self._env.monotonic_ms())
        share.delays.catch_up(now_ms)
        before = share.delays.count
        has_more = share.admit_due(now_ms)
        self._counters.admitted += before - share.delays.count
        if share.delays.needs_refill and not self._is_refilling and not self.is_closed:
            self._is_refilling = True
            self._env.spawn(self._refill(share.delays.start or 0), f"delayed records of {self.partition.name}")
        return has_woken or has_more

    async def _refill(self, start: int) -> None:
        try:
            await self._reader.refill(start, self._settings(), self._is_over)
        except ApiError:
            # The log cannot be read here any more, or its start has moved; the next look tries again.
            return
        finally:
            self._is_refilling = False
        if not self.is_closed:
            self._set_timer()
            self._wake()

    async def acknowledge(
        self, member: str, acknowledgements: Sequence[Acknowledgement], settings: ShareGroupSettings
    ) -> None:
        """Apply a member's acknowledgements; returns when they are durable. Raises ApiError when they are not."""
        self.share.settings = settings.partition
        self.share.raise_start(self.partition.log.start_offset)
        write = self.share.acknowledge(member, acknowledgements, self._env.monotonic_ms())
        for one in acknowledgements:
            for piece in one.pieces(0):
                self._counters.acknowledged[piece.kind] += piece.last - piece.first + 1
        await self._store(write)

    async def settle(
        self,
        member: str,
        offset: int,
        delivery_count: int,
        kind: AckType,
        settings: ShareGroupSettings,
        incarnation: int = ANY_INCARNATION,
    ) -> None:
        """As `acknowledge`, of one record, and only if the member holds it since this delivery."""
        self.share.raise_start(self.partition.log.start_offset)
        self.share.check_attempt(member, offset, delivery_count, incarnation)
        await self.acknowledge(member, [Acknowledgement(offset, offset, [kind])], settings)

    async def release(self, member: str) -> None:
        """The member has gone: others get what it held."""
        if not self.is_closed:
            await self._store(self.share.release(member, self._env.monotonic_ms()))

    async def settled(self) -> None:
        """Returns when no write is under way: a late one could undo what the next leader writes."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    def close(self) -> None:
        """This broker does not lead the share-partition any more; requests that wait fail."""
        self.is_closed = True
        self._letters.close()
        if self._timer is not None:
            self._timer.cancel()
        error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker no longer leads {self.partition.name}")
        for _, done in self._unwritten:
            fail_quietly(done, error)
        self._unwritten.clear()
        self._wake()

    async def _store(self, write: Write | None) -> None:
        self._set_timer()
        if write is None:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unwritten.append((write, done))
        if self._writing is None:
            self._writing = self._env.spawn(self._write(), f"share state of {self.partition.name}")
        # A member that goes away cancels this, but does not stop its acknowledgement.
        await done

    async def _write(self) -> None:
        try:
            while self._unwritten:
                taken, self._unwritten = self._unwritten, []
                batches: Sequence[StateBatch] = ()
                failure = None
                try:
                    batches = await self._save([write for write, _ in taken])
                except ApiError as error:
                    failure = error
                    # The write may have arrived: the identities in it of dead letters must never be given to others.
                    self._letter_producer = None
                self.share.saved(is_durable=failure is None)
                self._written(taken, batches, failure)
        finally:
            self._writing = None

    async def _save(self, writes: Sequence[Write]) -> Sequence[StateBatch]:
        """Write the state, with an identity for each new dead letter; the batches as they were written."""
        count = sum(
            batch.last - batch.first + 1 for write in writes for batch in write.batches if is_unidentified(batch)
        )
        producer = self._letter_producer
        if count and (producer is None or producer[1] + count > SEQUENCE_MAX):
            producer = (await self._take_producer_id(), 0)
        saving = self.share.save(writes)
        producer_id, sequence = producer or (NO_PRODUCER_ID, 0)
        batches, sequence = identified(saving.batches, producer_id, sequence)
        self._write_number += 1
        await self._persister.write(
            *self.key,
            self._state_epoch,
            self.leader_epoch,
            saving.start,
            saving.finished_count,
            batches,
            saving.delays,
            self._write_number,
        )
        self._letter_producer = (producer_id, sequence) if producer is not None else None
        return batches

    def _written(
        self,
        taken: list[tuple[Write, asyncio.Future[None]]],
        batches: Sequence[StateBatch],
        failure: ApiError | None,
    ) -> None:
        for write, done in taken:
            self.share.settle(write.number, is_durable=failure is None, batches=batches)
            if failure is not None:
                fail_quietly(done, as_client_error(failure))
            elif not done.done():
                done.set_result(None)
        if self.is_closed:
            return
        if failure is not None:
            self._not_before_ms = self._env.monotonic_ms() + RETRY_MS
            if failure.code not in _UNAVAILABLE:
                self._on_lost(self)
                return
        self._letters.nudge()
        self._set_timer()
        self._wake()

    def _set_timer(self) -> None:
        """One timer for what is first: a lock that ends, a record that has waited enough, one that is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.is_closed:
            return
        delays_ms = []
        deadline_ms = self.share.next_deadline_ms
        if deadline_ms is not None:
            delays_ms.append(max(deadline_ms, self._not_before_ms) - self._env.monotonic_ms())
        due_ms = self.share.next_due_ms
        if due_ms is not None:
            delays_ms.append(min(due_ms - self._env.now_ms(), TIMER_MAX_MS))
        if delays_ms:
            self._timer = asyncio.get_running_loop().call_later(max(0, min(delays_ms)) / 1000, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        has_more = self._admit_due()
        write = self.share.expire(self._env.monotonic_ms())
        if write is not None:
            self.lock_timeouts += sum(batch.last - batch.first + 1 for batch in write.batches)
            self._env.spawn(self._store_quietly(write), f"locks of {self.partition.name}")
        else:
            self._set_timer()
        if has_more:
            self._wake()

    async def _store_quietly(self, write: Write) -> None:
        try:
            await self._store(write)
        except ApiError:
            # The records are locked as before, and the timer is set for another try.
            return

    def _wake(self) -> None:
        for listener in tuple(self._waiting):
            listener()


def as_client_error(error: ApiError) -> ApiError:
    """The error for a member when the share coordinator refused or could not be asked."""
    if error.code in _FENCED:
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    if error.code in _UNAVAILABLE:
        return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code in _AS_THEY_ARE:
        return error
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)
