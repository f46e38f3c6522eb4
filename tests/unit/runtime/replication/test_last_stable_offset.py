"""When a transaction is over for readers: with its marker below the high watermark, on any leader."""

from __future__ import annotations

from pathlib import Path

from replication_world import Broker, Cluster, in_cluster, until

from penstock.core.replica.producer_state import EndMarker
from penstock.wire.records import Record, build_batch

COMMIT = EndMarker(False, 0, transaction_version=0)


def write(broker: Broker, producer_id: int) -> None:
    batch = build_batch(
        [Record(0, broker.env.now_ms(), b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    broker.partition.append(bytearray(batch), broker.env.now_ms())


def test_a_marker_that_could_still_be_lost_ends_nothing_and_a_new_leader_continues_from_it(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        cluster.refuse_proposals = True
        write(one, 7)
        await until(lambda: two.partition.high_watermark == 1)
        assert (one.partition.last_stable_offset, two.partition.last_stable_offset) == (0, 0)
        two.fetchers.stop()
        one.partition.append_marker(7, 0, COMMIT, one.env.now_ms())
        write(one, 8)
        assert one.partition.log.producers.first_undecided_offset == 2
        assert (one.partition.high_watermark, one.partition.last_stable_offset) == (1, 0)
        two.follow_again()
        await until(lambda: one.partition.high_watermark == 3)
        assert one.partition.last_stable_offset == 2
        await until(lambda: two.partition.high_watermark == 3)
        cluster.change(leader=2)
        assert two.partition.last_stable_offset == 2
        two.partition.append_marker(8, 0, COMMIT, two.env.now_ms())
        await until(lambda: two.partition.last_stable_offset == 4)

    in_cluster(tmp_path, story)


def test_a_leader_that_has_a_marker_which_it_does_not_know_to_be_committed_waits(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three = [await cluster.start(number) for number in (1, 2, 3)]
        cluster.create((1, 2, 3))
        cluster.refuse_proposals = True
        write(one, 7)
        await until(lambda: two.partition.high_watermark == three.partition.high_watermark == 1)
        three.fetchers.stop()
        one.partition.append_marker(7, 0, COMMIT, one.env.now_ms())
        await until(lambda: two.partition.log.end_offset == 2)
        cluster.change(leader=2)
        assert (two.partition.high_watermark, two.partition.last_stable_offset) == (1, 0)
        three.follow_again()
        await until(lambda: two.partition.last_stable_offset == 2)

    in_cluster(tmp_path, story)
