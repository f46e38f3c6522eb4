"""A replica does not begin with what the checkpoints have of a former one of the same name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from replication_world import until

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import Image, PartitionState, partition_record
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.directories import LogDirectory, open_directory
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.checkpoint import RECOVERY_POINTS, write_offsets
from penstock.storage.files import StorageError
from penstock.wire.messages.metadata_records import RemoveTopicRecord, TopicRecord
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
