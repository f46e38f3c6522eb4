"""What a data directory remembers about its partitions' logs."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from threading import Event

import pytest

from penstock.model.ids import TopicPartition
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.checkpoints import CheckpointWriter
from penstock.runtime.logs.directories import LogDirectory, open_directory
from penstock.storage.checkpoint import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from penstock.storage.files import OsFilesystem, StorageError

PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


class Disk(OsFilesystem):
    """Counts the replaced files; `error` is raised instead while it is set, and `stall` is waited for."""

    def __init__(self) -> None:
        self.replaced: list[str] = []
        self.error: StorageError | None = None
        self.stall: Event | None = None

    def replace_file(self, path: Path, data: bytes | bytearray | memoryview) -> None:
        if self.stall is not None:
            assert self.stall.wait(10)
        if self.error is not None:
            raise self.error
        super().replace_file(path, data)
        self.replaced.append(path.name)


class World:
    """The checkpoints of one directory."""

    def __init__(self, path: Path, env: SystemEnv) -> None:
        self.env = env
        self.disk = Disk()
        env.filesystem = self.disk
        self.path = path
        for name in (PARTITION, OTHER):
            self.disk.make_directory(path / str(name))
        self.failures: list[StorageError] = []
        self.starts: dict[TopicPartition, int] = {}
        self.directory = self.open()
        self.writer = CheckpointWriter(env, self.directory, self.fail, self.started)

    def open(self) -> LogDirectory:
        return open_directory(self.env, self.path, bytes(16))

    def fail(self, directory: LogDirectory, error: StorageError) -> None:
        directory.failure = error
        self.failures.append(error)

    def started(self, _: LogDirectory, starts: Mapping[TopicPartition, int]) -> None:
        self.starts.update(starts)


def in_world(path: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        env = SystemEnv()
        try:
            await story(World(path, env))
        finally:
            await env.close()

    asyncio.run(run())


def test_a_truncation_lowers_the_checkpoints(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.writer.note(PARTITION, 90, 0, 80)
        world.writer.note_clean(PARTITION, 70)
        await world.writer.write()
        world.writer.lower(PARTITION, 40)
        await world.writer.write()
        again = world.open()
        assert (again.recovery_points, again.high_watermarks, again.clean_offsets) == ({PARTITION: 40},) * 3

    in_world(tmp_path, story)


def test_only_files_that_changed_are_written_and_requests_share_a_write(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.writer.note(PARTITION, 90, 5, 80)
        await asyncio.gather(*(world.writer.write() for _ in range(10)))
        assert sorted(world.disk.replaced) == sorted([RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS])
        assert world.starts == {PARTITION: 5}
        world.disk.replaced.clear()
        world.writer.note(PARTITION, 90, 7, 80)
        await world.writer.write()
        assert world.disk.replaced == [LOG_START_OFFSETS]
        assert world.starts == {PARTITION: 7}
        world.writer.note_clean(PARTITION, 3)
        await world.writer.write()
        assert world.disk.replaced == [LOG_START_OFFSETS, CLEANER_OFFSETS]

    in_world(tmp_path, story)


def test_a_stalled_disk_does_not_hold_up_the_loop_and_a_later_change_is_written_after_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.disk.stall = Event()
        world.writer.note(PARTITION, 90, 0, 80)
        first = world.writer.write()
        await asyncio.sleep(0)
        world.writer.lower(PARTITION, 40)
        second = world.writer.write()
        await asyncio.sleep(0)
        assert not first.done()
        world.disk.stall.set()
        await second
        assert world.open().recovery_points == {PARTITION: 40}

    in_world(tmp_path, story)


def test_an_entry_that_was_forgotten_is_known_until_the_file_is_without_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.writer.note(PARTITION, 90, 0, 80)
        await world.writer.write()
        world.writer.forget(PARTITION)
        assert world.writer.has_stale(PARTITION)
        await world.writer.write()
        assert not world.writer.has_stale(PARTITION)
        assert world.open().recovery_points == {}

    in_world(tmp_path, story)


def test_what_has_no_directory_any_more_is_forgotten(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.writer.note(PARTITION, 90, 0, 80)
        world.writer.note(OTHER, 30, 0, 20)
        await world.writer.write()
        world.disk.remove_directory(tmp_path / str(PARTITION))
        writer = CheckpointWriter(world.env, world.open(), world.fail, world.started)
        assert writer.has_stale(PARTITION)
        await writer.write()
        assert world.open().recovery_points == {OTHER: 30}

    in_world(tmp_path, story)


def test_a_full_disk_is_reported_and_the_write_is_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        world.disk.error = StorageError("no space", errno.ENOSPC)
        world.writer.note(PARTITION, 90, 0, 80)
        with pytest.raises(StorageError):
            await world.writer.write()
        world.disk.error = None
        await world.writer.write()
        assert world.open().recovery_points == {PARTITION: 90}
        assert not world.failures

    in_world(tmp_path, story)
    assert "will be written again" in caplog.text


def test_a_broken_disk_fails_the_directory(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.disk.error = error = StorageError("input/output error", errno.EIO)
        world.writer.note(PARTITION, 90, 0, 80)
        writes = [world.writer.write() for _ in range(3)]
        assert await asyncio.gather(*writes, return_exceptions=True) == [error] * 3
        assert world.failures == [error]
        world.disk.error = None
        with pytest.raises(StorageError):
            await world.writer.write()
        assert world.disk.replaced == []

    in_world(tmp_path, story)


def test_a_damaged_checkpoint_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        world.disk.replace_file(tmp_path / CLEANER_OFFSETS, b"nonsense")
        assert world.open().clean_offsets == {}

    caplog.set_level(logging.WARNING)
    in_world(tmp_path, story)
    assert f"{CLEANER_OFFSETS} is damaged and ignored" in caplog.text
