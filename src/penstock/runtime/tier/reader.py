"""Reads segments in object storage: batches from an offset on, records by time, aborted transactions, histories.

Parts of a segment are read whole and cached, and the next ones are read ahead. A read ends with the part in which it
begins, so that it neither waits for others nor copies anything; a batch that lies in two parts is a read of its own.
Where a read ended is remembered: who continues there needs no index. Batches are checked as they are read; a damaged
part is read once more from the store before that is an error. Only batches of the epochs in `lineage`, those of the
leader's log, are returned: after an unclean election a segment may end with records that were lost.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from crc32c import crc32c

from penstock.config.node import NodeSettings
from penstock.core.replica.throttle import Throttle
from penstock.core.tier.segments import EpochStart, RemotePartition, RemoteSegment
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.tier.cache import DiskCache
from penstock.runtime.tier.counters import TierCounters
from penstock.storage.indexes import OffsetIndex, TimeIndex
from penstock.storage.producers.transaction_index import AbortedTransaction, TransactionIndex
from penstock.storage.segment_copy import TierHistory
from penstock.storage.tier.layout import (
    EPOCHS,
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Manifest,
    ManifestError,
    PartitionLocation,
)
from penstock.storage.tier.object_store import ObjectStore, StoreError
from penstock.storage.tier.sealing import Seals, open_bytes, open_chunks
from penstock.storage.timestamps import DECOMPRESSED_BYTES_MAX, TimestampOffset
from penstock.wire.kernel import scan_batches
from penstock.wire.record_types import Buffer
from penstock.wire.records import HEADER_SIZE, CorruptBatch, UnsupportedMagic, read_header, read_records

# Readers that continue where they were: consumers of old records, each of which reads some partitions.
ENDS_KEPT_MAX = 10_000


T = TypeVar("T", bound=Buffer)


class DamagedPart(StoreError):
    """What was read of a segment is not what was written."""


class TierSlice(NamedTuple):
    """Whole batches, and the offset after the last of them."""

    data: Buffer
    end_offset: int


class TierReader:
    """Reads for all partitions of this broker."""

    def __init__(
        self,
        env: Env,
        store: ObjectStore,
        parts: DiskCache,
        indexes: DiskCache,
        settings: Callable[[], NodeSettings],
        counters: TierCounters,
        seals: Seals,
    ) -> None:
        self._env = env
        self._seals = seals
        self._store = store
        self._parts = parts
        self._indexes = indexes
        self._settings = settings
        self._counters = counters
        self._quota = Throttle(lambda: settings().remote_log_manager_fetch_max_bytes_per_second)
        self._ends: OrderedDict[tuple[Uuid, int], int] = OrderedDict()
        self._reading = 0
        self._free = asyncio.Event()

    async def read(
        self,
        place: PartitionLocation,
        remote: RemotePartition,
        lineage: Sequence[EpochStart],
        offset: int,
        size_max: int,
    ) -> TierSlice:
        """Batches from the one with `offset` on, at least one; raises ApiError."""
        segment = remote.find(lineage, offset)
        if segment is None:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{place.topic}-{place.partition}: offset {offset} is neither on disk nor in object storage",
            )
        try:
            found, position = await self._read_in(place, segment, lineage, offset, size_max)
        except DamagedPart:
            # Perhaps it is only the cache that is damaged.
            self._forget(segment)
            found, position = await self._read_in(place, segment, lineage, offset, size_max)
        self._ends[segment.segment_id, found.end_offset] = position
        if len(self._ends) > ENDS_KEPT_MAX:
            self._ends.popitem(last=False)
        self._read_ahead(place, remote, lineage, segment, position)
        return found

    async def _read_in(
        self,
        place: PartitionLocation,
        segment: RemoteSegment,
        lineage: Sequence[EpochStart],
        offset: int,
        size_max: int,
    ) -> tuple[TierSlice, int]:
        """What is read, and the position in the segment at which it ends."""
        position, size = await self._first_batch(place, segment, await self._near(place, segment, offset), offset)
        part_bytes = self._settings().penstock_tier_read_bytes
        part_end = (position // part_bytes + 1) * part_bytes
        data = await self._bytes(place, segment, position, max(size, min(size_max, part_end - position)))
        scan = scan_batches(data, 0, len(data), check_crc=True)
        end, end_offset = 0, offset
        for at, batch_size, base_offset, last_offset, _ in scan.batches:
            if read_header(data, at).partition_leader_epoch != _epoch_of(lineage, base_offset):
                break
            end, end_offset = at + batch_size, last_offset + 1
        if not end:
            reason = scan.problem or "the segment has other epochs than its metadata"
            raise DamagedPart(f"{place.stem(segment.start_offset, segment.segment_id)} at {position}: {reason}")
        return TierSlice(memoryview(data)[:end], end_offset), position + end

    async def _near(self, place: PartitionLocation, segment: RemoteSegment, offset: int) -> int:
        """A position at or before the batch with an offset, from which it is not far."""
        if offset == segment.start_offset:
            return 0
        known = self._ends.get((segment.segment_id, offset))
        if known is not None:
            return known
        index = OffsetIndex.from_bytes(await self._companion(place, segment, INDEX), segment.size_bytes)
        slot = index.search(offset - segment.start_offset)
        return index.positions[slot - 1] if slot else 0

    async def aborted(
        self,
        place: PartitionLocation,
        remote: RemotePartition,
        lineage: Sequence[EpochStart],
        offset: int,
        end_offset: int,
    ) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions of a range, and whether the tier knows them all."""
        found: list[AbortedTransaction] = []
        for segment in remote.along(lineage):
            if segment.end_offset < offset or not segment.has_aborted_transactions:
                continue
            data = await self._companion(place, segment, TRANSACTION_INDEX)
            overlap = TransactionIndex.from_bytes(data, segment.start_offset).overlapping(offset, end_offset)
            found += [one for one in overlap.transactions if one not in found]
            if overlap.complete:
                return found, True
        return found, False

    async def find_time(
        self,
        place: PartitionLocation,
        remote: RemotePartition,
        lineage: Sequence[EpochStart],
        timestamp: int,
        start_offset: int,
    ) -> TimestampOffset | None:
        """The first record in the tier, from `start_offset` on, that is not older than `timestamp`."""
        for segment in remote.along(lineage):
            if segment.max_timestamp_ms < timestamp or segment.end_offset < start_offset:
                continue
            times = TimeIndex.from_bytes(await self._companion(place, segment, TIME_INDEX))
            offset = max(segment.start_offset + times.lower_bound(timestamp), segment.start_offset, start_offset)
            while offset <= segment.end_offset:
                if remote.find(lineage, offset) is None:
                    break
                part = await self.read(place, remote, lineage, offset, self._settings().penstock_tier_read_bytes)
                found = _first_at_or_after(part.data, timestamp, start_offset)
                if found is not None:
                    return found
                offset = part.end_offset
        return None

    async def history(self, place: PartitionLocation, segment: RemoteSegment) -> TierHistory:
        """The epochs and producers of the log at the end of a segment."""
        epochs = await self._companion(place, segment, EPOCHS)
        return TierHistory.from_bytes(epochs, await self._companion(place, segment, SNAPSHOT))

    async def _first_batch(
        self, place: PartitionLocation, segment: RemoteSegment, position: int, offset: int
    ) -> tuple[int, int]:
        """The position and size of the batch that holds an offset, found from an index entry on."""
        while position < segment.size_bytes:
            head = await self._bytes(place, segment, position, HEADER_SIZE)
            if len(head) < HEADER_SIZE:
                break
            try:
                header = read_header(head)
            except (CorruptBatch, UnsupportedMagic) as error:
                stem = place.stem(segment.start_offset, segment.segment_id)
                raise DamagedPart(f"{stem} at {position}: {error.message}") from error
            if header.last_offset >= offset:
                return position, header.size_bytes
            position += header.size_bytes
        raise DamagedPart(f"{place.stem(segment.start_offset, segment.segment_id)} has no offset {offset}")

    async def _bytes(self, place: PartitionLocation, segment: RemoteSegment, position: int, size: int) -> Buffer:
        part_bytes = self._settings().penstock_tier_read_bytes
        end = min(position + size, segment.size_bytes)
        numbers = range(position // part_bytes, (end - 1) // part_bytes + 1)
        start = numbers.start * part_bytes
        if len(numbers) == 1:
            return memoryview(await self._part(place, segment, numbers.start))[position - start : end - start]
        first, *middle, last = await asyncio.gather(*(self._part(place, segment, number) for number in numbers))
        return b"".join(
            (memoryview(first)[position - start :], *middle, memoryview(last)[: end - numbers[-1] * part_bytes])
        )

    async def _part(self, place: PartitionLocation, segment: RemoteSegment, number: int) -> Buffer:
        return await self._parts.get(_part_name(segment, number), partial(self._load_part, place, segment, number))

    async def _load_part(self, place: PartitionLocation, segment: RemoteSegment, number: int) -> Buffer:
        part_bytes = self._settings().penstock_tier_read_bytes
        start = number * part_bytes
        size = min(part_bytes, segment.size_bytes - start)
        path = place.object(segment.start_offset, segment.segment_id, LOG)
        data: Buffer
        if segment.is_sealed:
            data = await self._sealed(place, segment, path, start, size)
        else:
            data = await self._from_store(lambda: self._store.get_range(path, start, size))
        if len(data) != size:
            raise StoreError(f"{path} has only {len(data)} of {size} bytes at {start}")
        return data

    async def _sealed(
        self, place: PartitionLocation, segment: RemoteSegment, path: str, start: int, size: int
    ) -> bytes:
        """A part of a log that is compressed or encrypted, chunk by chunk."""
        seal = (await self._manifest(place, segment)).seal
        if seal is None:
            raise StoreError(f"{path} is not sealed, although its metadata expects it")
        sealer = self._seals.opener(seal, segment.segment_id)
        sizes = seal.objects[LOG].chunks
        first, end = start // seal.chunk_bytes, -(-(start + size) // seal.chunk_bytes)
        position, length = sum(sizes[:first]), sum(sizes[first:end])
        stored = await self._from_store(lambda: self._store.get_range(path, position, length))
        data = await self._env.run_blocking(lambda: open_chunks(sealer, seal, LOG, first, bytes(stored), end - first))
        skipped = start - first * seal.chunk_bytes
        return data[skipped : skipped + size]

    def _read_ahead(
        self,
        place: PartitionLocation,
        remote: RemotePartition,
        lineage: Sequence[EpochStart],
        segment: RemoteSegment,
        position: int,
    ) -> None:
        """Have the next parts loaded, those of the next segment too."""
        part_bytes = self._settings().penstock_tier_read_bytes
        number = position // part_bytes
        for _ in range(self._settings().penstock_tier_read_ahead):
            if number * part_bytes >= segment.size_bytes:
                following = remote.find(lineage, segment.end_offset + 1)
                if following is None:
                    return
                segment, number = following, 0
            load = partial(self._load_part, place, segment, number)
            self._parts.load_ahead(_part_name(segment, number), load)
            number += 1

    def _forget(self, segment: RemoteSegment) -> None:
        for number in range(segment.size_bytes // self._settings().penstock_tier_read_bytes + 1):
            self._parts.forget(_part_name(segment, number))

    async def _companion(self, place: PartitionLocation, segment: RemoteSegment, kind: str) -> bytes:
        """A small object of a segment, as the manifest describes it."""
        manifest = await self._manifest(place, segment)
        described = manifest.objects.get(kind)
        if described is None:
            return b""
        wanted = place.object(segment.start_offset, segment.segment_id, kind)

        async def load() -> bytes:
            data = await self._from_store(lambda: self._store.get(wanted))
            if len(data) != described.size_bytes or crc32c(data) != described.crc:
                raise StoreError(f"{wanted} is damaged: its checksum does not match the manifest")
            if manifest.seal is None:
                return data
            return open_bytes(self._seals.opener(manifest.seal, segment.segment_id), manifest.seal, kind, data)

        return bytes(await self._indexes.get(f"{segment.segment_id.hex()}.{kind}", load))

    async def _manifest(self, place: PartitionLocation, segment: RemoteSegment) -> Manifest:
        path = place.manifest(segment.start_offset, segment.segment_id)
        name = f"{segment.segment_id.hex()}.manifest"
        stored = await self._indexes.get(name, lambda: self._from_store(lambda: self._store.get(path)))
        try:
            return Manifest.from_bytes(bytes(stored))
        except ManifestError as error:
            raise StoreError(f"{path}: {error}") from error

    async def _from_store(self, read: Callable[[], Awaitable[T]]) -> T:
        """Wait for a free reader and for the quota, then read."""
        settings = self._settings()
        while self._reading >= settings.remote_log_reader_threads:
            self._free.clear()
            await self._free.wait()
        self._reading += 1
        try:
            await asyncio.sleep(self._quota.wait_s(self._env.monotonic_ms()))
            data = await read()
        except FileNotFoundError as error:
            raise StoreError(f"an object is missing from the store: {error}") from error
        finally:
            self._reading -= 1
            self._free.set()
        self._quota.spent(len(data))
        self._counters.store_reads += 1
        self._counters.store_bytes += len(data)
        return data


def _part_name(segment: RemoteSegment, number: int) -> str:
    return f"{segment.segment_id.hex()}.{number}"


def _epoch_of(lineage: Sequence[EpochStart], offset: int) -> int:
    slot = bisect_right(lineage, offset, key=lambda entry: entry.start_offset)
    # The first batch may begin before the log does.
    return lineage[max(0, slot - 1)].epoch if lineage else -1


def _first_at_or_after(data: Buffer, timestamp: int, start_offset: int) -> TimestampOffset | None:
    position = 0
    while position < len(data):
        header = read_header(data, position)
        if header.max_timestamp >= timestamp:
            for record in read_records(data, DECOMPRESSED_BYTES_MAX, position):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        position += header.size_bytes
    return None
