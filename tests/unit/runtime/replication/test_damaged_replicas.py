"""A replica whose log refuses to open: it is left as it is, and the controller learns of it."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from replication_world import until

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import LOST_DIRECTORY, Image, PartitionState, partition_record
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.directories import open_directory
from penstock.runtime.logs.housekeeping import Housekeeping
from penstock.runtime.replication.damaged_replicas import LOOK_S, DamagedReplicas
from penstock.runtime.replication.directory_assignments import DirectoryAssignments
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from penstock.storage.files import CorruptLogError, StorageError
from penstock.storage.metadata_files import CLEAN_SHUTDOWN
from penstock.storage.names import STRAY_SUFFIX, future_directory_name
from penstock.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from penstock.wire.messages.metadata_records import PartitionChangeRecord, TopicRecord
from penstock.wire.records import Record, build_batch

NAME = TopicPartition("orders", 0)
TOPIC_ID = b"orders--orders--"
DIRECTORY = b"f" * 16
BATCHES = 30


class Broker:
    """One broker with one replica. `reports` are what it told the controller: the directory, and whether it has all."""

    def __init__(
        self, path: Path, assigned: Uuid = DIRECTORY, others: tuple[int, ...] = (), more: tuple[Path, ...] = ()
    ) -> None:
        self.env = SystemEnv()
        self.directory = open_directory(self.env, path, DIRECTORY)
        found = [self.directory, *(open_directory(self.env, one, b"m" * 16) for one in more)]
        self.image = Image()
        directories = (assigned, *(bytes(16) for _ in others))
        state = PartitionState((1, *others), others or (1,), (others or (1,))[0], 0, 0, directories)
        for record in (TopicRecord("orders", TOPIC_ID), partition_record(TOPIC_ID, 0, state)):
            self.image.replay(record)
        self.reports: list[tuple[Uuid, bool]] = []
        self.has_reported = asyncio.Event()
        # While it is cleared, the controller records reports and does not answer.
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.partitions = Partitions(self.env, 1, self.image, lambda: broker_defaults({}), found, 1 << 20)
        self.assignments = DirectoryAssignments(self.env, self.partitions, self._answer, lambda: 1)
        unused: Any = None
        self.housekeeping = Housekeeping(self.env, self.partitions, unused)
        self.partitions.open_all()
        self.assignments.start()
        self.damaged = DamagedReplicas(self.env, self.partitions, self.assignments)
        self.damaged.start()

    async def _answer(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        (directory,) = request.directories
        (row,) = directory.topics[0].partitions
        self.reports.append((directory.id, row.kept_records))
        state = self.image.partition(*NAME)
        assert state is not None
        directories = (directory.id, *state.directories[1:])
        change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, directories=directories)
        self.image.replay(change)
        self.has_reported.set()
        await self.may_answer.wait()
        rows = [AssignReplicasToDirsResponsePartitionData(0, 0)]
        topics = [AssignReplicasToDirsResponseTopicData(TOPIC_ID, rows)]
        return AssignReplicasToDirsResponse(
            directories=[AssignReplicasToDirsResponseDirectoryData(directory.id, topics)]
        )

    async def fill(self) -> None:
        partition = self.partitions.get(*NAME)
        assert partition is not None
        for _ in range(BATCHES):
            partition.append(bytearray(build_batch([Record(0, 1_000, None, b"x" * 50)])), 1_000)
        await partition.sync.durable(BATCHES)
        # As at a shutdown, when the logs are closed already.
        await self.partitions.close_all()
        await self.housekeeping.finish(1)
        self.env.filesystem.unlink(self.directory.path / CLEAN_SHUTDOWN)

    async def reported(self, expected: list[tuple[Uuid, bool]]) -> None:
        async with asyncio.timeout(10):
            await self.has_reported.wait()
        assert self.reports == expected


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def flip(segment: Path) -> None:
    """Change a bit in the length of the third batch."""
    data = bytearray(segment.read_bytes())
    data[2 * len(data) // BATCHES + 8] ^= 0x40
    segment.write_bytes(data)


def test_a_damaged_log_keeps_its_records_and_its_checkpoints_over_any_number_of_restarts(tmp_path: Path) -> None:
    segment = tmp_path / str(NAME) / "00000000000000000000.log"

    async def story() -> None:
        broker = Broker(tmp_path)
        await broker.fill()
        await broker.env.close()
        flip(segment)
        damaged = segment.read_bytes()
        for _ in range(3):
            broker = Broker(tmp_path)
            assert broker.partitions.get(*NAME) is None
            await broker.housekeeping.checkpoint_all()
            await broker.housekeeping.finish(1)
            assert read_offsets(broker.env.filesystem, tmp_path / RECOVERY_POINTS) == {NAME: BATCHES}
            assert NAME in read_offsets(broker.env.filesystem, tmp_path / HIGH_WATERMARKS)
            assert segment.read_bytes() == damaged
            await broker.env.close()

    run(story)


def test_the_controller_learns_of_a_damaged_log_and_of_its_repair(tmp_path: Path) -> None:
    segment = tmp_path / str(NAME) / "00000000000000000000.log"

    async def story() -> None:
        broker = Broker(tmp_path)
        await broker.fill()
        await broker.env.close()
        flip(segment)
        broker = Broker(tmp_path)
        await broker.reported([(LOST_DIRECTORY, False)])
        broker.partitions.report_unopened()
        await asyncio.sleep(0)
        assert broker.reports == [(LOST_DIRECTORY, False)], "it knows already"
        await broker.env.close()
        # Restored, as from a backup of the disk.
        flip(segment)
        broker = Broker(tmp_path, assigned=LOST_DIRECTORY)
        await broker.reported([(DIRECTORY, True)])
        await broker.env.close()

    run(story)


def test_a_damaged_log_that_was_deleted_begins_without_its_records(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Broker(tmp_path)
        await broker.fill()
        await broker.env.close()
        for path in (tmp_path / str(NAME)).iterdir():
            path.unlink()
        (tmp_path / str(NAME)).rmdir()
        broker = Broker(tmp_path, assigned=LOST_DIRECTORY)
        await broker.reported([(DIRECTORY, False)])
        assert read_offsets(broker.env.filesystem, tmp_path / RECOVERY_POINTS) == {}
        await broker.env.close()

    run(story)


def test_a_damaged_log_begins_anew_where_others_are_in_sync(tmp_path: Path) -> None:
    segment = tmp_path / str(NAME) / "00000000000000000000.log"

    async def story() -> None:
        broker = Broker(tmp_path)
        await broker.fill()
        await broker.env.close()
        flip(segment)
        damaged = segment.read_bytes()
        broker = Broker(tmp_path, others=(2, 3))
        await until(lambda: broker.reports == [(LOST_DIRECTORY, False), (DIRECTORY, False)])
        partition = broker.partitions.get(*NAME)
        assert partition is not None
        assert (partition.log.end_offset, partition.is_leader, len(broker.damaged)) == (0, False, 0)
        assert read_offsets(broker.env.filesystem, tmp_path / RECOVERY_POINTS) == {}
        await broker.env.close()
        kept.append(damaged)

    kept: list[bytes] = []
    run(story)
    (stray,) = tmp_path.glob(f"*{STRAY_SUFFIX}")
    assert [(stray / segment.name).read_bytes()] == kept


def test_a_damaged_log_does_not_begin_anew_before_its_report_is_answered(tmp_path: Path) -> None:
    """Another report may have replaced it, by which the replica has its records."""
    segment = tmp_path / str(NAME) / "00000000000000000000.log"

    async def story() -> None:
        broker = Broker(tmp_path)
        await broker.fill()
        await broker.env.close()
        flip(segment)
        broker = Broker(tmp_path, others=(2, 3))
        broker.may_answer.clear()
        await until(lambda: broker.reports)
        await asyncio.sleep(2 * LOOK_S)
        assert broker.partitions.get(*NAME) is None
        assert segment.exists()
        broker.may_answer.set()
        await until(lambda: broker.partitions.get(*NAME) is not None)
        await broker.env.close()

    run(story)


def test_a_damaged_log_that_was_moving_begins_anew_without_the_copy(tmp_path: Path) -> None:
    segment = tmp_path / str(NAME) / "00000000000000000000.log"

    async def story() -> None:
        broker = Broker(tmp_path)
        await broker.fill()
        await broker.env.close()
        flip(segment)
        other = tmp_path / "other"
        other.mkdir()
        future = other / future_directory_name(str(NAME), bytes(16))
        shutil.copytree(segment.parent, future)
        broker = Broker(tmp_path, others=(2, 3), more=(other,))
        await until(lambda: broker.partitions.get(*NAME) is not None)
        partition = broker.partitions.get(*NAME)
        assert partition is not None
        assert partition.log.end_offset == 0
        assert not future.exists()
        await broker.env.close()

    run(story)


def test_a_damaged_log_that_cannot_be_renamed_is_tried_again_and_stays_closed(tmp_path: Path) -> None:
    segment = tmp_path / str(NAME) / "00000000000000000000.log"

    async def story() -> None:
        broker = Broker(tmp_path)
        await broker.fill()
        await broker.env.close()
        flip(segment)
        broker = Broker(tmp_path, others=(2, 3))
        rename, refused = broker.env.filesystem.rename, []

        def full(source: Path, target: Path) -> None:
            if source.name == str(NAME) and len(refused) < 2:
                refused.append(source)
                raise StorageError("the disk is full", errno.ENOSPC)
            rename(source, target)

        broker.env.filesystem.rename = full  # type: ignore[method-assign]
        await until(lambda: refused or broker.partitions.get(*NAME) is not None)
        assert broker.partitions.get(*NAME) is None
        await until(lambda: broker.partitions.get(*NAME) is not None)
        assert len(refused) == 2
        await broker.env.close()

    run(story)


def test_a_damaged_log_that_was_closed_to_begin_anew_is_not_opened_again_with_its_records(tmp_path: Path) -> None:
    """Where its directory could not be renamed at once, the next change of the metadata had it served again."""

    async def story() -> None:
        broker = Broker(tmp_path, assigned=LOST_DIRECTORY, others=(2, 3))
        partition = broker.partitions.get(*NAME)
        assert partition is not None
        damage = CorruptLogError(partition.log.directory / "00000000000000000000.log", 0, "its checksum does not match")
        rename = broker.env.filesystem.rename

        def full(source: Path, target: Path) -> None:
            if source.name == str(NAME):
                raise StorageError("the disk is full", errno.ENOSPC)
            rename(source, target)

        broker.env.filesystem.rename = full  # type: ignore[method-assign]
        with pytest.raises(StorageError):
            broker.partitions.begin_anew(NAME, TOPIC_ID, damage)
        change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=3)
        broker.image.replay(change)
        broker.partitions.follow([change])
        assert broker.partitions.get(*NAME) is None
        broker.env.filesystem.rename = rename  # type: ignore[method-assign]
        broker.partitions.begin_anew(NAME, TOPIC_ID, damage)
        await until(lambda: broker.partitions.get(*NAME) is not None)
        await broker.env.close()

    run(story)
