"""What a share-partition reads of its log: delayed records and others, single ones, and everything at a start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.share.contract import ShareSettings
from penstock.core.share.partition import SharePartition
from penstock.core.share.runs import Delays
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.share import reading
from penstock.runtime.share.reading import FoundRecords, ShareReader
from penstock.runtime.share.settings import ShareGroupSettings
from penstock.runtime.tier.remote_logs import TierRead
from penstock.storage.files import OsFilesystem
from penstock.storage.log import Log
from penstock.storage.segment_copy import moved_to_tier
from penstock.storage.settings import LogSettings
from penstock.wire.records import Record, build_batch, read_header, read_records
from support.virtual_time import WALL_START_MS, VirtualEnv, run_virtually

SETTINGS = ShareGroupSettings(ShareSettings(in_flight_max=1_000, delays_max=100), None, False)


class World:
    """A log that the test writes, and a share group's reader of it."""

    def __init__(self, env: VirtualEnv, path: Path, *, is_tiered: bool = False) -> None:
        self.env = env
        self.log = Log.open(OsFilesystem(), path / "orders-0", LogSettings(), recovery_point=0, now_ms=0, clean=True)
        self.reads: list[tuple[int, int]] = []
        self.failure: ApiError | None = None
        self.high_watermark: int | None = None
        self.is_behind = False
        # Offsets before this one are only in object storage.
        self.local_start = 0
        self.tier_reads: list[int] = []
        self.went_on = 0
        partition: Any = self
        self.name = TopicPartition("orders", 0)
        self.share = SharePartition(0, (), SETTINGS.partition, now_ms=0)
        self.tier = SimpleNamespace(read=self._read_tier) if is_tiered else None
        self.make: Callable[[SharePartition], ShareReader] = lambda share: ShareReader(
            env, _View(partition), share, self._resume, cast("Any", self.tier)
        )
        self.reader = self.make(self.share)

    def _resume(self) -> None:
        self.went_on += 1

    def write(self, count: int = 1, *, due_ms: int | None = None, control: bool = False, **options: Any) -> int:
        """A batch of records that are due `due_ms` from the start on, if at all; returns its first offset."""
        base = self.log.end_offset
        headers = () if due_ms is None else ((b"penstock.deliver.at", b"%d" % (WALL_START_MS + due_ms)),)
        named = [(name.decode(), value) for name, value in headers]
        values = [b"\0\0\0\0\0\0" if control else b"%d" % (base + number) for number in range(count)]
        key = b"\0\0\0\1" if control else None
        rows = [Record(base + number, 0, key, value, named) for number, value in enumerate(values)]
        data = build_batch(rows, base_offset=base, leader_epoch=0, control=control, **options)
        self.log.append([read_header(data)], data, 0)
        return base

    def find(self, size_max: int = 1_000_000, settings: ShareGroupSettings = SETTINGS) -> FoundRecords | None:
        return self.reader.find(size_max, settings, minimum_one_batch=True)

    def take(self, count: int = 1_000, size_max: int = 1_000_000) -> list[int]:
        """The offsets that a member gets, as a fetch hands them out."""
        self.share.delays.catch_up(self.env.now_ms())
        self.share.admit_due(self.env.now_ms())
        found = self.find(size_max)
        if found is None:
            return []
        acquired = self.share.acquire("m", found.ranges, count, self.env.monotonic_ms(), is_strict=True)
        self.reader.handed_out()
        return [offset for one in acquired for offset in range(one.first, one.last + 1)]

    async def _read_tier(self, _: Any, offset: int, size_max: int, *, committed_only: bool) -> TierRead | None:  # noqa: ARG002
        self.tier_reads.append(offset)
        await asyncio.sleep(0.5)
        return TierRead(memoryview(self.log.read(offset, size_max).read()), [])


class _View:
    """The partition as the reader sees it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.name = world.name
        self.log = world.log
        self.leader_epoch = 0
        self.is_leader = True

    @property
    def high_watermark(self) -> int:
        known = self._world.high_watermark
        return self.log.end_offset if known is None else known

    def read(self, offset: int, size_max: int, *, committed_only: bool, minimum_one_batch: bool) -> Any:  # noqa: ARG002
        world = self._world
        world.reads.append((offset, size_max))
        if world.failure is not None:
            raise world.failure
        if world.is_behind:
            return SimpleNamespace(read=bytes)
        if offset < world.local_start:
            raise moved_to_tier("orders-0", offset)
        return self.log.read(offset, size_max, minimum_one_batch=minimum_one_batch)


def play(path: Path, story: Callable[[World], Awaitable[None]], **options: Any) -> None:
    async def run(env: VirtualEnv) -> None:
        world = World(env, path, **options)
        try:
            await story(world)
        finally:
            world.log.close(clean=False)

    run_virtually(run)


def test_only_committed_records_are_found(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        assert world.find() is None
        for _ in range(3):
            world.write()
        world.high_watermark = 0
        assert world.find() is None
        assert world.reads == []
        world.high_watermark = 1
        found = world.find()
        assert found is not None
        assert found.ranges[0] == (0, 0)

    play(tmp_path, story)


def test_markers_are_passed_over_in_bounded_steps(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        markers = reading.SKIPS_MAX + 1
        for _ in range(markers):
            world.write(control=True, producer_id=5, producer_epoch=0, transactional=True)
        wanted = world.write()
        # One batch in each read.
        assert world.find(1) is None
        assert (world.share.start, world.went_on) == (reading.SKIPS_MAX, 0)
        await asyncio.sleep(0)
        assert world.went_on == 1
        found = world.find(1)
        assert found is not None
        assert found.ranges == [(wanted, wanted)]
        assert world.share.start == wanted

    play(tmp_path, story)


def test_records_of_aborted_transactions_are_not_found_by_groups_that_read_what_is_committed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        aborted = SimpleNamespace(producer_id=5, first_offset=0, last_offset=1)
        world.write(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
        world.write(transactional=True, producer_id=6, producer_epoch=0, base_sequence=0)

        asked: list[tuple[int, int]] = []

        class Known:
            def __len__(self) -> int:
                return 1

            def overlapping(self, start: int, end: int) -> list[Any]:
                asked.append((start, end))
                return [aborted]

        cast("Any", world.log).aborted = Known()
        found = world.find(settings=SETTINGS._replace(committed_only=True))
        assert found is not None
        assert found.ranges == [(1, 1)]
        assert asked == [(0, 2), (1, 2)]
        every = world.make(SharePartition(0, (), SETTINGS.partition)).find(99_999, SETTINGS, minimum_one_batch=True)
        assert every is not None
        assert every.ranges == [(0, 0), (1, 1)]

    play(tmp_path, story)


def test_delayed_records_are_had_when_they_are_due_and_the_others_before(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.write(2)
        world.write(3, due_ms=5_000)
        world.write(due_ms=4_000)
        world.write(2)
        assert world.take() == [0, 1, 6, 7]
        assert world.share.delays.count == 4
        assert world.take() == []
        await asyncio.sleep(4.5)
        assert world.take() == [5]
        await asyncio.sleep(1)
        # What was delayed is found in its places, not by reading on.
        world.reads.clear()
        assert world.take() == [2, 3, 4]
        assert world.reads == [(2, 1)]
        assert world.share.delays.count == 0

    play(tmp_path, story)


def test_delayed_records_of_one_batch_come_without_the_others(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.write(4, due_ms=1_000)
        later = world.write()
        assert world.take() == [later]
        await asyncio.sleep(2)
        assert world.take(2) == [0, 1]
        found = world.find()
        assert found is not None
        # What is out with a member is not in the piece.
        assert [one.offset for one in read_records(found.batches.data, 1 << 20)] == [2, 3]
        assert found.ranges == [(2, 3)]

    play(tmp_path, story)


def test_delayed_records_are_gathered_up_to_the_size_and_number_of_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PIECES_MAX", 3)

    async def story(world: World) -> None:
        for _ in range(6):
            world.write(due_ms=1_000)
            world.write()
        assert world.take() == [1, 3, 5, 7, 9, 11]
        await asyncio.sleep(2)
        world.share.admit_due(world.env.now_ms())
        found = world.find(1)
        assert found is not None
        # At least one, whatever its size.
        assert found.ranges == [(0, 0)]
        piece = len(found.batches.data)
        for size_max, ranges in ((piece, 1), (piece + 1, 2), (100 * piece, 3)):
            found = world.find(size_max)
            assert found is not None
            assert found.ranges == [(2 * number, 2 * number) for number in range(ranges)]

    play(tmp_path, story)


def test_a_delayed_record_that_is_gone_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        world.write(2, due_ms=1_000)
        world.write()
        assert world.take() == [2]
        await asyncio.sleep(2)
        thinned = reading.thinned
        # As if compaction had removed the first one.
        monkeypatch.setattr(
            reading, "thinned", lambda data, header, wanted, size_max: thinned(data, header, wanted - {0}, size_max)
        )
        assert world.take() == [1]
        monkeypatch.setattr(reading, "thinned", lambda *_: (b"", []))
        again = world.make(world.share)
        assert again.find(9_999, SETTINGS, minimum_one_batch=True) is None
        assert 0 not in {run.first for run in world.share.runs() if run.is_free}

    play(tmp_path, story)


def test_a_single_record_is_read_once_with_its_neighbours(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.write()
        world.write(3)
        world.write()
        for offset in (1, 3, 2):
            record = await world.reader.record(offset)
            assert record is not None
            assert record.value == b"%d" % offset
        assert world.reads == [(1, 1)]
        record = await world.reader.record(4)
        assert record is not None
        assert record.offset == 4
        record = await world.reader.record(0)
        assert record is not None
        assert record.offset == 0
        assert [offset for offset, _ in world.reads] == [1, 4, 0]

    play(tmp_path, story)


def test_a_single_record_that_is_gone_is_none(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.write()
        assert await world.reader.record(1) is None
        world.failure = ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "deleted")
        assert await world.reader.record(5) is None
        world.failure = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "broken")
        with pytest.raises(ApiError, match="broken"):
            await world.reader.record(5)

    play(tmp_path, story)


def test_a_single_record_in_object_storage_is_waited_for(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for _ in range(3):
            world.write()
        world.local_start = 2
        record = await world.reader.record(1)
        assert record is not None
        assert (record.offset, world.tier_reads, world.env.passed_ms()) == (1, [1], 500)
        world.failure = moved_to_tier("orders-0", 0)
        reader = world.make(world.share)
        world.tier = None
        cast("Any", reader)._window._load = lambda *_: asyncio.sleep(0.01)
        cast("Any", reader)._window._loading = asyncio.ensure_future(asyncio.sleep(0.01))
        with pytest.raises(ApiError, match="too long"):
            await reader.record(0)

    play(tmp_path, story, is_tiered=True)


def test_a_read_that_fails_is_an_error_and_one_in_object_storage_is_repeated(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for _ in range(3):
            world.write()
        world.failure = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "broken")
        with pytest.raises(ApiError, match="broken"):
            world.find()
        world.failure, world.local_start = None, 2
        assert world.find() is None
        await asyncio.sleep(1)
        assert world.went_on == 1
        found = world.find()
        assert found is not None
        assert found.ranges[0] == (0, 0)
        assert world.tier_reads == [0]

    play(tmp_path, story, is_tiered=True)


def loading(end: int, due_ms: int = -1) -> SharePartition:
    """A share-partition as a new leader loads it, with what was looked at before `end`."""
    share = SharePartition(0, (), SETTINGS.partition, delays=Delays(0, due_ms, -1), now_ms=0)
    share.end = end
    return share


def test_a_new_leader_finds_the_delayed_records_that_were_looked_at_before(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.write(2)
        world.write(due_ms=3_000)
        world.write(2, due_ms=9_000)
        unseen = world.write(due_ms=5_000)
        share = loading(unseen, WALL_START_MS + 4_000)
        reader = world.make(share)
        world.reads.clear()
        await reader.load(0, SETTINGS, lambda: False)
        # That of three seconds was let in before.
        assert (share.delays.count, len(share.delays)) == (2, 2)
        assert share.delays.next_due_ms == WALL_START_MS + 9_000
        assert world.reads == [(0, reading.DELAYS_BYTES_MAX)]

    play(tmp_path, story)


def test_a_load_begins_where_the_log_does_and_ends_with_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for _ in range(4):
            world.write(due_ms=9_000)
        world.log.advance_start_offset(2)
        share = loading(100)
        await world.make(share).load(0, SETTINGS, lambda: False)
        assert share.delays.count == 2
        assert world.reads[0][0] == 2
        world.reads.clear()
        share = loading(3)
        await world.make(share).load(0, SETTINGS, lambda: False)
        assert share.delays.count == 1
        share = loading(100)
        await world.make(share).load(0, SETTINGS, lambda: True)
        assert share.delays.count == 0

    play(tmp_path, story)


def test_a_load_waits_for_what_cannot_be_read_yet(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.write(due_ms=9_000)
        share = loading(1)
        world.is_behind = True
        work = asyncio.ensure_future(world.make(share).load(0, SETTINGS, lambda: False))
        await asyncio.sleep(0.12)
        # Now, and every fifty milliseconds.
        assert (len(world.reads), share.delays.count) == (3, 0)
        world.is_behind = False
        await work
        assert share.delays.count == 1

    play(tmp_path, story)


def test_a_load_that_fails_can_be_repeated(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.write(due_ms=9_000)
        share = loading(1)
        world.failure = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "broken")
        reader = world.make(share)
        with pytest.raises(ApiError, match="broken"):
            await reader.load(0, SETTINGS, lambda: False)
        assert share.delays._found is None
        world.failure = None
        await reader.load(0, SETTINGS, lambda: False)
        assert share.delays.count == 1

    play(tmp_path, story)


def test_others_have_half_of_the_time_during_a_long_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "DELAYS_BYTES_MAX", 1)

    async def story(world: World) -> None:
        for _ in range(3):
            world.write(due_ms=9_000)
        clock = [0]
        world.env.monotonic_ms = lambda: clock[0]  # type: ignore[method-assign]
        share = loading(3)
        reader = world.make(share)
        read = reader._read

        def slow(*arguments: Any, **options: Any) -> Any:
            # A read takes ten milliseconds.
            clock[0] += 10
            return read(*arguments, **options)

        reader._read = slow  # type: ignore[method-assign]
        before_s = asyncio.get_running_loop().time()
        await reader.load(0, SETTINGS, lambda: False)
        assert round((asyncio.get_running_loop().time() - before_s) * 1000) == 30
        assert share.delays.count == 3

    play(tmp_path, story)


def test_a_refill_offers_what_still_waits(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for number in range(4):
            world.write(due_ms=1_000 * (number + 1))
        small = SETTINGS._replace(partition=replace(SETTINGS.partition, delays_max=1))
        share = SharePartition(0, (), small.partition, delays=Delays(0, -1, -1), now_ms=0)
        share.end = 4
        reader = world.make(share)
        await reader.load(0, small, lambda: False)
        assert (share.delays.count, len(share.delays)) == (4, 1)
        assert share.delays.take(WALL_START_MS + 1_000, 9) == [0]
        assert share.delays.needs_refill
        await reader.refill(share.delays.start or 0, small, lambda: False)
        assert share.delays.next_due_ms == WALL_START_MS + 2_000
        assert share.delays.count == 3

    play(tmp_path, story)
