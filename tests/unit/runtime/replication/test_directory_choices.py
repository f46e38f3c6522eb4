"""Which directory a replica is opened in: where it was requested, where it was, or nowhere for now."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import UNASSIGNED_DIRECTORY, Image, PartitionState, partition_record
from penstock.core.replica.throttle import UNLIMITED, Throttle
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.directories import LogDirectory, open_directory
from penstock.runtime.logs.sync import LogSync
from penstock.runtime.replication.directory_moves import DirectoryMoves
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.files import StorageError
from penstock.storage.names import future_directory_name
from penstock.wire.messages.metadata_records import PartitionChangeRecord, RemoveTopicRecord, TopicRecord
from penstock.wire.records import Record, build_batch

TOPIC, TOPIC_ID = "orders", b"orders--orders--"
NAME = TopicPartition(TOPIC, 0)
IDS = {"first": b"f" * 16, "second": b"s" * 16}
SIZE = 1 << 20


class Broker:
    """Broker 1 with two directories, as it starts with some metadata."""

    def __init__(
        self, path: Path, replicas: tuple[int, ...] = (1,), assigned: Uuid = UNASSIGNED_DIRECTORY, broken: str = ""
    ) -> None:
        self.env = SystemEnv()
        self.directories = {}
        for name, directory_id in IDS.items():
            (path / name).mkdir(exist_ok=True)
            directory = LogDirectory(path / name, directory_id, failure=StorageError("broken"))
            self.directories[name] = (
                directory if name == broken else open_directory(self.env, path / name, directory_id)
            )
        self.image = Image()
        state = PartitionState(replicas, replicas, replicas[0], 0, 0, (assigned,) * len(replicas))
        for record in (TopicRecord(TOPIC, TOPIC_ID), partition_record(TOPIC_ID, 0, state)):
            self.image.replay(record)
        self.partitions = Partitions(
            self.env, 1, self.image, lambda: broker_defaults({}), [*self.directories.values()], SIZE
        )
        controller: Any = None
        self.moves = DirectoryMoves(self.env, self.partitions, controller, Throttle(lambda: UNLIMITED))
        self.partitions.open_all()

    @property
    def home(self) -> str | None:
        found = self.partitions.get(*NAME)
        return None if found is None else self.partitions.home(found).path.name

    async def fill(self, count: int) -> None:
        partition = self.partitions.get(*NAME)
        assert partition is not None
        for _ in range(count):
            partition.append(bytearray(build_batch([Record(0, 1_000, None, b"x")])), 1_000)
        await self.close()

    async def close(self) -> None:
        await self.partitions.close_all()
        await self.env.close()


def make_future(path: Path, directory: str) -> None:
    """As if a move had been interrupted before the logs changed places, and the first directory was lost with it."""
    (path / directory / str(NAME)).rename(path / directory / future_directory_name(str(NAME), bytes(16)))


def test_a_replica_that_comes_later_goes_to_the_requested_directory(tmp_path: Path) -> None:
    async def story() -> None:
        for wanted in IDS:
            (tmp_path / wanted).mkdir()
            broker = Broker(tmp_path / wanted, replicas=(2,))
            with pytest.raises(ApiError) as refused:
                broker.moves.alter(NAME, str(tmp_path / wanted / wanted))
            assert refused.value.code is ErrorCode.REPLICA_NOT_AVAILABLE
            change = PartitionChangeRecord(
                partition_id=0, topic_id=TOPIC_ID, replicas=(2, 1), directories=(UNASSIGNED_DIRECTORY,) * 2
            )
            broker.image.replay(change)
            broker.partitions.follow([change])
            assert broker.home == wanted
            await broker.close()

    asyncio.run(story())


@pytest.mark.parametrize("assigned", [IDS["first"], UNASSIGNED_DIRECTORY])
def test_a_replica_in_a_failed_directory_does_not_begin_anew(tmp_path: Path, assigned: Uuid) -> None:
    async def story() -> None:
        broker = Broker(tmp_path, assigned=assigned, broken="first")
        assert broker.home is None
        assert broker.partitions.unopened_count == 1
        with pytest.raises(ApiError, match="failed"):
            broker.partitions.lookup(TOPIC, TOPIC_ID, 0, by_id=True)
        # A change of the partition is no reason to begin either.
        change = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1,))
        broker.partitions.follow([change])
        assert broker.home is None
        await broker.close()

    asyncio.run(story())


def test_a_replica_whose_directory_was_taken_out_begins_anew(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Broker(tmp_path, assigned=b"gone gone gone g")
        assert broker.home is not None
        await broker.close()

    asyncio.run(story())


def test_a_copy_alone_is_the_replica_if_it_was_reported_to_the_controller(tmp_path: Path) -> None:
    async def story() -> None:
        await Broker(tmp_path, assigned=IDS["second"]).fill(3)
        make_future(tmp_path, "second")
        lost = Broker(tmp_path, assigned=IDS["first"], broken="first")
        assert lost.home is None
        await lost.close()
        assert list((tmp_path / "second").glob("*-future")), "it may be all that is left"
        told = Broker(tmp_path, assigned=IDS["second"], broken="first")
        assert told.home == "second"
        partition = told.partitions.get(*NAME)
        assert partition is not None
        assert partition.log.end_offset == 3
        await told.close()

    asyncio.run(story())


def test_topics_are_deleted_also_while_logs_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the first log's sync takes its time, and the controller deletes both topics meanwhile."""

    async def story() -> None:
        broker = Broker(tmp_path)
        others = PartitionState((1,), (1,), 1, 0, 0, (UNASSIGNED_DIRECTORY,))
        created = [TopicRecord("others", b"others--others--"), partition_record(b"others--others--", 0, others)]
        removed = [RemoveTopicRecord(TOPIC_ID), RemoveTopicRecord(b"others--others--")]

        def replay(records: list[Any]) -> None:
            for record in records:
                broker.image.replay(record)
            broker.partitions.follow(records)

        async def stop(_: LogSync) -> None:
            replay(removed)
            removed.clear()

        replay(created)
        partitions = list(broker.partitions)
        assert [partition.is_leader for partition in partitions] == [True, True]
        monkeypatch.setattr(LogSync, "stop", stop)
        await broker.close()
        assert not list(broker.partitions)
        assert [partition.is_leader for partition in partitions] == [False, False]

    asyncio.run(story())
