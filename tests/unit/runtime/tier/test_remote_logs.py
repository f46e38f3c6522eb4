"""A broker's tier: what is copied and removed when, what a deleted topic leaves, and how reads are limited."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from metadata_topic import NODE, MetadataTopic

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import Image, PartitionState, ResourceType, partition_record
from penstock.core.tier.metadata_records import TierKey, begun, decode_record
from penstock.core.tier.segments import EpochStart, PartitionDeleteState, RemotePartition, RemoteSegment, SegmentState
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.logs.directories import begin_use, open_directory
from penstock.runtime.logs.housekeeping import Housekeeping
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.tier.cache import DiskCache
from penstock.runtime.tier.counters import TierCounters
from penstock.runtime.tier.reader import TierReader
from penstock.runtime.tier.remote_logs import RemoteLogs, TierRead
from penstock.storage.indexes import DamagedIndexError
from penstock.storage.tier.layout import PartitionLocation
from penstock.storage.tier.object_store import StoreError
from penstock.storage.tier.sealing import Seals
from penstock.wire.messages.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from penstock.wire.messages.remote_log_records import RemotePartitionDeleteMetadataRecord
from penstock.wire.records import Record, build_batch, read_records, split_batches
from support.memory_store import MemoryStore
from support.virtual_time import VirtualEnv, run_virtually

TOPIC, TOPIC_ID = "orders", b"t" * 16
KEY = TierKey(TOPIC_ID, 0)
PLACE = PartitionLocation("cluster", TOPIC, TOPIC_ID, 0)
INTERVAL_S = 30
TURN_S = INTERVAL_S + 5


def settings() -> Any:
    return SimpleNamespace(
        remote_log_manager_task_interval_ms=INTERVAL_S * 1000,
        remote_log_manager_task_retry_backoff_ms=500,
        remote_log_manager_task_retry_backoff_max_ms=100_000,
        remote_log_manager_copier_thread_pool_size=2,
        remote_log_manager_expiration_thread_pool_size=2,
        remote_log_manager_copy_max_bytes_per_second=2**62,
        remote_log_manager_fetch_max_bytes_per_second=2**62,
        remote_log_reader_max_pending_tasks=2,
        remote_log_reader_threads=2,
        remote_fetch_max_wait_ms=500,
        remote_list_offsets_request_timeout_ms=30_000,
        penstock_tier_read_bytes=1 << 20,
        penstock_tier_read_ahead=0,
    )


class SlowStore(MemoryStore):
    """Each request takes so long, and fails while there is an error to fail with."""

    def __init__(self) -> None:
        super().__init__()
        self.delay_s = 0.0
        self.error: ApiError | None = None
        self.puts: list[str] = []
        self.under_way = 0
        self.most_under_way = 0

    async def put(self, path: str, content: bytes | Path) -> None:
        await self._wait()
        self.puts.append(path)
        await super().put(path, content)

    async def get(self, path: str) -> bytes:
        await self._wait()
        return await super().get(path)

    async def _wait(self) -> None:
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        try:
            await asyncio.sleep(self.delay_s)
            if self.error is not None:
                raise self.error
        finally:
            self.under_way -= 1


class World:
    """One broker that leads a tiered partition, and the topic with the tier's metadata."""

    def __init__(self, env: VirtualEnv, path: Path) -> None:
        self.env, self.image = env, Image()
        self.settings = settings()
        directory = open_directory(env, path, b"d" * 16)
        begin_use(env, directory)
        defaults = broker_defaults({"remote.log.storage.system.enable": "true"})
        self.partitions = Partitions(env, NODE, self.image, lambda: defaults, [directory], 1 << 20)
        self.topic = MetadataTopic(env, self.image)
        self.store, self.counters = SlowStore(), TierCounters()
        # Neither of memory nor of disk: every read is one of the store.
        caches = [DiskCache(env, path / name, lambda: 0) for name in ("parts", "indexes")]
        for cache in caches:
            cache.open()
        self.reader = TierReader(env, self.store, *caches, lambda: self.settings, self.counters, Seals())
        self.tier = RemoteLogs(
            env,
            PLACE.cluster_id,
            NODE,
            self.image,
            self.partitions,
            self.topic.metadata,
            self.store,
            self.reader,
            lambda: self.settings,
            self.counters,
            Seals(),
            path / "outgoing",
        )

    def commit(self, *records: Any) -> None:
        for record in records:
            self.image.replay(record)
        self.partitions.follow(records)
        self.tier.follow(records)

    def create(self, count: int = 1, leader: int = NODE) -> None:
        state = PartitionState((NODE, 2), (NODE,), leader, 0, 0, (b"d" * 16, b"e" * 16))
        self.commit(
            TopicRecord(TOPIC, TOPIC_ID),
            *(partition_record(TOPIC_ID, number, state) for number in range(count)),
            ConfigRecord(ResourceType.TOPIC, TOPIC, "remote.storage.enable", "true"),
        )

    def configure(self, name: str, value: str) -> None:
        self.commit(ConfigRecord(ResourceType.TOPIC, TOPIC, name, value))

    def partition(self, number: int = 0) -> Partition:
        found = self.partitions.get(TOPIC, number)
        assert found is not None
        return found

    def write(self, count: int, number: int = 0, size: int = 100, age_ms: int = 0) -> None:
        """Segments of one record each."""
        partition = self.partition(number)
        for _ in range(count):
            now_ms = self.env.now_ms()
            partition.append(bytearray(build_batch([Record(0, now_ms - age_ms, None, bytes(size))])), now_ms)
            partition.log.roll(now_ms)

    def remote(self, number: int = 0) -> RemotePartition:
        found = self.topic.metadata.get(TierKey(TOPIC_ID, number))
        assert found is not None
        return found

    def starts(self, number: int = 0) -> list[int]:
        return [one.start_offset for one in self.remote(number).segments() if one.is_readable]

    def logs(self) -> list[str]:
        return sorted(path for path in self.store.objects if path.endswith(".log"))

    def written(self) -> list[Any]:
        """The records of the metadata topic in their order, of both partitions."""
        found = []
        for batches in self.topic.logs.values():
            for data in batches:
                for position, _ in split_batches(data, 1 << 20):
                    found += [decode_record(one.value or b"") for one in read_records(data, 1 << 20, position)]
        return found


def play(path: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def run(env: VirtualEnv) -> None:
        await story(World(env, path))

    run_virtually(run)


class Noting:
    """A watcher that notes where a partition's log starts when it is told of a change."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.starts: list[int] = []

    def grown(self, size_bytes: int) -> None:
        """Not of interest here."""

    def moved(self) -> None:
        """Not of interest here."""

    def changed(self) -> None:
        self.starts.append(self.partition.log.start_offset)


async def started(world: World, count: int = 1, **options: Any) -> None:
    world.create(count, **options)
    await asyncio.sleep(1)
    world.tier.start()


def test_rolled_segments_are_copied_at_the_interval(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(3)
        await asyncio.sleep(INTERVAL_S - 1)
        assert world.store.objects == {}
        await asyncio.sleep(6)
        assert world.starts() == [0, 1, 2]
        assert len(world.logs()) == 3
        assert world.tier.is_loaded(world.partition())
        assert world.tier.copied_offset(world.partition()) == 2
        assert (world.counters.copies, world.counters.lag_segments, world.counters.lag_bytes) == (3, 0, 0)
        assert [key for key, _ in world.tier.segments()] == [KEY]
        world.write(1)
        await asyncio.sleep(TURN_S)
        assert world.starts() == [0, 1, 2, 3]

    play(tmp_path, story)


def test_the_topic_is_described_once_and_again_when_it_changes(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(2)
        await asyncio.sleep(TURN_S)
        path = f"{PLACE.topic_directory}/topic.json"
        document = json.loads(world.store.objects[path])
        assert (document["topic"], document["partitions"], document["replication_factor"]) == (TOPIC, 1, 2)
        assert document["configs"] == {"remote.storage.enable": "true"}
        world.write(1)
        await asyncio.sleep(TURN_S)
        assert world.store.puts.count(path) == 1
        world.configure("retention.bytes", "5000")
        world.write(1)
        await asyncio.sleep(TURN_S)
        assert world.store.puts.count(path) == 2
        assert json.loads(world.store.objects[path])["configs"]["retention.bytes"] == "5000"

    play(tmp_path, story)


def test_a_turn_copies_sixteen_segments_and_reports_what_is_left(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(20)
        await asyncio.sleep(TURN_S)
        assert world.starts() == list(range(16))
        await asyncio.sleep(INTERVAL_S)
        assert world.starts() == list(range(20))
        # What is left is counted at the interval after the turn that found it.
        assert world.counters.lag_segments == 5
        segment_bytes = world.remote().segments()[0].size_bytes
        assert world.counters.lag_bytes == 5 * segment_bytes
        await asyncio.sleep(INTERVAL_S)
        assert (world.counters.lag_segments, world.counters.lag_bytes) == (0, 0)

    play(tmp_path, story)


def test_copies_that_are_switched_off_are_no_lag(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(17)
        await asyncio.sleep(TURN_S)
        await asyncio.sleep(INTERVAL_S)
        world.write(20)
        await asyncio.sleep(INTERVAL_S)
        world.configure("remote.log.copy.disable", "true")
        world.write(3)
        await asyncio.sleep(TURN_S)
        assert world.counters.copies == 17 + 16
        await asyncio.sleep(TURN_S)
        assert world.counters.copies == 17 + 16
        assert (world.counters.lag_segments, world.counters.lag_bytes) == (0, 0)

    play(tmp_path, story)


def test_a_follower_copies_nothing_but_knows_what_is_copied(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.topic.add_topic()
        await started(world, leader=2)
        await asyncio.sleep(TURN_S)
        assert world.topic.metadata.is_loaded(KEY)
        assert world.store.objects == {}
        assert world.written() == []

    play(tmp_path, story)


def test_a_topic_that_is_not_tiered_is_left_alone(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.configure("remote.storage.enable", "false")
        world.write(3)
        await asyncio.sleep(TURN_S)
        assert world.store.objects == {}
        assert world.topic.fetches == []

    play(tmp_path, story)


def test_a_failure_is_followed_by_longer_and_longer_rests(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.settings.remote_log_manager_task_interval_ms = 100
        world.settings.remote_log_manager_task_retry_backoff_ms = 1_000
        world.settings.remote_log_manager_task_retry_backoff_max_ms = 5_000
        tries: list[int] = []

        async def fail(_: Partition) -> None:
            tries.append(world.env.passed_ms())
            raise StoreError("away")

        world.tier._tend = fail  # type: ignore[method-assign]
        await started(world)
        await asyncio.sleep(18)
        pauses = [after - before for before, after in pairwise(tries)]
        assert pauses == [1_000, 2_000, 4_000, 5_000, 5_000]

        async def succeed(_: Partition) -> None:
            tries.append(world.env.passed_ms())

        world.tier._tend = succeed  # type: ignore[method-assign]
        await asyncio.sleep(5.05)
        count = len(tries)
        await asyncio.sleep(1)
        assert len(tries) == count + 10
        world.tier._tend = fail  # type: ignore[method-assign]
        count = len(tries)
        await asyncio.sleep(2.5)
        # The rests begin anew after a success.
        assert tries[count + 1] - tries[count] == 1_000

    play(tmp_path, story)


def test_one_partition_has_one_turn_at_a_time(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.settings.remote_log_manager_task_interval_ms = 100
        under_way: list[str] = []
        most: list[int] = []

        async def tend(partition: Partition) -> None:
            under_way.append(str(partition.name))
            most.append(len(under_way))
            await asyncio.sleep(1)
            under_way.remove(str(partition.name))

        world.tier._tend = tend  # type: ignore[method-assign]
        await started(world, count=2)
        await asyncio.sleep(5)
        assert max(most) == 2
        assert len(most) == 10

    play(tmp_path, story)


def test_copies_of_several_partitions_are_limited(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world, count=4)
        for number in range(4):
            world.write(2, number)
        world.store.delay_s = 0.01
        await asyncio.sleep(TURN_S)
        assert all(world.starts(number) == [0, 1] for number in range(4))
        assert world.store.most_under_way == 2

    play(tmp_path, story)


def test_a_leader_that_is_replaced_in_a_turn_copies_no_more(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(3)
        put = world.store.put

        async def replaced(path: str, content: bytes | Path) -> None:
            await put(path, content)
            if path.endswith("topic.json"):
                world.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))

        world.store.put = replaced  # type: ignore[method-assign]
        await asyncio.sleep(TURN_S)
        assert world.logs() == []
        assert world.written() == []

    play(tmp_path, story)


def test_retention_moves_the_start_before_it_removes_what_expired(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(4)
        await asyncio.sleep(TURN_S)
        segment_bytes = world.remote().segments()[0].size_bytes
        world.configure("retention.bytes", str(2 * segment_bytes))
        partition = world.partition()
        watcher = Noting(partition)
        partition.watch(watcher)
        starts: list[int] = []
        delete = world.store.delete

        async def noting(paths: Any) -> None:
            starts.append(partition.log.start_offset)
            await delete(paths)

        world.store.delete = noting  # type: ignore[method-assign]
        await asyncio.sleep(TURN_S)
        assert world.starts() == [2, 3]
        assert partition.log.start_offset == 2
        assert starts == [2, 2]
        assert watcher.starts == [2]
        assert (world.counters.deletes, world.counters.delete_errors) == (2, 0)
        assert len(world.logs()) == 2

    play(tmp_path, story)


def test_old_segments_of_the_tier_expire_by_time(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(2, age_ms=3_600_000)
        world.write(1)
        await asyncio.sleep(TURN_S)
        world.configure("retention.ms", "1800000")
        await asyncio.sleep(TURN_S)
        assert world.starts() == [2]
        assert world.partition().log.start_offset == 2

    play(tmp_path, story)


@pytest.mark.parametrize(("local_bytes", "start_offset"), [("1", 1), ("-1", 0)])
def test_the_start_follows_what_was_removed_elsewhere_unless_the_disk_has_it(
    tmp_path: Path, local_bytes: str, start_offset: int
) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(4)
        await asyncio.sleep(TURN_S)
        world.configure("local.retention.bytes", local_bytes)
        housekeeping = Housekeeping(world.env, world.partitions, lambda: world.settings, world.tier)
        await housekeeping.retain_all()
        partition = world.partition()
        assert partition.log.local_start_offset == (0 if local_bytes == "-1" else 3)
        segment = world.remote().segments()[0]
        on_disk = 0 if local_bytes == "-1" else 3 * segment.size_bytes
        assert world.tier.only_there_bytes(partition) == on_disk
        watcher = Noting(partition)
        partition.watch(watcher)
        for state in (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED):
            await world.tier._copier._note(PLACE, segment.segment_id, state)
        assert partition.log.start_offset == 0
        await asyncio.sleep(TURN_S)
        assert partition.log.start_offset == start_offset
        assert watcher.starts == [start_offset] * start_offset

    play(tmp_path, story)


def test_a_new_leader_learns_what_was_written_before_it_copies(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(1)
        asked: list[TierKey] = []
        up_to_date = world.topic.metadata.up_to_date

        async def noting(key: TierKey) -> RemotePartition:
            asked.append(key)
            return await up_to_date(key)

        world.topic.metadata.up_to_date = noting  # type: ignore[method-assign]
        await asyncio.sleep(3 * TURN_S)
        # Once in a leader epoch.
        assert asked == [KEY]
        for leader in (2, NODE):
            world.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=leader))
        await asyncio.sleep(2 * TURN_S)
        assert asked == [KEY, KEY]

    play(tmp_path, story)


def test_a_deleted_topic_is_cleared_with_a_record_for_each_step(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(3)
        await asyncio.sleep(TURN_S)
        count = len(world.written())
        deletes = world.counters.deletes
        world.commit(RemoveTopicRecord(TOPIC_ID))
        await asyncio.sleep(TURN_S)
        assert world.store.objects == {}
        states = [
            PartitionDeleteState(one.remote_partition_delete_state)
            for one in world.written()[count:]
            if isinstance(one, RemotePartitionDeleteMetadataRecord)
        ]
        assert states == list(PartitionDeleteState)
        assert world.counters.deletes == deletes + 3
        assert dict(world.tier.segments()) == {}
        count = len(world.written())
        await asyncio.sleep(2 * TURN_S)
        assert len(world.written()) == count

    play(tmp_path, story)


@pytest.mark.parametrize(("waited_s", "is_cleared"), [(20, False), (62, True)])
def test_a_topic_that_was_deleted_long_ago_is_cleared_once_it_is_surely_gone(
    tmp_path: Path, waited_s: int, is_cleared: bool
) -> None:
    async def story(world: World) -> None:
        world.settings.remote_log_manager_task_interval_ms = 10_000
        world.topic.leaders = (NODE, NODE)
        world.topic.add_topic()
        world.tier.start()
        segment = RemoteSegment(b"s" * 16, 0, 9, 100, 5, (EpochStart(0, 0),))
        await world.topic.metadata.write(KEY, begun(TOPIC, KEY, segment))
        path = PLACE.object(0, segment.segment_id, "log")
        world.store.objects[path] = b"records"
        await asyncio.sleep(waited_s)
        assert (path not in world.store.objects) == is_cleared

    play(tmp_path, story)


def test_a_topic_that_appears_late_keeps_its_segments(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.settings.remote_log_manager_task_interval_ms = 10_000
        world.topic.leaders = (NODE, NODE)
        world.topic.add_topic()
        world.tier.start()
        segment = RemoteSegment(b"s" * 16, 0, 9, 100, 5, (EpochStart(0, 0),))
        await world.topic.metadata.write(KEY, begun(TOPIC, KEY, segment))
        await asyncio.sleep(25)
        world.create(leader=2)
        await asyncio.sleep(60)
        # It may be absent from the metadata for a while again, as after a restart.
        assert world.tier._absent_since == {}
        assert len(world.remote()) == 1

    play(tmp_path, story)


def test_a_topic_that_is_no_longer_tiered_is_cleared_if_it_is_set_to(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.topic.leaders = (NODE, NODE)
        await started(world)
        world.write(3)
        await asyncio.sleep(TURN_S)
        world.configure("remote.storage.enable", "false")
        await asyncio.sleep(2 * TURN_S)
        assert len(world.logs()) == 3
        world.configure("remote.log.delete.on.disable", "true")
        await asyncio.sleep(TURN_S)
        assert world.logs() == []
        # The topic is still there, and so is its document.
        assert list(world.store.objects) == [f"{PLACE.topic_directory}/topic.json"]
        assert not any(isinstance(one, RemotePartitionDeleteMetadataRecord) for one in world.written())
        count = len(world.written())
        await asyncio.sleep(2 * TURN_S)
        assert len(world.written()) == count

    play(tmp_path, story)


def test_only_the_leader_of_the_metadata_clears_what_is_gone(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.topic.leaders = (2, 2)
        await started(world)
        world.write(2)
        await asyncio.sleep(TURN_S)
        world.commit(RemoveTopicRecord(TOPIC_ID))
        await asyncio.sleep(4 * TURN_S)
        assert len(world.logs()) == 2

    play(tmp_path, story)


def test_records_are_read_from_the_tier_and_counted(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(2)
        await asyncio.sleep(TURN_S)
        found = await world.tier.read(world.partition(), 1, 1_000, committed_only=False)
        assert found is not None
        assert [header.base_offset for _, header in split_batches(found.data, 1_000)] == [1]
        assert found.aborted == []
        assert (world.counters.fetches, world.counters.fetched_bytes) == (1, len(found.data))
        assert (world.counters.fetch_errors, world.counters.fetch_timeouts) == (0, 0)
        committed = await world.tier.read(world.partition(), 0, 1_000, committed_only=True)
        assert committed is not None
        assert committed.aborted == []

    play(tmp_path, story)


def test_a_slow_read_is_answered_without_data_and_an_error_is_raised(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(2)
        await asyncio.sleep(TURN_S)
        world.store.delay_s = 10
        began_ms = world.env.passed_ms()
        assert await world.tier.read(world.partition(), 1, 1_000, committed_only=False) is None
        assert world.env.passed_ms() - began_ms == 500
        assert (world.counters.fetch_timeouts, world.counters.fetched_bytes) == (1, 0)
        await asyncio.sleep(30)
        world.store.delay_s, world.store.error = 0, StoreError("away")
        with pytest.raises(StoreError):
            await world.tier.read(world.partition(), 0, 1_000, committed_only=False)
        assert (world.counters.fetches, world.counters.fetch_errors) == (2, 1)

    play(tmp_path, story)


def test_no_more_reads_wait_for_the_store_than_may(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(3)
        await asyncio.sleep(TURN_S)
        world.store.delay_s = 10
        partition = world.partition()
        reads = [world.tier.read(partition, offset, 1_000, committed_only=False) for offset in (0, 1, 2)]
        assert await asyncio.gather(*reads) == [None, None, None]
        assert (world.counters.rejected_fetches, world.counters.fetch_timeouts) == (1, 2)
        # Those that gave up do not count any more.
        await world.tier.read(partition, 0, 1_000, committed_only=False)
        assert world.counters.rejected_fetches == 1

    play(tmp_path, story)


def test_nothing_is_read_before_the_metadata_is_loaded(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.create()
        await asyncio.sleep(1)
        partition = world.partition()
        assert not world.tier.is_loaded(partition)
        assert world.tier.copied_offset(partition) == -1
        assert world.tier.only_there_bytes(partition) == 0
        for work in (
            world.tier.read(partition, 0, 1_000, committed_only=False),
            world.tier.find_time(partition, 5),
        ):
            with pytest.raises(ApiError, match="still being loaded") as raised:
                await cast("Any", work)
            assert raised.value.code == ErrorCode.OFFSET_NOT_AVAILABLE

    play(tmp_path, story)


def test_records_are_found_by_time_in_time(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(1, age_ms=5_000)
        world.write(1)
        await asyncio.sleep(TURN_S)
        times = [one.max_timestamp_ms for one in world.remote().segments()]
        found = await world.tier.find_time(world.partition(), times[0] + 1)
        assert found is not None
        assert (found.offset, found.timestamp) == (1, times[1])
        world.store.delay_s = 100
        began_ms = world.env.passed_ms()
        with pytest.raises(ApiError, match="too long") as raised:
            await world.tier.find_time(world.partition(), times[0])
        assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert world.env.passed_ms() - began_ms == 30_000

    play(tmp_path, story)


def test_the_history_at_a_segments_end_is_found_by_epoch_and_offset(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(2)
        await asyncio.sleep(TURN_S)
        end, history = await world.tier.history(world.partition(), 0, 0)
        assert end == 1
        assert [tuple(entry) for entry in history.epochs] == [(0, 0)]
        with pytest.raises(StoreError, match="does not have 0 of epoch 1"):
            await world.tier.history(world.partition(), 1, 0)

    play(tmp_path, story)


def test_a_damaged_index_is_an_error_of_the_store(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await started(world)
        world.write(2)
        await asyncio.sleep(TURN_S)

        async def damaged(*_: Any) -> TierRead:
            raise DamagedIndexError("it is odd")

        world.reader.read = damaged  # type: ignore[method-assign,assignment]
        with pytest.raises(StoreError, match="an index in object storage is damaged: it is odd"):
            await world.tier.read(world.partition(), 0, 1_000, committed_only=False)
        assert world.counters.fetch_errors == 1

    play(tmp_path, story)
