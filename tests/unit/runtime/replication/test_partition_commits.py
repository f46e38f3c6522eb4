"""A leader's partition: when what waits for it is answered, who is told, and which metadata counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import Image, PartitionState, partition_record
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.logs.directories import begin_use, open_directory
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.metadata_records import TopicRecord
from penstock.wire.records import Record, build_batch
from support.virtual_time import VirtualEnv, run_virtually

NODE, OTHER, THIRD = 1, 2, 3
TOPIC, TOPIC_ID = "orders", b"o" * 16


class Watcher:
    def __init__(self) -> None:
        self.told: list[str] = []

    def grown(self, size_bytes: int) -> None:
        self.told.append(f"grown {size_bytes}")

    def moved(self) -> None:
        self.told.append("moved")

    def changed(self) -> None:
        self.told.append("changed")


class World:
    def __init__(self, env: VirtualEnv, path: Path) -> None:
        self.env, image = env, Image()
        directory = open_directory(env, path, b"d" * 16)
        begin_use(env, directory)
        partitions = Partitions(env, NODE, image, lambda: broker_defaults({}), [directory], 1 << 20)
        replicas = (NODE, OTHER, THIRD)
        self.known = PartitionState(replicas, replicas, NODE, 4, 6, (b"d" * 16, b"e" * 16, b"f" * 16))
        records = [TopicRecord(TOPIC, TOPIC_ID), partition_record(TOPIC_ID, 0, self.known)]
        for record in records:
            image.replay(record)
        partitions.follow(records)
        self.partitions = partitions

    @property
    def partition(self) -> Partition:
        found = self.partitions.get(TOPIC, 0)
        assert found is not None
        return found

    def write(self) -> int:
        """A record; the size of its batch."""
        batch = bytearray(build_batch([Record(0, 5, None, b"v")]))
        self.partition.append(batch, 5)
        return len(batch)

    def fetched(self, *replicas: int) -> None:
        leading = self.partition.leading
        assert leading is not None
        for replica in replicas:
            if leading.fetched(replica, self.partition.log.end_offset, self.env.monotonic_ms()):
                self.partition.committed_more()

    def settle(self, *in_sync: int, partition_epoch: int = 7, leader_epoch: int = 4) -> None:
        changed = self.known._replace(
            in_sync_replicas=in_sync, partition_epoch=partition_epoch, leader_epoch=leader_epoch
        )
        self.partition.settle(changed, self.env.monotonic_ms())


def play(path: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def run(env: VirtualEnv) -> None:
        world = World(env, path)
        await asyncio.sleep(0.1)
        await story(world)

    run_virtually(run)


def error_of(future: asyncio.Future[None]) -> ErrorCode:
    error = future.exception()
    assert isinstance(error, ApiError)
    return error.code


def test_what_waits_is_answered_as_the_high_watermark_passes_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.partition
        waiting = []
        for _ in range(3):
            world.write()
            waiting.append(partition.committed(partition.log.end_offset))
            world.fetched(OTHER)
        assert not any(one.done() for one in waiting)
        leading = partition.leading
        assert leading is not None
        assert leading.fetched(THIRD, 2, 0)
        partition.committed_more()
        assert [one.done() for one in waiting] == [True, True, False]
        assert partition.committed(2).done()
        assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)

    play(tmp_path, story)


def test_what_waits_fails_when_the_leadership_ends(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.partition
        world.write()
        waiting = partition.committed(1)
        start = partition.start_waiters.wait(1, sync=False)
        watcher = Watcher()
        partition.watch(watcher)
        partition.fence()
        assert error_of(waiting) is error_of(start) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert watcher.told == ["changed"]
        assert error_of(partition.committed(1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.unwatch(watcher)
        partition.fence()
        assert watcher.told == ["changed"]

    play(tmp_path, story)


def test_too_few_replicas_in_sync_are_an_error_after_the_append(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.partition
        partition.configure(replace(partition.settings, min_insync_replicas=2))
        world.write()
        waiting = partition.committed(1)
        world.settle(NODE, OTHER)
        assert not waiting.done()
        world.settle(NODE, partition_epoch=8)
        assert error_of(waiting) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        with pytest.raises(ApiError) as refused:
            partition.check_enough_replicas()
        assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.counters.in_sync_shrinks == 2

    play(tmp_path, story)


def test_outdated_metadata_changes_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.partition
        leading = partition.leading
        assert leading is not None
        world.settle(NODE, partition_epoch=5)
        world.settle(NODE, leader_epoch=3)
        world.settle(NODE, leader_epoch=5)
        assert leading.in_sync_replicas == {NODE, OTHER, THIRD}
        # In the same epoch of the partition only what a proposal's answer does not have counts.
        world.settle(NODE, partition_epoch=6)
        assert leading.in_sync_replicas == {NODE, OTHER, THIRD}
        assert partition.partition_epoch == 6
        world.settle(NODE, OTHER, partition_epoch=7)
        assert (leading.in_sync_replicas, partition.partition_epoch) == ({NODE, OTHER}, 7)
        assert not partition.make_leader(NODE, world.known, 0)

    play(tmp_path, story)


def test_a_leader_that_becomes_the_only_replica_in_sync_syncs(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.partition
        world.write()
        syncs = partition.sync.syncs
        world.settle(NODE, OTHER)
        await asyncio.sleep(1)
        assert partition.sync.syncs == syncs
        waiting = partition.committed(1)
        world.settle(NODE, partition_epoch=8)
        # It is committed, and acknowledged once it is on disk.
        assert partition.high_watermark == 1
        assert not waiting.done()
        await asyncio.sleep(1)
        assert waiting.done()
        assert partition.log.flushed_offset == 1
        world.write()
        assert partition.committed(2, sync=False).done()
        assert not partition.committed(2).done()

    play(tmp_path, story)


def test_readers_are_notified_of_how_many_bytes_were_committed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.partition
        first = world.write()
        told: list[int] = []
        partition.listen(told.append)
        second = world.write()
        third = world.write()
        leading = partition.leading
        assert leading is not None
        world.fetched(OTHER)
        assert told == []
        # Before the log's end it is not known how many.
        assert leading.fetched(THIRD, 1, 0)
        partition.committed_more()
        assert told == [1]
        world.fetched(THIRD)
        assert told == [1, second + third]
        fourth = world.write()
        world.fetched(OTHER, THIRD)
        assert told == [1, second + third, fourth]
        partition.unlisten(told.append)
        world.write()
        again: list[int] = []
        partition.listen(again.append)
        fifth = world.write()
        world.fetched(OTHER, THIRD)
        assert first
        assert again[-1] >= fifth

    play(tmp_path, story)


def test_the_end_of_an_epoch_and_reads_are_bounded_by_what_is_committed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        partition = world.partition
        for _ in range(2):
            world.write()
        found = partition.read(0, 1_000, committed_only=False, minimum_one_batch=True)
        assert found.read() == b""
        world.fetched(OTHER, THIRD)
        size = world.write()
        for committed_only in (False, True):
            data = partition.read(0, 1_000, committed_only=committed_only, minimum_one_batch=True).read()
            assert len(data) == 2 * size
        with pytest.raises(ApiError) as refused:
            partition.read(4, 1_000, committed_only=False, minimum_one_batch=True)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    play(tmp_path, story)
