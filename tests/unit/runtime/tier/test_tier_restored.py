"""A restored partition has no leader until it has started from the bucket, where the lost cluster's log ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from crc32c import crc32c

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import Image, PartitionState, ResourceType, partition_record
from penstock.core.replica.producer_state import AppendedBatch, ProducerEntry
from penstock.core.tier.metadata_records import RemotePartitions, TierKey, decode_record, encode_record
from penstock.core.tier.segments import RemotePartition, SegmentState
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.directories import begin_use, open_directory
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.tier.metadata import RemoteLogMetadata
from penstock.runtime.tier.restored import RestoredPartitions
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.producers.snapshot import encode_snapshot
from penstock.storage.tier.layout import EPOCHS, LOG, SNAPSHOT, Manifest, PartitionLocation, StoredObject
from penstock.storage.tier.object_store import StoreError
from penstock.storage.tier.recovery import find_end, list_partition, recoverable
from penstock.storage.tier.sealing import Seals
from penstock.wire.messages.metadata_records import ConfigRecord, TopicRecord
from support.memory_store import MemoryStore

NODE = 1
PLACE = PartitionLocation("cluster", "orders", b"t" * 16, 0)
KEY = TierKey(PLACE.topic_id, 0)
NOW_MS = 1_900_000_000_000


class Metadata:
    def __init__(self) -> None:
        self.partitions = RemotePartitions()
        self.written: list[SegmentState] = []

    def get(self, key: TierKey) -> RemotePartition | None:
        return self.partitions.get(key)

    async def up_to_date(self, key: TierKey) -> RemotePartition:
        found = self.partitions.get(key)
        return found if found is not None else RemotePartition()

    async def write(self, _: TierKey, record: Any) -> None:
        self.written.append(SegmentState(record.remote_log_segment_state))
        self.partitions.replay(decode_record(encode_record(record)))


def producer(producer_id: int, transaction: int = -1) -> ProducerEntry:
    return ProducerEntry(producer_id, 0, 0, NOW_MS, transaction, (AppendedBatch(0, 0, 5, 5, NOW_MS),))


class World:
    def __init__(self, path: Path, restored_offset: int, kept_producer_id: int = 0) -> None:
        self.env, image = SystemEnv(), Image()
        directory = open_directory(self.env, path, b"d" * 16)
        begin_use(self.env, directory)
        defaults = broker_defaults({"remote.log.storage.system.enable": "true"})
        self.partitions = Partitions(self.env, NODE, image, lambda: defaults, [directory], 1 << 20)
        self.store, self.metadata = MemoryStore(), Metadata()
        self.restored = RestoredPartitions(
            self.env, NODE, self.partitions, self.store, cast("RemoteLogMetadata", self.metadata), Seals()
        )
        state = PartitionState((NODE,), (NODE,), NODE, 7, 0, (b"d" * 16,), restored_offset=restored_offset)
        records = [
            TopicRecord("orders", PLACE.topic_id),
            partition_record(PLACE.topic_id, 0, state._replace(kept_producer_id=kept_producer_id)),
            ConfigRecord(ResourceType.TOPIC, "orders", "remote.storage.enable", "true"),
        ]
        for record in records:
            image.replay(record)
        self.partitions.follow(records)

    @property
    def partition(self) -> Partition:
        found = self.partitions.get("orders", 0)
        assert found is not None
        return found

    def put(
        self, number: int, start: int, end: int, *lineage: tuple[int, int], producers: Sequence[ProducerEntry] = ()
    ) -> None:
        """A finished segment in the bucket, of a log with these epochs."""
        epochs = LeaderEpochs()
        for entry in lineage:
            epochs.assign(*entry)
        contents = {LOG: b"records", EPOCHS: epochs.to_bytes(), SNAPSHOT: encode_snapshot(producers)}
        epochs.truncate_from_start(start)
        segment_id = bytes([number]) * 16
        objects = {kind: StoredObject(len(content), crc32c(content)) for kind, content in contents.items()}
        manifest = Manifest(PLACE, segment_id, start, end, 5, epochs.entries, 1, 2, objects)
        for kind, content in contents.items():
            self.store.objects[PLACE.object(start, segment_id, kind)] = content
        self.store.objects[PLACE.manifest(start, segment_id)] = manifest.to_bytes()

    async def start(self) -> None:
        await self.restored.start(self.partition, PLACE)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_it_leads_where_the_tier_ends_and_not_before(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path, 120)
        world.put(1, 10, 59, (0, 10))
        world.put(2, 60, 119, (0, 10), (4, 80), producers=[producer(3)])
        with pytest.raises(ApiError) as refused:
            world.partitions.lookup("orders", b"", 0, by_id=False)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert world.restored.is_waiting(world.partition)
        await world.start()
        partition = world.partitions.lookup("orders", b"", 0, by_id=False)
        log = partition.log
        assert (log.start_offset, log.local_start_offset, log.end_offset) == (10, 120, 120)
        assert (partition.high_watermark, log.epochs.entries) == (120, ((0, 10), (4, 80), (7, 120)))
        assert [entry.producer_id for entry in log.producers.entries] == [3]
        assert [one.is_readable for one in world.metadata.partitions[KEY].segments()] == [True, True]
        told = list(world.metadata.written)
        await world.start()
        assert (world.restored.is_waiting(partition), world.metadata.written) == (False, told)

    run(check)


def test_a_store_that_fails_is_read_again_and_nothing_is_announced_twice(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path, 120)
        world.put(1, 0, 59, (0, 0))
        with pytest.raises(StoreError, match="no segment that ends at 120"):
            await world.start()
        assert not world.partition.is_leader
        world.put(2, 60, 119, (0, 0))
        await world.start()
        assert world.partition.is_leader
        assert world.metadata.written == [SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED] * 2

    run(check)


def test_records_that_an_election_took_back_do_not_come_back(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path, 100)
        world.put(1, 0, 149, (1, 0))
        world.put(2, 70, 99, (1, 0), (2, 70))
        await world.start()
        assert world.partition.log.end_offset == 100
        assert world.partition.log.epochs.entries == ((1, 0), (2, 70), (7, 100))

    run(check)


def test_a_last_segment_without_its_history_is_left_out(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path, 60)
        world.put(1, 0, 59, (0, 0))
        world.put(2, 60, 119, (0, 0))
        world.store.objects[PLACE.object(60, bytes([2]) * 16, EPOCHS)] = b"9" * 8
        found = await recoverable(world.store, await list_partition(world.store, PLACE))
        end = await find_end(world.store, PLACE, found.segments, Seals())
        assert (end.offset, [problem.path for problem in end.problems]) == (60, [PLACE.stem(60, bytes([2]) * 16)])
        await world.start()
        assert world.partition.log.end_offset == 60

    run(check)


def test_a_manifest_without_epochs_is_a_problem(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path, 60)
        world.put(1, 0, 59, (0, 0))
        world.put(2, 60, 119)
        found = await recoverable(world.store, await list_partition(world.store, PLACE))
        assert [segment.end_offset for segment in found.segments] == [59]
        (problem,) = found.problems
        assert problem.path == PLACE.manifest(60, bytes([2]) * 16)

    run(check)


def test_what_has_expired_meanwhile_leaves_its_offsets_taken(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path, 120)
        world.put(1, 0, 119, (0, 0))
        await world.start()
        remote = world.metadata.partitions[KEY]
        for state in (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED):
            remote.update(bytes([1]) * 16, state, 1, 1)
        world.store.objects.clear()
        later = World(tmp_path / "lost", 120)
        later.metadata.partitions[KEY] = remote
        await later.start()
        log = later.partition.log
        assert (later.partition.is_leader, log.start_offset, log.end_offset) == (True, 120, 120)

    (tmp_path / "lost").mkdir()
    run(check)


def test_producers_with_ids_of_others_are_forgotten_and_open_transactions_aborted(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path, 120, kept_producer_id=1000)
        world.put(1, 0, 119, (0, 0), producers=[producer(3), producer(1000, 90), producer(1001)])
        await world.start()
        partition = world.partition
        assert sorted(entry.producer_id for entry in partition.log.producers.entries) == [1000, 1001]
        assert partition.log.end_offset == 121, "a marker"
        assert partition.last_stable_offset == 121
        (aborted,) = partition.log.aborted.overlapping(90, 121)
        assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (1000, 90, 120)
        await world.start()
        world.restored.end_transactions(partition)
        assert partition.log.end_offset == 121

    run(check)
