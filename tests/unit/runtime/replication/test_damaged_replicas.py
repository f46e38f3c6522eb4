"""A replica whose log refuses to open: it is left as it is, and the controller learns of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import LOST_DIRECTORY, Image, PartitionState, partition_record
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.directories import open_directory
from penstock.runtime.logs.housekeeping import Housekeeping
from penstock.runtime.replication.directory_assignments import DirectoryAssignments
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from penstock.storage.metadata_files import CLEAN_SHUTDOWN
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

    def __init__(self, path: Path, assigned: Uuid = DIRECTORY) -> None:
        self.env = SystemEnv()
        self.directory = open_directory(self.env, path, DIRECTORY)
        self.image = Image()
        state = PartitionState((1,), (1,), 1, 0, 0, (assigned,))
        for record in (TopicRecord("orders", TOPIC_ID), partition_record(TOPIC_ID, 0, state)):
            self.image.replay(record)
        self.reports: list[tuple[Uuid, bool]] = []
        self.has_reported = asyncio.Event()
        self.partitions = Partitions(self.env, 1, self.image, lambda: broker_defaults({}), [self.directory], 1 << 20)
        self.assignments = DirectoryAssignments(self.env, self.partitions, self._answer, lambda: 1)
        unused: Any = None
        self.housekeeping = Housekeeping(self.env, self.partitions, unused)
        self.partitions.open_all()
        self.assignments.start()

    async def _answer(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        (directory,) = request.directories
        (row,) = directory.topics[0].partitions
        self.reports.append((directory.id, row.kept_records))
        change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, directories=(directory.id,))
        self.image.replay(change)
        self.has_reported.set()
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
