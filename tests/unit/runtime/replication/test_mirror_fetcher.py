"""What a mirror's leader makes of the answers of a scripted source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from struct import pack_into
from typing import Any

import pytest
from replication_world import TOPIC, Broker, Cluster, in_cluster, until

from penstock.client.address import Address
from penstock.core.link.mirror import MirrorPhase
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.link.fetcher import LinkCounters, Mirror, SourceFetcher
from penstock.runtime.link.source import EARLIEST
from penstock.runtime.replication.mirroring import restarted, restarting_at, restarting_before
from penstock.storage.files import StorageError
from penstock.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.wire.records import HEADER_SIZE, Record, build_batch, crc32c

SOURCE_TOPIC_ID = b"source--source--"
Answer = Callable[[FetchPartition], PartitionData]


def batch(offset: int, *values: str, epoch: int = 3) -> bytes:
    """A batch as the source has it."""
    rows = [Record(offset + number, 1_000, b"key", value.encode()) for number, value in enumerate(values)]
    return build_batch(rows, base_offset=offset, leader_epoch=epoch)


def emptied(data: bytes) -> bytes:
    """The batch once compaction has removed all of its records."""
    made = bytearray(data[:HEADER_SIZE])
    pack_into(">i", made, 8, HEADER_SIZE - 12)
    pack_into(">i", made, HEADER_SIZE - 4, 0)
    pack_into(">I", made, 17, crc32c(memoryview(made)[21:]))
    return bytes(made)


class ScriptedSource:
    """Answers each fetch with the next of `answers`; when there is none left, it does not answer."""

    timeout_ms = 60_000

    def __init__(self, *answers: Answer, start: int = 0, end: int = 0) -> None:
        self.brokers = {1: Address("source", 1)}
        self.answers = list(answers)
        self.requests: list[FetchPartition] = []
        self.start, self.end = start, end

    def leader(self, _: TopicPartition) -> tuple[int, int]:
        return 1, 7

    async def ask_at(self, _: Address, request: FetchRequest, *__: object, **___: object) -> FetchResponse:
        (topic,) = request.topics
        (row,) = topic.partitions
        self.requests.append(row)
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)(row)
        return FetchResponse(responses=[FetchableTopicResponse(TOPIC, SOURCE_TOPIC_ID, [answer])])

    async def list_offset(self, _: TopicPartition, timestamp: int, **__: object) -> int:
        return self.start if timestamp == EARLIEST else self.end


def records(data: bytes, end: int, start: int = 0) -> Answer:
    return lambda _: PartitionData(high_watermark=end, log_start_offset=start, records=memoryview(data))


def refused(code: ErrorCode) -> Answer:
    return lambda _: PartitionData(error_code=code)


async def mirrored(broker: Broker, source: ScriptedSource) -> Mirror:
    """Mirror from the source until it has no more answers, and has been asked once more."""
    fake: Any = source
    counters = LinkCounters()
    fetcher = SourceFetcher(broker.env, broker.partitions, fake, 1, 1 << 20, counters, lambda _: True, lambda: None)
    mirror = Mirror(broker.partition, SOURCE_TOPIC_ID, broker.partition.leader_epoch)
    wanted = len(source.answers) + 1
    fetcher.add(mirror)
    await until(lambda: len(source.requests) == wanted, 20)
    fetcher.close()
    return mirror


def test_the_epoch_of_batches_without_records_is_taken(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        source = ScriptedSource(records(batch(0, "a"), 3), records(emptied(batch(1, "b", "c", epoch=5)), 3))
        mirror = await mirrored(one, source)
        assert one.partition.log.end_offset == 3
        assert mirror.state.last_epoch == 5
        assert [(row.fetch_offset, row.last_fetched_epoch) for row in source.requests] == [(0, -1), (1, 3), (3, 5)]

    in_cluster(tmp_path, story)


def test_a_mirror_whose_epoch_the_source_refuses_compares_its_last_batch_again(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        first, second = batch(0, "a", "b"), batch(2, "c", epoch=6)
        source = ScriptedSource(
            records(first, 2),
            refused(ErrorCode.OFFSET_OUT_OF_RANGE),
            records(batch(0, "a", "b", epoch=4) + second, 3),
            end=3,
        )
        mirror = await mirrored(one, source)
        assert one.values() == [b"a", b"b", b"c"]
        assert mirror.state.phase(is_paused=False, is_promoting=False) is MirrorPhase.MIRRORING
        asked = [(row.fetch_offset, row.last_fetched_epoch) for row in source.requests]
        assert asked == [(0, -1), (2, 3), (1, -1), (3, 6)]

    in_cluster(tmp_path, story)


def test_a_source_that_starts_within_a_batch_is_mirrored_from_there_on(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        data = batch(0, "a", "b", "c", "d", "e") + batch(5, "f")
        source = ScriptedSource(
            refused(ErrorCode.OFFSET_OUT_OF_RANGE), records(data, 6, 3), records(batch(6, "g"), 7, 4), start=3, end=6
        )
        mirror = await mirrored(one, source)
        assert [row.fetch_offset for row in source.requests] == [0, 3, 6, 7]
        assert mirror.state.problem == ""
        await until(lambda: one.partition.high_watermark == 7, 20)
        await until(lambda: two.partition.log.end_offset == 7 and two.partition.log.start_offset >= 3, 20)
        for broker in (one, two):
            assert broker.partition.log.read(3, 1 << 20).read()[:8] == bytes(8)
            assert broker.values() == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]

    in_cluster(tmp_path, story)


def test_a_mirror_that_stood_still_within_a_batch_continues_after_a_restart(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        partition = one.partition
        steps = restarting_at(partition, 3, one.env.now_ms())
        await one.partitions.carry_out(partition, steps, lambda: restarted(partition), 3)
        await one.crash()
        one = await cluster.start(1)
        assert (one.partition.log.start_offset, one.partition.log.end_offset) == (3, 3)
        damaged = bytearray(batch(0, "a", "b", "c", "d", "e"))
        damaged[-1] ^= 1
        whole = batch(0, "a", "b", "c", "d", "e")
        negative = batch(-2, "a", "b", "c", "d", "e", "f")
        # Neither a damaged batch nor one past the source's end has the log start again.
        refused_ones = [records(bytes(damaged), 5, 3), records(whole, 4, 3), records(negative, 5, 3)]
        source = ScriptedSource(*refused_ones, records(whole, 5, 3))
        mirror = await mirrored(one, source)
        assert [row.fetch_offset for row in source.requests] == [3, 3, 3, 3, 5]
        assert mirror.state.last_epoch == 3
        log = one.partition.log
        assert (log.start_offset, log.end_offset, one.partition.high_watermark) == (3, 5, 5)
        assert one.partition.leading is not None
        assert one.partition.leading.acknowledged_offset == 5
        one.partition.log.flush()
        await one.crash()
        again = await cluster.start(1)
        assert again.partition.log.end_offset == 5
        assert (await again.send(b"own")).base_offset == 5

    in_cluster(tmp_path, story)


def test_a_crash_while_a_log_starts_again_before_its_start_leaves_it_as_it_was(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        partition = one.partition
        steps = restarting_at(partition, 3, one.env.now_ms())
        await one.partitions.carry_out(partition, steps, lambda: restarted(partition), 3)

        def crash() -> None:
            raise StorageError("the power fails")

        steps = restarting_before(partition, 0, one.env.now_ms())
        with pytest.raises(StorageError):
            await one.partitions.carry_out(partition, steps, crash, 3)
        await one.crash()
        for _ in range(2):
            one = await cluster.start(1)
            assert (one.partition.log.start_offset, one.partition.log.end_offset) == (3, 3)
            assert one.partition.high_watermark == 3
            await one.crash()

    in_cluster(tmp_path, story)
