"""A replica does not begin with what the checkpoints have of a former one of the same name."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from replication_world import until

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import Image, PartitionState, partition_record
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs import checkpoints
from penstock.runtime.logs.directories import LogDirectory, open_directory
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import OPENED_AT_ONCE, Partitions
from penstock.storage.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from penstock.storage.files import StorageError, storage_error
from penstock.wire.messages.metadata_records import PartitionChangeRecord, RemoveTopicRecord, TopicRecord
from penstock.wire.records import Record, build_batch

NAME = TopicPartition("orders", 0)
FORMER, CURRENT = b"former--former--", b"current-current-"
DIRECTORY, OTHER = b"f" * 16, b"o" * 16


class Broker:
    """One broker with one directory."""

    def __init__(self, path: Path, topic_id: Uuid, *others: Path) -> None:
        self.env = SystemEnv()
        self.directory: LogDirectory = open_directory(self.env, path, DIRECTORY)
        self.image = Image()
        directories = [self.directory, *(open_directory(self.env, other, OTHER) for other in others)]
        self.partitions = Partitions(self.env, 1, self.image, lambda: broker_defaults({}), directories, 1 << 20)
        self.create(topic_id)

    def create(self, topic_id: Uuid) -> list[object]:
        state = PartitionState((1,), (1,), 1, 0, 0, (DIRECTORY,))
        records = [TopicRecord(NAME.topic, topic_id), partition_record(topic_id, 0, state)]
        for record in records:
            self.image.replay(record)
        return [*records]

    def recreate(self) -> None:
        """The topic is deleted, and created with the same name."""
        removal = RemoveTopicRecord(FORMER)
        self.image.replay(removal)
        self.partitions.follow([removal, *self.create(CURRENT)])

    @property
    def partition(self) -> Partition | None:
        return self.partitions.get(*NAME)


async def leave_a_replica(path: Path) -> None:
    """The topic's records up to offset 5 are deleted, as its checkpoints have it."""
    broker = Broker(path, FORMER)
    broker.partitions.open_all()
    partition = broker.partition
    assert partition is not None
    for _ in range(5):
        partition.append(bytearray(build_batch([Record(0, 1_000, None, b"v")])), 1_000)
    await partition.sync.durable(5)
    partition.log.advance_start_offset(5)
    await broker.partitions.note_progress(partition).write()
    await broker.env.close()


def test_a_topic_created_anew_before_its_former_replica_was_opened_starts_at_offset_0(tmp_path: Path) -> None:
    async def story() -> None:
        await leave_a_replica(tmp_path)
        broker = Broker(tmp_path, FORMER)
        opening = asyncio.ensure_future(broker.partitions.open_gradually())
        await asyncio.sleep(0)
        assert broker.partition is None
        broker.recreate()
        assert broker.partition is None, "what is appended now would be cut off after a crash"
        async with asyncio.timeout(10):
            await opening
        assert not broker.partitions.checkpoints(broker.directory).has_stale(NAME)
        found = broker.partition
        assert found is not None
        assert found.topic_id == CURRENT
        assert (found.log.start_offset, found.log.end_offset) == (0, 0)
        await broker.env.close()
        assert open_directory(broker.env, tmp_path, DIRECTORY).start_offsets == {}

    asyncio.run(story())


def test_checkpoints_forget_the_replica_of_a_topic_that_is_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        await leave_a_replica(tmp_path)
        broker = Broker(tmp_path, FORMER)
        broker.partitions.open_all()
        assert broker.directory.start_offsets == {NAME: 5}
        removal = RemoveTopicRecord(FORMER)
        broker.image.replay(removal)
        broker.partitions.follow([removal])
        assert broker.partition is None
        await until(lambda: not broker.partitions.checkpoints(broker.directory).has_stale(NAME))
        await broker.env.close()
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
            assert read_offsets(broker.env.filesystem, tmp_path / name) == {}

    asyncio.run(story())


def test_a_disk_that_stalls_holds_up_no_replicas_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One replica waits for the checkpoints of the stalled disk, another one for those of a disk that works."""
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    topics = {"slow": b"slow----slow----", "fast": b"fast----fast----"}

    async def story() -> None:
        for path, name in ((slow, "slow"), (fast, "fast")):
            path.mkdir()
            write_offsets(SystemEnv().filesystem, path / RECOVERY_POINTS, {TopicPartition(name, 0): 7})
        broker = Broker(slow, CURRENT, fast)
        stalled = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(broker.partitions.checkpoints(broker.directory), "write", lambda: asyncio.shield(stalled))
        records: list[object] = []
        for (name, topic_id), directory in zip(topics.items(), (DIRECTORY, OTHER), strict=True):
            state = PartitionState((1,), (1,), 1, 0, 0, (directory,))
            records += [TopicRecord(name, topic_id), partition_record(topic_id, 0, state)]
        for record in records:
            broker.image.replay(record)
        broker.partitions.follow(records)
        await until(lambda: broker.partitions.get("fast", 0) is not None)
        assert broker.partitions.get("slow", 0) is None
        assert not broker.partitions.are_all_open
        assert broker.partitions.is_behind
        broker.partitions.follow(records)
        waiting = broker.partitions.opening("slow", topics["slow"], 0, by_id=True)
        assert waiting is not None
        monkeypatch.undo()
        await broker.partitions.checkpoints(broker.directory).write()
        assert not waiting.done()
        stalled.set_result(None)
        await asyncio.wait_for(waiting, 5)
        found = broker.partitions.get("slow", 0)
        assert found is not None
        assert found.is_leader
        assert broker.partitions.are_all_open
        await broker.env.close()

    asyncio.run(story())


def test_a_directory_with_a_log_that_failed_is_not_marked_clean(tmp_path: Path) -> None:
    """A log that had no room for an aborted transaction in its index was closed without a word, and trusted."""

    async def story() -> None:
        broker = Broker(tmp_path, FORMER)
        broker.partitions.open_all()
        partition = broker.partition
        assert partition is not None
        partition.log.fail(StorageError("the disk is full"))
        await broker.partitions.close_all()
        assert broker.directory.failure is not None
        await broker.env.close()

    asyncio.run(story())


def test_replicas_that_a_stalled_disk_does_not_open_hold_up_no_others(tmp_path: Path) -> None:
    """Neither those that are opened at the same time, nor changes of leaders, nor a small topic on the stalled disk."""
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    ids = {"open": b"open----open----", "slow": b"slow----slow----", "fast": b"fast----fast----", "late": b"late" * 4}
    homes = {"open": OTHER, "slow": DIRECTORY, "fast": OTHER, "late": DIRECTORY}
    count = 2 * OPENED_AT_ONCE

    def create(broker: Broker, topic: str, count: int, leader: int = 1) -> list[object]:
        state = PartitionState((1, 2), (1, 2), leader, 0, 0, (homes[topic], bytes(16)))
        rows = [TopicRecord(topic, ids[topic]), *(partition_record(ids[topic], index, state) for index in range(count))]
        for row in rows:
            broker.image.replay(row)
        return [*rows]

    async def story() -> None:
        slow.mkdir()
        fast.mkdir()
        broker = Broker(slow, CURRENT, fast)
        partitions, resumed = broker.partitions, threading.Event()
        partitions.follow(create(broker, "open", 1, leader=2))
        led = partitions.get("open", 0)
        assert led is not None
        make_directory = broker.env.filesystem.make_directory

        def stall(path: Path) -> None:
            if path.parent == slow:
                assert threading.current_thread() is not threading.main_thread(), "the loop must not wait"
                assert resumed.wait(10)
            make_directory(path)

        broker.env.filesystem.make_directory = stall  # type: ignore[method-assign]
        partitions.follow([*create(broker, "slow", count), *create(broker, "fast", count)])
        await until(lambda: all(partitions.get("fast", index) for index in range(count)))
        change = PartitionChangeRecord(0, ids["open"], leader=1)
        broker.image.replay(change)
        partitions.follow([change, *create(broker, "late", 1)])
        assert led.is_leader
        assert (len(partitions), partitions.is_behind, partitions.are_all_open) == (count + 1, True, False)
        waiting = partitions.opening("late", ids["late"], 0, by_id=True)
        assert waiting is not None
        await asyncio.sleep(0.01)
        assert not waiting.done()
        # Changes of a partition that is being opened count when it is open, those of its name's next topic too.
        removal = RemoveTopicRecord(ids["slow"])
        broker.image.replay(removal)
        ids["slow"] = b"next" * 4
        partitions.follow([removal, *create(broker, "slow", 1, leader=2)])
        resumed.set()
        await asyncio.wait_for(waiting, 5)
        await until(lambda: partitions.are_all_open)
        found = partitions.get("slow", 0)
        assert found is not None
        assert (found.topic_id, found.leader_id, len(partitions)) == (b"next" * 4, 2, count + 3)
        await broker.env.close()

    asyncio.run(story())


def test_a_replica_that_is_opened_in_a_directory_that_fails_stays_offline(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Broker(tmp_path, CURRENT)
        run_blocking = broker.env.run_blocking

        def fail(work: Callable[[], object]) -> asyncio.Future[object]:
            broker.partitions.fail_directory(broker.directory, StorageError("broken"))
            return run_blocking(work)

        broker.env.run_blocking = fail  # type: ignore[method-assign, assignment]
        await broker.partitions.open_gradually()
        assert broker.partition is None
        assert broker.partitions.unopened_count == 1
        await broker.env.close()

    asyncio.run(story())


def test_a_small_topic_is_opened_off_the_loop_while_checkpoints_show_that_its_disk_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "STALLED_MS", -1)

    async def story() -> None:
        broker = Broker(tmp_path, FORMER)
        run_blocking, resumed = broker.env.run_blocking, asyncio.Event()

        async def later(work: Callable[[], Any]) -> Any:
            await resumed.wait()
            return await run_blocking(work)

        def delayed(work: Callable[[], Any]) -> asyncio.Future[Any]:
            return asyncio.ensure_future(later(work))

        broker.env.run_blocking = delayed  # type: ignore[method-assign]
        writer = broker.partitions.checkpoints(broker.directory)
        writer.note(TopicPartition("other", 0), 1, 1, 1)
        writer.write()
        await until(lambda: writer.is_stalled)
        broker.recreate()
        assert broker.partition is None
        resumed.set()
        await until(lambda: broker.partition is not None)
        # Any write that is under way counts as one that stalls here, and the last one may be.
        await until(lambda: not writer.is_stalled)
        await broker.env.close()

    asyncio.run(story())


def test_a_replica_that_found_the_disk_full_is_opened_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        broker = Broker(tmp_path, CURRENT)
        full = storage_error("create", tmp_path, OSError(errno.ENOSPC, "No space left on device"))
        with monkeypatch.context() as patched:
            patched.setattr(broker.env.filesystem, "make_directory", Mock(side_effect=full))
            broker.partitions.open_all()
            assert (broker.partition, broker.partitions.unopened_count) == (None, 1)
        broker.partitions.open_missing()
        await until(lambda: broker.partition is not None)
        assert broker.partitions.unopened_count == 0
        await broker.env.close()

    asyncio.run(story())


def test_logs_that_are_being_filled_in_a_directory_fail_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Broker(tmp_path, CURRENT)
        future, error = Mock(), StorageError("broken")
        broker.directory.futures[NAME] = future
        for _ in range(2):
            broker.partitions.fail_directory(broker.directory, error)
        future.fail.assert_called_once_with(error)
        assert broker.directory.failure is error
        await broker.env.close()

    asyncio.run(story())
