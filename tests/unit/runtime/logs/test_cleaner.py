"""The shell of compaction: which log it takes, what it notes, and what it does when a cleaning goes wrong."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.config.topic import TopicSettings
from penstock.core.metadata.image import PartitionState
from penstock.core.replica.leader import LeaderState
from penstock.model.ids import TopicPartition
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs import cleaner as cleaner_module
from penstock.runtime.logs.checkpoints import CheckpointWriter
from penstock.runtime.logs.cleaner import Cleaner
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.replication.following import starting_again, starting_from_tier
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.replica_store import log_settings
from penstock.runtime.replication.tier_start import TierStart
from penstock.storage.checkpoint import CLEANER_OFFSETS, RECOVERY_POINTS, read_offsets
from penstock.storage.compaction.clean import CompactionError, CompactionJob
from penstock.storage.files import OsFilesystem, StorageError
from penstock.storage.log import Log
from penstock.storage.segment_copy import TierHistory
from penstock.storage.segments import Segments
from penstock.wire.records import Record, build_batch, read_records, split_batches

COMPACTED = TopicSettings(
    cleanup_policy=frozenset(("compact",)), segment_bytes=400, delete_retention_ms=1000, index_interval_bytes=100
)
NODE = SimpleNamespace(
    log_cleaner_enable=True,
    log_cleaner_backoff_ms=5,
    log_cleaner_dedupe_buffer_size=1 << 20,
    log_cleaner_io_max_bytes_per_second=1e308,
)


class SlowEnv(SystemEnv):
    """The real world with a clock that stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms


class FewPartitions:
    """What the cleaner uses of the partitions."""

    def __init__(self, env: SlowEnv, path: Path) -> None:
        self.env = env
        self.directories = [LogDirectory(path, bytes(16))]
        self.moved_listeners: list[Callable[[Partition], object]] = []
        self.listeners: list[Callable[[Partition], object]] = []
        self.by_name: dict[TopicPartition, Partition] = {}
        self.failures: list[StorageError] = []
        self.moving: set[TopicPartition] = set()
        self.writer = CheckpointWriter(env, self.directories[0], self.fail_directory, lambda *_: None)

    def checkpoints(self, directory: LogDirectory) -> CheckpointWriter:
        assert directory is self.directories[0]
        return self.writer

    def note_progress(self, partition: Partition) -> CheckpointWriter:
        self.writer.note(partition.name, partition.log.flushed_offset, partition.log.start_offset, 0)
        return self.writer

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.by_name.values())

    def get(self, topic: str, partition: int) -> Partition | None:
        return self.by_name.get(TopicPartition(topic, partition))

    def home(self, partition: Partition) -> LogDirectory:
        assert partition.name in self.by_name
        return self.directories[0]

    def on_removed(self, listener: Callable[[Partition], object]) -> None:
        self.listeners.append(listener)

    def on_moved(self, listener: Callable[[Partition], object]) -> None:
        self.moved_listeners.append(listener)

    def fail_directory(self, directory: LogDirectory, error: StorageError) -> None:
        assert directory is self.directories[0]
        self.failures.append(error)

    def add(self, topic: str, settings: TopicSettings = COMPACTED) -> Partition:
        name = TopicPartition(topic, 0)
        path = self.directories[0].path / str(name)
        log = Log.open(
            self.env.filesystem, path, log_settings(settings), recovery_point=0, clean=False, now_ms=self.env.time_ms
        )
        state = LeaderState(1, 0, (1,), (1,), log.end_offset, 0, now_ms=0)
        partition = Partition(self.env, name, bytes(16), log, state, 1, settings, 1 << 20, lambda _: None)
        self.by_name[name] = partition
        self.directories[0].partitions.add(name)
        return partition

    def remove(self, partition: Partition) -> None:
        del self.by_name[partition.name]
        self.directories[0].partitions.discard(partition.name)
        partition.log.delete_directory(bytes(16))
        self.writer.forget(partition.name)
        self.writer.write()
        for listener in self.listeners:
            listener(partition)


class World:
    """A cleaner over a few partitions."""

    def __init__(self, path: Path) -> None:
        self.env = SlowEnv()
        self.partitions = FewPartitions(self.env, path)
        self.cleaner = self.new_cleaner()

    def new_cleaner(self, **settings: Any) -> Cleaner:
        node = SimpleNamespace(**{**vars(NODE), **settings})
        return Cleaner(self.env, cast(Any, self.partitions), lambda: cast(Any, node))

    def fill(self, partition: Partition, batches: int, keys: int = 2, value: bytes | None = b"value") -> None:
        for number in range(batches):
            record = Record(0, self.env.time_ms, b"k%d" % (number % keys), value)
            partition.append(bytearray(build_batch([record])), self.env.time_ms)

    def offsets(self, partition: Partition) -> list[int]:
        log, found, offset = partition.log, [], partition.log.start_offset
        while data := log.read(offset, 1 << 20).read():
            for position, header in split_batches(data, 1 << 20):
                found += [record.offset for record in read_records(data, 1 << 20, position)]
                offset = header.next_offset
        return found

    async def checkpoint(self) -> dict[TopicPartition, int]:
        await self.partitions.writer.write()
        return read_offsets(self.env.filesystem, self.partitions.directories[0].path / CLEANER_OFFSETS)


def in_world(path: Path, test: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World(path)
        try:
            await test(world)
        finally:
            await world.env.close()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
def in_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clean in a thread, which is quicker to start."""

    async def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)


def test_a_process_cleans_and_the_checkpoint_has_the_position(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        newest = partition.log.segment_facts()[-1].base_offset
        assert await world.cleaner.clean_dirtiest()
        assert world.offsets(partition) == list(range(newest - 2, 40))
        assert await world.checkpoint() == {partition.name: newest}
        assert not await world.cleaner.clean_dirtiest()

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_a_thread_does_where_no_process_starts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        assert await world.cleaner.clean_dirtiest()
        assert len(world.offsets(partition)) < 12

    in_world(tmp_path, test)
    assert "cannot start a process" in caplog.text


@pytest.mark.usefixtures("in_thread")
def test_only_compacted_logs_are_taken_and_the_dirtiest_first(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        plain = world.partitions.add("plain", replace(COMPACTED, cleanup_policy=frozenset(("delete",))))
        half, dirty = world.partitions.add("half"), world.partitions.add("dirty")
        for partition in (plain, half, dirty):
            world.fill(partition, 40, keys=100)
        before = plain.log.size_bytes
        middle = half.log.segment_facts()[1].base_offset
        world.partitions.writer.note_clean(half.name, middle)
        world.cleaner = world.new_cleaner()
        assert await world.cleaner.clean_dirtiest()
        assert set(await world.checkpoint()) == {dirty.name, half.name}
        assert (await world.checkpoint())[half.name] == middle
        assert await world.cleaner.clean_dirtiest()
        assert (await world.checkpoint())[half.name] > middle
        assert not await world.cleaner.clean_dirtiest()
        assert plain.log.size_bytes == before

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_it_runs_in_the_background_and_can_be_disabled(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        world.new_cleaner(log_cleaner_enable=False).start()
        await asyncio.sleep(0.05)
        assert len(world.offsets(partition)) == 40
        world.cleaner.start()
        for batches in (0, 40):
            world.fill(partition, batches)
            await until(lambda: len(world.offsets(partition)) <= 12)

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_a_tombstone_goes_in_time_although_nothing_is_written(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 1, value=None)
        partition.log.roll(world.env.time_ms)
        assert await world.cleaner.clean_dirtiest()
        assert not await world.cleaner.clean_dirtiest()
        world.env.time_ms += 999
        assert not await world.cleaner.clean_dirtiest()
        world.env.time_ms += 1
        assert world.offsets(partition) == [0]
        assert await world.cleaner.clean_dirtiest()
        assert world.offsets(partition) == []
        assert not await world.cleaner.clean_dirtiest()

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_the_longest_lag_rolls_an_idle_segment_and_forces_a_cleaning(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        settings = replace(COMPACTED, max_compaction_lag_ms=500, min_cleanable_dirty_ratio=1.0)
        partition = world.partitions.add("orders", settings)
        world.fill(partition, 4)
        assert not await world.cleaner.clean_dirtiest()
        world.env.time_ms += 501
        assert await world.cleaner.clean_dirtiest()
        assert world.offsets(partition) == [2, 3]
        assert await world.checkpoint() == {partition.name: 4}

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_young_records_and_undecided_ones_wait(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        young = world.partitions.add("young", replace(COMPACTED, min_compaction_lag_ms=100))
        world.fill(young, 40)
        undecided = world.partitions.add("undecided")
        open_transaction = build_batch(
            [Record(0, world.env.time_ms, b"k", b"v")],
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        undecided.append(bytearray(open_transaction), world.env.time_ms)
        world.fill(undecided, 40)
        assert not await world.cleaner.clean_dirtiest()
        world.env.time_ms += 100
        assert await world.cleaner.clean_dirtiest()
        assert set(await world.checkpoint()) == {young.name}
        assert not await world.cleaner.clean_dirtiest()

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_a_damaged_log_is_set_aside_and_the_others_continue(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World) -> None:
        damaged, sound = world.partitions.add("damaged"), world.partitions.add("sound")
        world.fill(damaged, 40)
        world.fill(sound, 40)
        path = damaged.log.directory / "00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(data)
        cleaned = [await world.cleaner.clean_dirtiest() for _ in range(3)]
        assert sorted(cleaned) == [False, False, True]
        assert set(world.cleaner.uncleanable) == {damaged.name}
        assert set(await world.checkpoint()) == {sound.name}
        assert not world.partitions.failures

    in_world(tmp_path, test)
    assert [record.levelno for record in caplog.records if "damaged-0" in record.message] == [logging.ERROR]


def work_that(*steps: Callable[[CompactionJob], None]) -> Any:
    async def work(_: object, job: CompactionJob) -> AsyncGenerator[Any, None]:
        for step in steps:
            step(job)
        return
        yield

    return work


def test_a_passing_problem_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_up(_: CompactionJob) -> None:
        raise CompactionError("the disk is full", is_passing=True)

    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        with monkeypatch.context() as patched:
            patched.setattr(cleaner_module, "work", work_that(fill_up))
            assert not await world.cleaner.clean_dirtiest()
        assert not world.cleaner.uncleanable
        assert await world.cleaner.clean_dirtiest()

    in_world(tmp_path, test)


def test_a_directory_whose_disk_the_cleaner_finds_broken_goes_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(_: CompactionJob) -> None:
        raise CompactionError.of(StorageError("input/output error", 5))

    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        monkeypatch.setattr(cleaner_module, "work", work_that(break_down))
        assert not await world.cleaner.clean_dirtiest()
        assert [error.message for error in world.partitions.failures] == ["input/output error"]
        assert not world.cleaner.uncleanable

    in_world(tmp_path, test)


def test_a_process_that_dies_costs_one_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        monkeypatch.setattr(cleaner_module, "MODULE", "penstock.no_such_module")
        assert not await world.cleaner.clean_dirtiest()
        assert world.cleaner.uncleanable == {partition.name: "the process ended with code 1"}
        assert len(world.offsets(partition)) == 40

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_a_topic_that_is_deleted_meanwhile_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        begin_swap = Log.begin_swap

        def delete_first(log: Log, *args: Any) -> Any:
            world.partitions.remove(partition)
            return begin_swap(log, *args)

        monkeypatch.setattr(Log, "begin_swap", delete_first)
        assert not await world.cleaner.clean_dirtiest()
        assert not world.cleaner.uncleanable
        assert not world.partitions.failures

    in_world(tmp_path, test)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.usefixtures("in_thread")
def test_a_directory_whose_renames_fail_goes_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StorageError("input/output error", 5)

    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        partition.log.flush()
        await world.partitions.note_progress(partition).write()
        monkeypatch.setattr(OsFilesystem, "sync_directory", fail)
        assert not await world.cleaner.clean_dirtiest()
        assert [error.message for error in world.partitions.failures] == ["input/output error"]

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
@pytest.mark.parametrize("failing", [(0, 1), (1, 2)])
def test_a_swap_without_descriptors_is_finished_when_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: tuple[int, ...]
) -> None:
    """The segment kept the suffix of a swap: no later cleaning found it under its name."""
    monkeypatch.setattr(cleaner_module, "RETRY_S", 0.01)
    synced, calls = OsFilesystem.sync_directory, iter(range(100))

    def sync_directory(filesystem: OsFilesystem, path: Path) -> None:
        if path.name == "orders-0" and next(calls) in failing:
            raise StorageError("too many open files", errno.EMFILE)
        synced(filesystem, path)

    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        partition.log.flush()
        monkeypatch.setattr(OsFilesystem, "sync_directory", sync_directory)
        assert await world.cleaner.clean_dirtiest()
        assert not [name for name in world.env.filesystem.list_directory(partition.log.directory) if ".swap" in name]

    in_world(tmp_path, test)


@pytest.mark.parametrize("tiered", [False, True])
def test_a_follower_begins_anew_after_a_swap_that_was_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, tiered: bool
) -> None:
    """Every step finds the log empty where it begins."""
    settled = iter((True, False))
    monkeypatch.setattr(Segments, "settle_swap", lambda _: next(settled, False))

    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 4)
        partition.make_follower(PartitionState((1, 2), (2,), 2, 1, 1, (bytes(16),) * 2))
        start = TierStart(100, 100, TierHistory((), ()))
        steps = starting_from_tier(partition, start, 0) if tiered else starting_again(partition, 100, 0)
        for _ in steps:
            partition.log.flush()
            assert (partition.log.start_offset, partition.log.end_offset) == (100, 100)
        log = partition.log
        assert (log.start_offset, log.end_offset, partition.high_watermark) == (100, 100, 100)

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_a_topic_of_the_same_name_starts_dirty(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        assert await world.cleaner.clean_dirtiest()
        world.partitions.remove(partition)
        assert not await world.checkpoint()
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        assert await world.cleaner.clean_dirtiest()

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
@pytest.mark.parametrize("failing", [1, 2])
def test_a_log_that_lacks_a_file_does_not_end_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        facts, calls = Log.segment_facts, iter(range(100))

        def segment_facts(log: Log) -> Any:
            if next(calls) + 1 == failing:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", "00000000000000000000.log")
            return facts(log)

        monkeypatch.setattr(Log, "segment_facts", segment_facts)
        assert not await world.cleaner.clean_dirtiest()
        assert await world.cleaner.clean_dirtiest()

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_what_is_no_longer_recorded_as_clean_is_cleaned_again(tmp_path: Path) -> None:
    """The cleaner had a copy of its own, which went another way."""

    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        assert await world.cleaner.clean_dirtiest()
        assert not await world.cleaner.clean_dirtiest()
        assert world.partitions.writer.lower(partition.name, 1)
        assert await world.cleaner.clean_dirtiest()

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_a_log_is_not_compacted_while_it_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is what was being cleaned when the move began swapped in."""

    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        make_durable = Cleaner._make_durable

        async def move_first(*args: Any) -> bool:
            world.partitions.moving.add(partition.name)
            return await make_durable(*args)

        with monkeypatch.context() as patched:
            patched.setattr(Cleaner, "_make_durable", move_first)
            assert not await world.cleaner.clean_dirtiest()
        assert not await world.cleaner.clean_dirtiest()
        assert len(world.offsets(partition)) == 40
        world.partitions.moving.clear()
        assert await world.cleaner.clean_dirtiest()

    in_world(tmp_path, test)


def test_a_log_that_came_from_another_directory_is_dirty(tmp_path: Path) -> None:
    """It was copied while the other one was being cleaned: some of it may be as it was before."""

    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        assert await world.cleaner.clean_dirtiest()
        assert await world.checkpoint()
        for listener in world.partitions.moved_listeners:
            listener(partition)
        assert not await world.checkpoint()

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_what_is_cleaned_is_noted_as_durable_before(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        partition = world.partitions.add("orders")
        world.fill(partition, 40)
        assert await world.cleaner.clean_dirtiest()
        kept = world.offsets(partition)
        assert len(kept) < 40
        recovery_point = read_offsets(world.env.filesystem, tmp_path / RECOVERY_POINTS)[partition.name]
        assert recovery_point >= (await world.checkpoint())[partition.name]
        partition.log.close(clean=False)
        log = Log.open(
            world.env.filesystem,
            partition.log.directory,
            partition.log.settings,
            recovery_point=recovery_point,
            clean=False,
            now_ms=0,
        )
        assert log.end_offset == 40, "a power cut later the gaps are known to be compaction's"

    in_world(tmp_path, test)


@pytest.mark.usefixtures("in_thread")
def test_what_replaces_a_truncated_part_is_not_clean(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        partition = world.partitions.add("users")
        world.fill(partition, 60)
        while await world.cleaner.clean_dirtiest():
            pass
        clean_offset = (await world.checkpoint())[partition.name]
        assert clean_offset > 10
        # It follows a leader that has less, and leads after it.
        partition.make_follower(PartitionState((1, 2), (2,), 2, 1, 1, (bytes(16),) * 2))
        partition.log.truncate_to(10)
        assert world.partitions.writer.lower(partition.name, 10)
        partition.state.high_watermark = partition.log.end_offset
        partition.make_leader(1, PartitionState((1,), (1,), 1, 2, 2, (bytes(16),)), 0)
        plan = world.cleaner._plan(partition)
        assert plan is None or plan.first_dirty_offset <= 10
        world.fill(partition, 60)
        plan = world.cleaner._plan(partition)
        assert plan is not None
        assert plan.first_dirty_offset <= 10
        while await world.cleaner.clean_dirtiest():
            pass
        plan = world.cleaner._plan(partition)
        assert plan is None or plan.first_dirty_offset > 10, "it is clean again"

    in_world(tmp_path, test)
