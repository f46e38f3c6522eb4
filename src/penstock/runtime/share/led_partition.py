"""A share-partition that this broker leads: its state machine, the writes that make changes durable, and its locks.

Writes go out one at a time; what changes meanwhile goes with the next one. Whoever waits for records is told when some
come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from penstock.core.share.acknowledgements import Acknowledgement
from penstock.core.share.batches import Aborted, Batches, batches_in, deliverable, with_records
from penstock.core.share.partition import Acquired, SharePartition, Write
from penstock.core.share.state import ShareKey
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.replication.partition import Partition
from penstock.runtime.share.persister import Persister, StoredState
from penstock.runtime.share.settings import ShareGroupSettings

# After a write that failed, locks that ended are looked at again after this time.
RETRY_MS = 1_000
# What a client hears when its leader cannot write.
_FENCED = frozenset((ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH))
_UNAVAILABLE = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
_AS_THEY_ARE = frozenset((ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


class Found(NamedTuple):
    """Batches that could be read, and the offset from which on."""

    offset: int
    batches: Batches


class Delivery(NamedTuple):
    """What a member gets: batches, and which of their records are its own."""

    records: list[memoryview]
    acquired: list[Acquired]


class LedSharePartition:
    """`on_lost` is called when the stored state is not this leader's any more."""

    def __init__(
        self,
        env: Env,
        key: ShareKey,
        partition: Partition,
        persister: Persister,
        stored: StoredState,
        settings: ShareGroupSettings,
        on_lost: Callable[[LedSharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.is_closed = False
        self._env = env
        self._persister = persister
        self._state_epoch = stored.state_epoch
        self._on_lost = on_lost
        self._share = SharePartition(stored.start_offset, stored.batches, settings.partition)
        self._unwritten: list[tuple[Write, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._not_before_ms = 0
        self._waiting: dict[Callable[[], None], None] = {}

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called when records may be had, or never again here."""
        self._waiting[listener] = None

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""
        self._waiting.pop(listener, None)

    def find(self, size_max: int, settings: ShareGroupSettings, *, minimum_one_batch: bool) -> Found | None:
        """What could be handed out now; None for nothing. Raises ApiError where the log cannot be read."""
        share, partition = self._share, self.partition
        share.settings = settings.partition
        share.raise_start(partition.log.start_offset)
        while True:
            offset = share.next_offset()
            if offset is None or offset >= partition.high_watermark:
                return None
            read = partition.read(
                offset, size_max, committed_only=settings.committed_only, minimum_one_batch=minimum_one_batch
            )
            batches = batches_in(read.read(), offset)
            if not batches.headers:
                return None
            ranges = self._deliverable(batches, settings)
            first = next((base for base, last in ranges if last >= offset), batches.end)
            if first <= offset:
                return Found(offset, batches)
            share.skip(offset, first - 1)

    def acquire(
        self,
        member: str,
        found: Found,
        settings: ShareGroupSettings,
        records_max: int,
        *,
        batch_size: int,
        is_strict: bool,
    ) -> Delivery:
        """Hand out what `find` has found, in the same turn."""
        ranges = self._deliverable(found.batches, settings)
        acquired = self._share.acquire(
            member, ranges, records_max, self._env.monotonic_ms(), batch_size=batch_size, is_strict=is_strict
        )
        self._set_timer()
        records = with_records(found.batches, acquired)
        self.partition.counters.read(sum(map(len, records)))
        return Delivery(records, acquired)

    def _deliverable(self, batches: Batches, settings: ShareGroupSettings) -> list[tuple[int, int]]:
        aborted: Iterable[Aborted] = ()
        known = self.partition.log.aborted
        if settings.committed_only and len(known) and batches.headers:
            rows = known.overlapping(batches.headers[0].base_offset, batches.end)
            aborted = (Aborted(row.producer_id, row.first_offset, row.last_offset) for row in rows)
        return deliverable(batches.headers, tuple(aborted))

    async def acknowledge(
        self, member: str, acknowledgements: Sequence[Acknowledgement], settings: ShareGroupSettings
    ) -> None:
        """What a member says of its records; ends when that is durable. Raises ApiError when it is not."""
        self._share.settings = settings.partition
        self._share.raise_start(self.partition.log.start_offset)
        await self._store(self._share.acknowledge(member, acknowledgements, self._env.monotonic_ms()))

    async def release(self, member: str) -> None:
        """The member has gone: others get what it held."""
        if not self.is_closed:
            await self._store(self._share.release(member))

    async def settled(self) -> None:
        """Ends when no write is under way: a late one could undo what whoever loads the state next writes."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    def close(self) -> None:
        """This broker does not lead the share-partition any more; who waits hears of it."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker no longer leads {self.partition.name}")
        for _, done in self._unwritten:
            _fail(done, error)
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
        # A member that goes away does not stop its acknowledgement.
        await asyncio.shield(done)

    async def _write(self) -> None:
        try:
            while self._unwritten:
                taken, self._unwritten = self._unwritten, []
                start, finished_count = self._share.start_after({write.number for write, _ in taken})
                batches = [batch for write, _ in taken for batch in write.batches]
                failure = None
                try:
                    await self._persister.write(
                        *self.key, self._state_epoch, self.leader_epoch, start, finished_count, batches
                    )
                except ApiError as error:
                    failure = error
                self._written(taken, failure)
        finally:
            self._writing = None

    def _written(self, taken: list[tuple[Write, asyncio.Future[None]]], failure: ApiError | None) -> None:
        for write, done in taken:
            self._share.settle(write.number, is_durable=failure is None)
            if failure is not None:
                _fail(done, as_client_error(failure))
            elif not done.done():
                done.set_result(None)
        if self.is_closed:
            return
        if failure is not None:
            self._not_before_ms = self._env.monotonic_ms() + RETRY_MS
            if failure.code not in _UNAVAILABLE:
                self._on_lost(self)
                return
        self._set_timer()
        self._wake()

    def _set_timer(self) -> None:
        """One timer for the lock that ends first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._share.next_deadline_ms
        if deadline_ms is not None and not self.is_closed:
            delay_ms = max(deadline_ms, self._not_before_ms) - self._env.monotonic_ms()
            self._timer = asyncio.get_running_loop().call_later(max(0, delay_ms) / 1000, self._locks_ended)

    def _locks_ended(self) -> None:
        self._timer = None
        write = self._share.expire(self._env.monotonic_ms())
        if write is None:
            self._set_timer()
            return
        self._env.spawn(self._store_quietly(write), f"locks of {self.partition.name}")

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


def _fail(done: asyncio.Future[None], error: ApiError) -> None:
    if not done.done():
        done.set_exception(error)
        # The member may have gone; nobody needs to retrieve the exception.
        done.exception()
