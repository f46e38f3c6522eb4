"""What a share-partition reads of its log: records to hand out, delayed ones to wait for, and those it gave up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from penstock.core.share.batches import Aborted, Batches, batches_in, deliverable, thinned
from penstock.core.share.delays import RECORDS_BYTES_MAX, Delayed, delayed_in
from penstock.core.share.partition import SharePartition
from penstock.core.share.scan import Ahead, wait_for
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.replication.absence import note_read_failure
from penstock.runtime.replication.partition import Partition
from penstock.runtime.share.settings import ShareGroupSettings
from penstock.runtime.share.tier_window import Tier, TierWindow, late
from penstock.wire.records import Record, read_records

# How much is looked through for delayed records before others get their turn.
SCAN_BYTES_MAX = 256 * 1024
# A log is read for delayed records in smaller parts, as it takes long and is not urgent.
DELAYS_BYTES_MAX = 64 * 1024
# A look for records passes over so much that no member may have, then continues in another turn.
SKIPS_MAX = 4
# Delayed records are scattered over the log: so many places are read for one answer.
PIECES_MAX = 64
# How often a new leader looks whether it may read again what was handed out before.
RETRY_S = 0.05
# A read of one record shares what is loaded from object storage with reads of others.
TRIES_MAX = 8


class Read(NamedTuple):
    """Batches, and the transactions among them that were aborted; None if the log knows these."""

    batches: Batches
    aborted: tuple[Aborted, ...] | None = None


class FoundRecords(NamedTuple):
    """Batches that could be read, and the ranges of offsets in them that may be handed out."""

    batches: Batches
    ranges: list[tuple[int, int]]


class ShareReader:
    """Reads for `share` what `partition` has. `go_on` is called when a look was cut short and should be repeated."""

    def __init__(
        self, env: Env, partition: Partition, share: SharePartition, go_on: Callable[[], None], tier: Tier | None
    ) -> None:
        self._env = env
        self._window = TierWindow(env, partition, tier, go_on) if tier is not None else None
        self._partition = partition
        self._share = share
        self._resume = go_on
        self._ahead = Ahead(share)
        self._last_read: tuple[int, int, list[Record]] = (0, -1, [])

    def find(self, size_max: int, settings: ShareGroupSettings, *, minimum_one_batch: bool) -> FoundRecords | None:
        """What could be handed out now; None for nothing. Raises ApiError where the log cannot be read."""
        share, partition = self._share, self._partition
        for _ in range(SKIPS_MAX):
            if share.delays.count:
                size_max = min(size_max, SCAN_BYTES_MAX)
            offset = share.next_offset()
            if offset is None or offset >= partition.high_watermark:
                return None
            if share.was_delayed(offset):
                found = self._scattered(offset, size_max, settings)
                if found is not None:
                    return found
                continue
            read = self._read(offset, size_max, committed_only=settings.committed_only, at_least_one=minimum_one_batch)
            batches = read.batches
            if not batches.headers:
                return None
            ranges = self._deliverable(read, settings)
            first = next((base for base, last in ranges if last >= offset), batches.end)
            if first <= offset:
                return FoundRecords(batches, ranges)
            share.pass_over(offset, first - 1)
            self.handed_out()
            share.advance()
        asyncio.get_running_loop().call_soon(self._resume)
        return None

    def handed_out(self) -> None:
        """To be called when records that were found were handed out: the others that were passed have to wait."""
        self._ahead.passed(self._env.now_ms(), self._env.monotonic_ms())

    def _read(self, offset: int, size_max: int, *, committed_only: bool, at_least_one: bool = True) -> Read:
        """Nothing, too, while it is on its way from object storage."""
        try:
            data = self._partition.read(
                offset, size_max, committed_only=committed_only, minimum_one_batch=at_least_one
            ).read()
        except ApiError as error:
            if self._window is None or error.code is not ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                note_read_failure(self._partition, error)
                raise
            part = self._window.take(offset, size_max, committed_only=committed_only, at_least_one=at_least_one)
            return Read(batches_in(part.data, offset), part.aborted)
        if self._window is not None:
            self._window.forget()
        return Read(batches_in(data, offset))

    def _scattered(self, start: int, size_max: int, settings: ShareGroupSettings) -> FoundRecords | None:
        """Records that were delayed, from `start` on, without those around them; None if they are all gone."""
        share, limit = self._share, self._partition.high_watermark
        pieces: list[bytes] = []
        offset: int | None = start
        size = 0
        while offset is not None and offset < limit and share.was_delayed(offset) and len(pieces) < PIECES_MAX:
            batches = self._read(offset, 1, committed_only=settings.committed_only).batches
            if not batches.headers or (pieces and size >= size_max):
                break
            header = batches.headers[0]
            wanted = share.free_within(offset, header.last_offset)
            piece, found = thinned(batches.data, header, frozenset(wanted), RECORDS_BYTES_MAX)
            for gone in sorted({*wanted} - {*found}):
                share.pass_over(gone, gone)
            if piece:
                pieces.append(piece)
                size += len(piece)
            offset = share.next_offset(header.next_offset)
        share.advance()
        if not pieces:
            return None
        batches = batches_in(b"".join(pieces), start)
        return FoundRecords(batches, [(header.base_offset, header.last_offset) for header in batches.headers])

    def _deliverable(self, read: Read, settings: ShareGroupSettings) -> list[tuple[int, int]]:
        ranges = deliverable(read.batches.headers, self._aborted(read, settings))
        return self._ahead.deliverable(read.batches, ranges, self._env.now_ms())

    def _aborted(self, read: Read, settings: ShareGroupSettings) -> tuple[Aborted, ...]:
        if read.aborted is not None:
            return read.aborted
        batches = read.batches
        aborted: Iterable[Aborted] = ()
        known = self._partition.log.aborted
        if settings.committed_only and len(known) and batches.headers:
            rows = known.overlapping(batches.headers[0].base_offset, batches.end)
            aborted = (Aborted(row.producer_id, row.first_offset, row.last_offset) for row in rows)
        return tuple(aborted)

    async def record(self, offset: int) -> Record | None:
        """One record of the log; None if it is gone. Raises ApiError if it cannot be read now."""
        first, end, records = self._last_read
        if not first <= offset < end:
            try:
                batches = self._read(offset, 1, committed_only=False).batches
                for _ in range(TRIES_MAX):
                    if batches.headers or self._window is None or not self._window.is_loading:
                        break
                    await self._window.wait()
                    batches = self._read(offset, 1, committed_only=False).batches
                else:
                    raise late(self._partition)
            except ApiError as error:
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    return None
                raise
            if not batches.headers:
                return None
            records = read_records(batches.data, RECORDS_BYTES_MAX)
            self._last_read = batches.headers[0].base_offset, batches.headers[0].next_offset, records
        return next((record for record in records if record.offset == offset), None)

    async def load(self, start: int, settings: ShareGroupSettings, is_over: Callable[[], bool]) -> None:
        """Read the log from `start` to the end of what any member looked at, for all delayed records that wait."""
        self._share.delays.begin_load()

        def add(one: Delayed) -> None:
            wait_for(self._share, one, self._env.now_ms(), self._env.monotonic_ms())

        await self._read_delays(start, settings, is_over, add)

    async def refill(self, start: int, settings: ShareGroupSettings, is_over: Callable[[], bool]) -> None:
        """Read it again for those that are due next."""
        index = self._share.delays
        index.begin_refill()

        def offer(one: Delayed) -> None:
            if index.is_waiting(one):
                index.offer(one)

        await self._read_delays(start, settings, is_over, offer)

    async def _read_delays(
        self, start: int, settings: ShareGroupSettings, is_over: Callable[[], bool], tell: Callable[[Delayed], None]
    ) -> None:
        partition, index = self._partition, self._share.delays
        offset, end = start, self._share.end
        try:
            while offset < end and not is_over():
                offset = max(offset, partition.log.start_offset)
                if offset >= min(end, partition.log.end_offset):
                    break
                began_ms = self._env.monotonic_ms()
                read = self._read(offset, DELAYS_BYTES_MAX, committed_only=settings.committed_only)
                batches = read.batches
                if not batches.headers:
                    # It is on its way from object storage, or a leader begins with a high watermark that is behind
                    # what its predecessor knew.
                    await asyncio.sleep(RETRY_S)
                    continue
                for one in self._delayed_in(read, settings):
                    if offset <= one.offset < end:
                        tell(one)
                offset = batches.end
                # Half of the time is for those who take records meanwhile.
                await asyncio.sleep((self._env.monotonic_ms() - began_ms) / 1000)
        except BaseException:
            index.give_up_refill()
            raise
        index.end_refill()

    def _delayed_in(self, read: Read, settings: ShareGroupSettings) -> Iterator[Delayed]:
        batches = read.batches
        ranges = deliverable(batches.headers, self._aborted(read, settings))
        bases = {base for base, _ in ranges}
        position = 0
        for header in batches.headers:
            if header.base_offset in bases:
                yield from delayed_in(batches.data, position, header)
            position += header.size_bytes
