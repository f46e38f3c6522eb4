"""A leader appends the source's batches as they are, its followers have the same, and nothing else gets in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from replication_world import TOPIC, TOPIC_ID, Broker, Cluster, in_cluster

from penstock.core.metadata.links import MirrorState
from penstock.core.replica.producer_state import EndMarker, RefusedBatch
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.replication.mirroring import (
    abort_transaction,
    append_mirrored,
    check_own_producer,
    first_batch,
    follow_start,
    last_batch,
    mirrored_end,
    open_transactions,
    restarted,
    restarting_at,
)
from penstock.storage.producers.replay import build_end_marker
from penstock.wire.messages.metadata_records import MirrorTopicRecord
from penstock.wire.records import CorruptBatch, Record, build_batch, patch, read_header

SOURCE_EPOCH = 17
PRODUCER = 7
MIRROR = MirrorTopicRecord(topic_id=TOPIC_ID, link_id=b"l" * 16, link_name="eu", state=MirrorState.MIRRORING)


def batch(
    offset: int,
    *values: str,
    epoch: int = 3,
    sequence: int = 0,
    transactional: bool = False,
    producer_id: int = PRODUCER,
) -> bytes:
    """A batch as the source has it."""
    records = [Record(number, 1_000 + number, b"key", value.encode()) for number, value in enumerate(values)]
    made = bytearray(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )
    patch(made, 0, offset, SOURCE_EPOCH)
    return bytes(made)


def marker(offset: int, *, aborted: bool) -> bytes:
    made = bytearray(build_end_marker(PRODUCER, 3, EndMarker(aborted, 5), 2_000))
    patch(made, 0, offset, SOURCE_EPOCH)
    return bytes(made)


def mirror(broker: Broker, data: bytes, end: int = 1_000) -> int:
    return append_mirrored(broker.partition, memoryview(data), end, broker.env.now_ms()).records


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_batches_keep_everything_but_the_leader_epoch_on_every_replica(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        # Compaction at the source has left gaps, also before the first batch.
        sent = [batch(5, "a", "b"), batch(20, "c", sequence=2), batch(30, "d", transactional=True, sequence=3)]
        sent.append(marker(31, aborted=True))
        assert mirror(one, b"".join(sent)) == 5
        await until(lambda: two.partition.log.end_offset == 32)
        await until(lambda: one.partition.high_watermark == 32)
        for broker in (one, two):
            assert broker.values()[:4] == [b"a", b"b", b"c", b"d"]
            found, theirs = last_batch(broker.partition), first_batch(memoryview(sent[-1]))
            assert theirs is not None
            assert theirs.leader_epoch == SOURCE_EPOCH
            assert found == theirs._replace(leader_epoch=broker.partition.leader_epoch)
            aborted = broker.partition.log.aborted.overlapping(0, 100)
            assert [(one.first_offset, one.last_offset) for one in aborted] == [(30, 31)]
            assert broker.partition.log.epochs.latest == broker.partition.leader_epoch

    in_cluster(tmp_path, story)


def test_what_the_source_repeats_or_damages_changes_nothing(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        first, second = batch(0, "a", "b"), batch(2, "c", sequence=2)
        assert mirror(one, first) == 2
        # An answer may begin with a batch that is here, and end within one.
        assert mirror(one, first + second[:-1]) == 0
        assert mirror(one, first + second) == 1
        damaged = bytearray(batch(3, "d", sequence=3))
        damaged[-1] ^= 1
        before = batch(2, "x", "y", "z", sequence=2)
        for data in (bytes(damaged), before):
            with pytest.raises(CorruptBatch):
                mirror(one, data)
        with pytest.raises(CorruptBatch):
            mirror(one, batch(3, "d", sequence=3), end=3)
        assert one.values() == [b"a", b"b", b"c"]

    in_cluster(tmp_path, story)


def test_batches_with_huge_gaps_are_appended_one_segment_after_the_other(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        large = "x" * 5_000  # Each batch gets an entry of the index.
        offsets = (0, 2**40, 2**40 + 2**33)
        data = b"".join(batch(offset, large, sequence=number) for number, offset in enumerate(offsets))
        for offset in offsets:
            assert mirror(one, data, 2**62) == 1
            assert one.partition.log.end_offset == offset + 1
        assert (await one.send(b"more")).error_code == 0
        await until(lambda: two.partition.log.end_offset == one.partition.log.end_offset)
        assert len(two.values()) == 4

    in_cluster(tmp_path, story)


def test_batches_of_more_producers_than_a_partition_may_have_wait_until_there_is_room(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        partition = one.partition
        partition.producer_ids_max = 2
        sent = [batch(number, str(number), producer_id=100 + number) for number in range(3)]
        known = batch(3, "known", producer_id=100, sequence=1)
        assert mirror(one, b"".join([*sent, known])) == 2
        assert (partition.log.end_offset, len(partition.log.producers)) == (2, 2)
        for _ in range(2):
            with pytest.raises(ApiError, match=r"penstock\.partition\.producer\.ids\.max") as refused:
                mirror(one, sent[2])
            assert refused.value.code == ErrorCode.POLICY_VIOLATION
        assert (partition.log.end_offset, len(partition.log.producers)) == (2, 2)
        # Neither known producers nor batches without one are refused.
        assert mirror(one, batch(2, "known", producer_id=101, sequence=1) + batch(3, "plain", producer_id=-1)) == 2
        partition.producer_ids_max = 3
        assert mirror(one, batch(4, "new", producer_id=102)) == 1

    in_cluster(tmp_path, story)


def test_a_former_leader_mirrors_nothing(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        assert mirror(one, batch(0, "a")) == 1
        await until(lambda: two.partition.log.end_offset == 1)
        cluster.change(leader=2)
        with pytest.raises(ApiError) as refused:
            mirror(one, batch(1, "b", sequence=1))
        assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert mirror(two, batch(1, "b", sequence=1)) == 1
        await until(lambda: one.values() == [b"a", b"b"])

    in_cluster(tmp_path, story)


def test_a_mirror_starts_again_with_its_followers(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        mirror(one, batch(0, "old"))
        await until(lambda: one.partition.high_watermark == 1)
        partition = one.partition
        steps = restarting_at(partition, 500, one.env.now_ms())
        await one.partitions.carry_out(partition, steps, lambda: restarted(partition), 500)
        assert (partition.log.start_offset, partition.log.end_offset, partition.high_watermark) == (500, 500, 500)
        assert mirror(one, batch(510, "new")) == 1
        await until(lambda: two.partition.log.start_offset == 500 and two.values() == [b"new"])
        await until(lambda: partition.high_watermark == 511)
        follow_start(partition, 511)
        await until(lambda: two.partition.log.start_offset == 511)

    in_cluster(tmp_path, story)


def test_a_mirror_that_started_again_is_there_after_a_crash(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        mirror(one, batch(0, "old"))
        partition = one.partition
        steps = restarting_at(partition, 500, one.env.now_ms())
        await one.partitions.carry_out(partition, steps, lambda: restarted(partition), 500)
        mirror(one, batch(500, "new"))
        await one.crash()
        again = await cluster.start(1)
        assert (again.partition.log.start_offset, again.values()) == (500, [b"new"])

    in_cluster(tmp_path, story)


def test_what_was_open_at_the_cut_is_aborted_and_its_producer_fenced(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        mirror(one, batch(0, "open", transactional=True) + batch(1, "plain", producer_id=8))
        cluster.commit(MIRROR._replace(state=MirrorState.STOPPED, stopped_epochs=[1]))
        cluster.change(leader=1)
        partition, now_ms = one.partition, one.env.now_ms()
        end = mirrored_end(partition, 1)
        assert end == 2
        (entry,) = open_transactions(partition, end)
        assert partition.last_stable_offset == 0
        abort_transaction(partition, entry, now_ms)
        assert open_transactions(partition, end) == []
        assert partition.last_stable_offset == 3
        # A zombie of the source cannot write, and what it repeats of the other producer is known.
        refused = partition.log.producers.check(read_header(batch(0, "late", transactional=True, sequence=1)))
        assert isinstance(refused, RefusedBatch)
        assert refused.code == ErrorCode.INVALID_PRODUCER_EPOCH
        repeated = bytearray(batch(0, "plain", producer_id=8))
        assert partition.append(repeated, now_ms).base_offset == 1
        # The end stays the same, whatever is written here, and whoever leads.
        assert (await one.send(b"own")).error_code == 0
        cluster.change(leader=1)
        assert mirrored_end(partition, 1) == end

    in_cluster(tmp_path, story)


def test_an_own_producer_with_a_mirrored_id_is_refused_and_others_are_not(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        mirror(one, batch(0, "theirs"))
        cluster.change(leader=1)
        partition = one.partition
        with pytest.raises(ApiError) as refused:
            check_own_producer(partition, PRODUCER, 1_000, 1)
        assert refused.value.code == ErrorCode.UNKNOWN_PRODUCER_ID
        check_own_producer(partition, PRODUCER, PRODUCER, 1)  # Given out after the link was made.
        check_own_producer(partition, PRODUCER + 1, 1_000, 1)
        check_own_producer(partition, -1, 1_000, 1)

    in_cluster(tmp_path, story)


def test_producers_write_a_mirror_only_in_the_epoch_of_its_promotion(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        cluster.commit(MIRROR)
        assert (await one.send(b"refused")).error_code == ErrorCode.POLICY_VIOLATION
        assert "link eu" in str(one.last_response)
        one.image.replay(MIRROR._replace(state=MirrorState.STOPPED, stopped_epochs=[1]))
        assert (await one.send(b"too early")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.change(leader=1)
        assert (await one.send(b"accepted")).error_code == 0
        one.image.links.check_writable(TOPIC_ID, TopicPartition(TOPIC, 0), 1)

    in_cluster(tmp_path, story)
