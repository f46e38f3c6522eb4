"""Reading copied segments from a store in memory: which batches are served, from where, and what damage does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from crc32c import crc32c

from penstock.config.node import NodeSettings
from penstock.core.replica.producer_state import AppendedBatch, ProducerEntry
from penstock.core.tier.segments import EpochStart, RemotePartition, RemoteSegment, SegmentState
from penstock.model.errors import ApiError
from penstock.runtime.env import SystemEnv
from penstock.runtime.tier.cache import DiskCache
from penstock.runtime.tier.counters import TierCounters
from penstock.runtime.tier.reader import TierReader
from penstock.storage.indexes import OffsetIndex, TimeIndex
from penstock.storage.leader_epochs import EpochEntry, LeaderEpochs
from penstock.storage.producers.snapshot import encode_snapshot
from penstock.storage.producers.transaction_index import AbortedTransaction, TransactionIndex
from penstock.storage.tier.layout import (
    EPOCHS,
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Manifest,
    PartitionLocation,
    StoredObject,
)
from penstock.storage.tier.sealing import Seals
from penstock.wire.records import Record, build_batch, patch, read_header, read_records
from support.memory_store import MemoryStore

PLACE = PartitionLocation("cluster", "orders", b"t" * 16, 0)


class Settings:
    remote_log_reader_threads = 2
    remote_log_manager_fetch_max_bytes_per_second = 2**63 - 1
    penstock_tier_read_bytes = 256
    penstock_tier_read_ahead = 1


def batch(offset: int, epoch: int, count: int = 2) -> bytes:
    records = [Record(number, 1000 + offset + number, None, b"v" * 40, ()) for number in range(count)]
    data = bytearray(build_batch(records))
    patch(data, 0, offset, epoch)
    return bytes(data)


class World:
    """A tier with segments, each of batches of two records."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = MemoryStore()
        self.settings = Settings()
        self.remote = RemotePartition("orders")
        self.env = SystemEnv()
        self.counters = TierCounters()
        self.parts = DiskCache(self.env, tmp_path / "parts", lambda: 2000)
        self.indexes = DiskCache(self.env, tmp_path / "indexes", lambda: 10_000)
        self.parts.open()
        self.indexes.open()
        self.reader = TierReader(
            self.env,
            self.store,
            self.parts,
            self.indexes,
            cast("Callable[[], NodeSettings]", lambda: self.settings),
            self.counters,
            Seals(),
        )

    def add(
        self, number: int, start: int, end: int, *epochs: tuple[int, int], companions: dict[str, bytes] | None = None
    ) -> RemoteSegment:
        """A segment of the offsets from `start` to before `end`."""
        starts = [EpochStart(*one) for one in epochs or ((0, start),)]
        index, times, log = OffsetIndex(), TimeIndex(), b""
        for offset in range(start, end, 2):
            epoch = max((one for one in starts if one.start_offset <= offset), key=lambda one: one.start_offset).epoch
            if (offset - start) % 8 == 6:
                index.append(offset + 1 - start, len(log))
                times.append(1000 + offset + 1, offset + 1 - start)
            log += batch(offset, epoch)
        segment_id = bytes([number]) * 16
        contents = {LOG: log, INDEX: index.to_bytes(), TIME_INDEX: times.to_bytes(), **(companions or {})}
        stored = {kind: StoredObject(len(content), crc32c(content)) for kind, content in contents.items()}
        manifest = Manifest(PLACE, segment_id, start, end - 1, 999 + end, tuple(starts), 1, 0, stored)
        for kind, content in contents.items():
            self.store.objects[PLACE.object(start, segment_id, kind)] = content
        self.store.objects[PLACE.manifest(start, segment_id)] = manifest.to_bytes()
        segment = RemoteSegment(segment_id, start, end - 1, len(log), 999 + end, tuple(starts))
        self.remote.begin(replace(segment, has_aborted_transactions=TRANSACTION_INDEX in contents))
        self.remote.update(segment_id, SegmentState.COPY_SEGMENT_FINISHED, 1, 1)
        return segment

    def in_memory(self, memory_max: int) -> None:
        """Keep so much in memory."""
        self.parts._memory_max = lambda: memory_max

    async def written(self) -> None:
        """Wait until everything that was read is in the caches."""
        while self.parts._loading or self.indexes._loading:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def offsets(self, offset: int, size_max: int = 300, *lineage: tuple[int, int]) -> list[int]:
        """The offsets of the records that a read returns."""
        known = [EpochStart(*one) for one in lineage or ((0, 0),)]
        read = await self.reader.read(PLACE, self.remote, known, offset, size_max)
        found: list[int] = []
        position = 0
        while position < len(read.data):
            found += [record.offset for record in read_records(read.data, 10**6, position)]
            position += read_header(read.data, position).size_bytes
        assert read.end_offset == found[-1] + 1
        return found


def run(tmp_path: Path, work: Callable[[World], Awaitable[None]]) -> None:
    async def inside() -> None:
        world = World(tmp_path)
        try:
            await work(world)
        finally:
            await world.env.close()

    asyncio.run(inside())


def test_every_offset_is_found_with_its_whole_batch(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.add(1, 0, 40)
        world.add(2, 40, 80)
        for offset in range(80):
            found = await world.offsets(offset)
            assert found[0] == offset - offset % 2
            assert found == list(range(found[0], found[-1] + 1))
            # At least one batch, however little is asked for.
            assert await world.offsets(offset, 1) == [found[0], found[0] + 1]
        with pytest.raises(ApiError, match="neither on disk nor in object storage"):
            await world.offsets(80)

    run(tmp_path, work)


def test_records_that_an_unclean_election_took_back_are_not_served(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.settings.penstock_tier_read_bytes = 10_000
        # Epoch 1 got as far as 39, and the leader of epoch 2 began at 20.
        world.add(1, 0, 40, (0, 0), (1, 10))
        world.add(2, 20, 60, (2, 20))
        lineage = ((0, 0), (1, 10), (2, 20))
        assert (await world.offsets(12, 10_000, *lineage))[-1] == 19
        assert (await world.offsets(20, 10_000, *lineage))[-1] == 59
        read = await world.reader.read(PLACE, world.remote, [EpochStart(*one) for one in lineage], 24, 10)
        assert read_header(read.data).partition_leader_epoch == 2

    run(tmp_path, work)


def test_a_log_that_begins_within_a_batch(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.add(1, 0, 40)
        assert (await world.offsets(7, 10, (0, 7)))[0] == 6

    run(tmp_path, work)


def test_what_was_read_comes_from_the_cache_which_stays_small(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.add(1, 0, 80)
        await world.offsets(0)
        before = world.counters.store_reads
        await world.offsets(0)
        assert world.counters.store_reads == before
        for offset in range(0, 80, 2):
            await world.offsets(offset)
        assert 0 < world.parts.size_bytes <= 2000
        assert sum(path.stat().st_size for path in (tmp_path / "parts").iterdir()) <= 2000 + 256

    run(tmp_path, work)


def test_who_reads_on_needs_no_index_and_finds_what_follows_in_memory(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.in_memory(1500)
        world.settings.penstock_tier_read_ahead = 2
        world.add(1, 0, 40)
        world.add(2, 40, 80)
        offset, found = 0, list[int]()
        while offset < 80:
            read = await world.offsets(offset, 10_000)
            offset = read[-1] + 1
            await world.written()
            found += read
            if offset == 40:
                assert [path for path, _ in world.store.ranges if f"/{40:020d}-" in path]
        # A batch may lie in two parts, and no record comes twice.
        assert found == list(range(80))
        assert not [path for path in world.store.reads if path.endswith(".index")]
        # Each part was read once, though nothing is written.
        assert len(world.store.ranges) == len(set(world.store.ranges)) == world.counters.store_reads
        assert (world.parts.size_bytes, world.parts.memory_bytes <= 1500) == (0, True)

    run(tmp_path, work)


def test_what_is_loaded_again_goes_to_disk(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.in_memory(600)
        world.settings.penstock_tier_read_ahead = 0
        world.add(1, 0, 80)
        for _ in range(2):
            for offset in range(0, 80, 2):
                await world.offsets(offset)
                await world.written()
        assert world.parts.size_bytes > 1000
        before = world.counters.store_reads
        for offset in range(70, 80, 2):
            await world.offsets(offset)
        assert world.counters.store_reads == before

    run(tmp_path, work)


def test_pieces_not_used_yet_are_not_lost(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.in_memory(600)
        world.settings.penstock_tier_read_ahead = 5
        world.add(1, 0, 80)
        await world.offsets(0)
        await world.written()

        async def load() -> bytes:
            raise AssertionError("it was here")

        for number in range(1, 5):
            assert len(await world.parts.get(f"{bytes([1] * 16).hex()}.{number}", load)) == 256

    run(tmp_path, work)


def test_the_first_part_of_the_next_segment_is_read_ahead(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.in_memory(2_000)
        world.settings.penstock_tier_read_ahead = 2
        world.add(1, 0, 4)
        following = world.add(2, 4, 44)
        await world.offsets(2)
        await world.written()
        ahead = [name for name in world.parts._memory if name.startswith(following.segment_id.hex())]
        assert ahead == [f"{following.segment_id.hex()}.0"]

    run(tmp_path, work)


def test_damage_in_the_cache_is_read_again_and_in_the_store_is_an_error(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.settings.penstock_tier_read_ahead = 0
        segment = world.add(1, 0, 40)
        await world.offsets(0)
        await world.written()
        for path in (tmp_path / "parts").iterdir():
            path.write_bytes(b"\0" * 61 + path.read_bytes()[61:-1] + b"?")
        assert (await world.offsets(0))[0] == 0
        name = PLACE.object(0, segment.segment_id, LOG)
        sound = world.store.objects[name]
        world.store.objects[name] = sound[:100] + bytes([sound[100] ^ 1]) + sound[101:]
        await world.written()
        for path in list((tmp_path / "parts").iterdir()):
            world.parts.forget(path.name)
        with pytest.raises(ApiError):
            await world.offsets(0)
        index = PLACE.object(0, segment.segment_id, INDEX)
        await world.written()
        world.indexes.forget(f"{segment.segment_id.hex()}.index")
        world.store.objects[index] = b"\1" * len(world.store.objects[index])
        world.store.objects[name] = sound
        with pytest.raises(ApiError, match="checksum"):
            await world.offsets(20)

    run(tmp_path, work)


def test_records_are_found_by_time(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.add(1, 0, 40)
        world.add(2, 40, 80)
        for timestamp, offset in ((0, 0), (1000, 0), (1001, 1), (1039, 39), (1040, 40), (1077, 77)):
            found = await world.reader.find_time(PLACE, world.remote, [EpochStart(0, 0)], timestamp, 0)
            assert found is not None
            assert found.offset == offset
        later = await world.reader.find_time(PLACE, world.remote, [EpochStart(0, 0)], 1000, 51)
        assert later is not None
        assert later.offset == 51
        assert await world.reader.find_time(PLACE, world.remote, [EpochStart(0, 0)], 1080, 0) is None

    run(tmp_path, work)


def test_a_reader_that_gives_up_does_not_stop_others(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.add(1, 0, 40)
        gate = asyncio.Event()
        get: Any = world.store.get

        async def slow(path: str) -> bytes:
            await gate.wait()
            return cast("bytes", await get(path))

        world.store.get = slow  # type: ignore[method-assign]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await world.offsets(20)
        waiting = asyncio.ensure_future(world.offsets(20))
        await asyncio.sleep(0)
        gate.set()
        assert (await waiting)[0] == 20
        # Each object was asked for once.
        assert len([path for path in world.store.reads if path.endswith(".index")]) == 1

    run(tmp_path, work)


def test_the_history_of_a_segment_has_its_epochs_and_producers(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        producer = ProducerEntry(9, 2, 0, 1_000, -1, (AppendedBatch(0, 3, 36, 39, 1_000),))
        epochs = LeaderEpochs()
        epochs.assign(0, 0)
        epochs.assign(4, 20)
        segment = world.add(1, 0, 40, companions={EPOCHS: epochs.to_bytes(), SNAPSHOT: encode_snapshot([producer])})
        history = await world.reader.history(PLACE, segment)
        assert list(history.epochs) == [EpochEntry(0, 0), EpochEntry(4, 20)]
        assert list(history.producers) == [producer]

    run(tmp_path, work)


def test_aborted_transactions_of_a_range_are_complete_once_everything_in_it_was_decided(tmp_path: Path) -> None:
    early, long, late = (
        AbortedTransaction(5, 2, 9, 10),
        AbortedTransaction(6, 12, 45, 46),
        AbortedTransaction(7, 60, 63, 64),
    )

    def index(*transactions: AbortedTransaction) -> dict[str, bytes]:
        built = TransactionIndex()
        return {TRANSACTION_INDEX: b"".join(map(built.append, transactions))}

    async def work(world: World) -> None:
        world.add(1, 0, 40, companions=index(early))
        world.add(2, 40, 80, companions=index(long, late))
        world.add(3, 80, 120)
        for start, end, expected in (
            (0, 10, ([early], True)),
            (0, 20, ([early, long], True)),
            (10, 12, ([], True)),
            (10, 13, ([long], True)),
            (46, 60, ([], True)),
            (60, 61, ([late], True)),
            # The log on disk may have markers of transactions that begin here.
            (64, 80, ([], False)),
            (0, 80, ([early, long, late], False)),
            (80, 100, ([], False)),
        ):
            found = await world.reader.aborted(PLACE, world.remote, [EpochStart(0, 0)], start, end)
            assert found == expected, (start, end)

    run(tmp_path, work)


@pytest.mark.parametrize("damage", [lambda data: data[:-1] + b"?", lambda data: data[:-1], lambda data: data + b"?"])
def test_a_piece_that_the_disk_has_damaged_is_loaded_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """A rotten index was believed, and aborted transactions in it were not found."""

    async def work(world: World) -> None:
        loads: list[bytes] = []

        async def load() -> bytes:
            loads.append(b"12345678")
            return loads[-1]

        async def read() -> bytes:
            found = bytes(await world.indexes.get("piece", load))
            await world.written()
            return found

        assert [await read(), await read()] == [b"12345678"] * 2
        assert len(loads) == 1
        path = tmp_path / "indexes" / "piece"
        path.write_bytes(damage(path.read_bytes()))
        assert [await read(), await read()] == [b"12345678"] * 2
        assert (len(loads), world.indexes.size_bytes) == (2, 8)

    run(tmp_path, work)


def test_a_piece_that_is_being_moved_to_disk_is_not_loaded_again(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        writes: list[asyncio.Future[None]] = []
        world.in_memory(10)
        cache = world.parts

        def stalled(_: Callable[[], object]) -> asyncio.Future[None]:
            writes.append(asyncio.get_running_loop().create_future())
            return writes[-1]

        world.env.run_blocking = stalled  # type: ignore[method-assign, assignment]

        async def load(data: bytes) -> bytes:
            return data

        cache.load_ahead("first", lambda: load(b"12345678"))
        cache.load_ahead("second", lambda: load(b"abcdefgh"))
        while not writes:  # noqa: ASYNC110
            await asyncio.sleep(0)
        # No reader has used it, so that it moves to disk when another one takes its place in memory.
        async with asyncio.timeout(10):
            assert await cache.get("first", lambda: load(b"loaded twice")) == b"12345678"
        writes[0].set_result(None)
        await world.written()
        assert cache.size_bytes == 8

    run(tmp_path, work)
