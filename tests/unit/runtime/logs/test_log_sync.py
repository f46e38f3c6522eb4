"""Group commit: one sync for many, none acknowledged after a failure, and nothing begun on a log that is going."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.logs.sync import LogSync
from penstock.storage.files import File, OsFilesystem, StorageError
from penstock.storage.log import Log, LogSettings
from penstock.wire.records import Record, build_batch, split_batches


class SlowDisk:
    """An Env whose blocking work ends when the test decides."""

    def __init__(self) -> None:
        self.time_ms = 0
        self.work: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    def monotonic_ms(self) -> int:
        return self.time_ms

    def run_blocking(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.work.append((work, future))
        return future

    def sync(self, file: File) -> asyncio.Future[None]:
        return self.run_blocking(file.sync)

    async def finish(self, error: Exception | None = None) -> None:
        work, future = self.work.pop(0)
        if error is None:
            future.set_result(work())
        else:
            future.set_exception(error)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


class World:
    def __init__(self, directory: Path) -> None:
        self.env = SlowDisk()
        self.log = Log.open(OsFilesystem(), directory, LogSettings(), recovery_point=0, clean=False, now_ms=0)
        self.failures: list[StorageError] = []
        self.sync = LogSync(self.env, self.log, self.failures.append)  # type: ignore[arg-type]

    def append(self) -> asyncio.Future[None]:
        """Append a record and ask for its durability."""
        self.write()
        return self.sync.durable(self.log.end_offset)

    def write(self) -> None:
        offset = self.log.end_offset
        data = build_batch([Record(offset, 0, None, b"x")], base_offset=offset, leader_epoch=0)
        self.log.append([header for _, header in split_batches(data, len(data))], data, 0)


def test_requests_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path)
        first = [world.append() for _ in range(3)]
        await asyncio.sleep(0)
        assert len(world.env.work) == 1
        later = [world.append() for _ in range(5)]
        await asyncio.sleep(0)
        assert len(world.env.work) == 1, "one sync at a time"
        await world.env.finish()
        assert all(future.done() for future in first)
        assert not any(future.done() for future in later)
        assert len(world.env.work) == 1, "the next one starts at once"
        await world.env.finish()
        assert all(future.done() and future.exception() is None for future in later)
        assert world.sync.syncs == 2
        assert world.log.flushed_offset == 8

    asyncio.run(check())


def test_what_is_durable_already_needs_no_sync(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path)
        world.append()
        await asyncio.sleep(0)
        await world.env.finish()
        assert world.sync.durable(1).done()
        assert world.env.work == []

    asyncio.run(check())


@pytest.mark.parametrize("error", [StorageError("an input/output error"), RuntimeError("a surprise")])
def test_a_failed_sync_fails_the_log_and_all_waiting_requests(tmp_path: Path, error: Exception) -> None:
    async def check() -> None:
        world = World(tmp_path)
        first = world.append()
        await asyncio.sleep(0)
        second = world.append()
        await world.env.finish(error)
        for future in (first, second):
            assert isinstance(future.exception(), StorageError)
        assert len(world.failures) == 1
        assert world.log.is_failed
        assert world.env.work == [], "it was tried again"
        late = world.sync.durable(2)
        await asyncio.sleep(0)
        assert isinstance(late.exception(), StorageError)

    asyncio.run(check())


def test_a_deleted_log_fails_its_waiters_and_nothing_else(tmp_path: Path) -> None:
    """Neither the sync that runs nor the one that was asked for may take the directory offline."""

    async def check() -> None:
        world = World(tmp_path / "a-0")
        first = world.append()
        await asyncio.sleep(0)
        second = world.append()
        world.sync.abandon()
        world.log.delete_directory(bytes(16))
        for future in (first, second):
            error = future.exception()
            assert isinstance(error, ApiError)
            assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await world.env.finish()
        assert world.failures == []
        world.sync.request()
        await asyncio.sleep(0)
        assert world.failures == []

    asyncio.run(check())


def test_a_sync_requested_while_one_runs_follows_it(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path)
        world.append()
        await asyncio.sleep(0)
        world.write()
        world.sync.request()
        await world.env.finish()
        assert world.log.flushed_offset == 1, "the first sync began before the second record came"
        await world.env.finish()
        assert world.log.flushed_offset == 2
        assert not world.env.work, "a third was not requested"

    asyncio.run(check())


def test_the_age_of_a_sync_counts_from_the_last_one(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path)
        world.env.time_ms = 1_000
        assert world.sync.is_older_than(1_000)
        world.append()
        await asyncio.sleep(0)
        await world.env.finish()
        assert not world.sync.is_older_than(1_000)
        world.env.time_ms = 2_000
        assert world.sync.is_older_than(1_000)

    asyncio.run(check())


def test_what_is_owed_is_done_before_anything_counts_as_durable(tmp_path: Path) -> None:
    """A log that took another one's place is durable under its new name only then, though all its bytes are."""

    async def story() -> None:
        world = World(tmp_path / "t-0")
        world.write()
        world.log.flush()
        done: list[bool] = []
        world.sync.owe(lambda: done.append(True))
        waiting = world.sync.durable(1)
        await asyncio.sleep(0)
        assert not waiting.done()
        later = world.sync.durable(1)
        assert not later.done()
        await world.env.finish()
        assert done == [True]
        assert waiting.done()
        assert later.done()
        assert world.sync.durable(1).done()

    asyncio.run(story())


def test_those_who_wait_for_a_log_are_served_by_the_one_that_takes_its_place(tmp_path: Path) -> None:
    async def story() -> None:
        former, world = World(tmp_path / "t-0"), World(tmp_path / "u-0")
        waiting = former.append()
        await asyncio.sleep(0)
        world.write()
        world.sync.take_over(former.sync)
        # The former log's sync comes too late, and may have failed.
        await former.env.finish(StorageError("gone"))
        assert not waiting.done()
        assert former.failures == []
        await asyncio.sleep(0)
        await world.env.finish()
        assert waiting.done()
        assert waiting.exception() is None

    asyncio.run(story())


def test_a_sync_that_finds_a_file_gone_fails_the_log_and_those_who_wait(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path)
        world.write()
        world.log.roll(0)
        # Its descriptors went to other logs, and the file was removed before it was opened again.
        world.log.close_files()
        (tmp_path / "00000000000000000000.log").unlink()
        waiting, barrier = world.append(), world.sync.barrier()
        with pytest.raises(StorageError, match="is gone"):
            await asyncio.wait_for(asyncio.shield(waiting), 5)
        with pytest.raises(StorageError):
            await barrier
        assert world.log.is_failed
        assert len(world.failures) == 1

    asyncio.run(check())


def test_a_clean_close_waits_for_the_disk_off_the_loop(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path)
        world.write()
        closing = asyncio.ensure_future(world.sync.close())
        await asyncio.sleep(0)
        assert not closing.done()
        assert len(world.env.work) == 1
        await world.env.finish()
        await closing
        assert (world.log.flushed_offset, world.log.is_failed) == (1, True), "it is closed"
        again = Log.open(OsFilesystem(), tmp_path, LogSettings(), recovery_point=1, clean=True, now_ms=0)
        assert (again.end_offset, again.recovery.segments_scanned) == (1, 0)

    asyncio.run(check())


def test_a_clean_close_whose_sync_fails_is_reported_and_fails_the_log(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path)
        world.write()
        closing = asyncio.ensure_future(world.sync.close())
        await asyncio.sleep(0)
        await world.env.finish(StorageError("an input/output error"))
        with pytest.raises(StorageError, match="input/output"):
            await closing
        assert world.log.is_failed
        assert world.log.flushed_offset == 0

    asyncio.run(check())


def test_a_log_that_is_deleted_while_it_is_closed_is_left_alone(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path / "log")
        world.write()
        closing = asyncio.ensure_future(world.sync.close())
        await asyncio.sleep(0)
        world.sync.abandon()
        world.log.delete_directory(bytes(16))
        await world.env.finish()
        await closing
        assert not (tmp_path / "log").exists()

    asyncio.run(check())


def test_a_sync_whose_directory_found_no_descriptor_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory was not opened, so nothing that it has can be lost; what waits for it goes on to wait."""

    async def check() -> None:
        world = World(tmp_path / "a-0")
        # The first time is for the epochs, which the next sync writes, too.
        right, missing = OsFilesystem.sync_directory, [errno.EMFILE, errno.EMFILE]

        def sync_directory(filesystem: OsFilesystem, path: Path) -> None:
            if missing:
                raise StorageError("Too many open files", missing.pop())
            right(filesystem, path)

        monkeypatch.setattr(OsFilesystem, "sync_directory", sync_directory)
        monkeypatch.setattr("penstock.runtime.logs.sync.RETRY_S", 0.0)
        appended, barrier = world.append(), world.sync.barrier()
        await asyncio.sleep(0)
        await world.env.finish()
        assert (missing, world.failures, world.log.is_failed) == ([], [], False)
        assert not appended.done()
        assert not barrier.done()
        assert world.log.flushed_offset == 0, "the name of its segment may not be on disk"
        while not world.env.work:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await world.env.finish()
        await asyncio.gather(appended, barrier)
        assert world.log.flushed_offset == 1

    asyncio.run(check())


@pytest.mark.parametrize("has_records", [True, False])
def test_what_a_sync_owes_is_done_again_when_it_found_no_descriptor(tmp_path: Path, has_records: bool) -> None:
    async def check() -> None:
        world = World(tmp_path / "a-0")
        world.write()
        world.log.flush()
        calls: list[int] = []

        def owed() -> None:
            calls.append(1)
            if len(calls) == 1:
                raise StorageError("Too many open files", errno.EMFILE)

        world.sync.owe(owed)
        if has_records:
            world.write()
        before, durable = world.log.flushed_offset, world.sync.durable(world.log.end_offset)
        await asyncio.sleep(0)
        work, future = world.env.work.pop()
        with pytest.raises(StorageError) as raised:
            work()
        future.set_exception(raised.value)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (durable.done(), world.log.flushed_offset, world.log.is_failed) == (False, before, False)
        world.sync.request()
        await asyncio.sleep(0)
        await world.env.finish()
        await durable
        assert (len(calls), world.log.flushed_offset) == (2, world.log.end_offset)

    asyncio.run(check())
