"""A partition that changes roles: what waits for it, and which metadata it takes no notice of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from replication_world import TOPIC_ID, Cluster, in_cluster, until

from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.follower_fetch import FollowerFetch
from penstock.wire.messages.metadata_records import RemoveTopicRecord
from penstock.wire.record_types import InvalidRecords
from penstock.wire.records import Record, build_batch


def test_what_waits_for_a_partition_that_is_deleted_fails_at_once(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        cluster.refuse_proposals = True
        await until(lambda: two.partition.log.end_offset == 0)
        two.fetchers.stop()
        partition = one.partition
        waiting = asyncio.ensure_future(one.send(b"x", timeout_ms=60_000))
        await until(lambda: partition.log.end_offset == 1)
        start_reached = partition.start_waiters.wait(1, sync=False)
        cluster.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
        row = await waiting
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(ApiError) as failed:
            await start_reached
        assert failed.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not partition.is_leader

    in_cluster(tmp_path, story)


@pytest.mark.parametrize("is_left_alone", [True, False])
def test_what_waits_is_answered_when_the_leader_continues_in_a_new_epoch(tmp_path: Path, is_left_alone: bool) -> None:
    """The replica that it waited for was removed; or it left the in-sync replicas, of which there are too few then."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2), min_in_sync=1 if is_left_alone else 2)
        cluster.refuse_proposals = True
        await until(lambda: two.partition.log.end_offset == 0)
        two.fetchers.stop()
        partition = one.partition
        waiting = asyncio.ensure_future(one.send(b"x", timeout_ms=60_000))
        await until(lambda: partition.log.end_offset == 1)
        epoch = partition.leader_epoch
        if is_left_alone:
            cluster.change(leader=1, isr=[1], replicas=[1])
        else:
            cluster.change(leader=1, isr=[1])
        assert partition.leader_epoch == epoch + 1
        row = await asyncio.wait_for(waiting, 20)
        assert row.error_code == (0 if is_left_alone else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    in_cluster(tmp_path, story)


def test_a_follower_takes_no_notice_of_earlier_leader_epochs(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        await cluster.start(2)
        cluster.create((1, 2))
        old = cluster.state
        cluster.change(leader=2)
        partition, new = one.partition, cluster.state
        assert new.leader_epoch > old.leader_epoch
        assert (partition.leader_id, partition.leader_epoch) == (2, new.leader_epoch)
        assert partition.make_follower(old) is False
        assert partition.make_follower(new) is False, "it follows this leader already"
        assert (partition.leader_id, partition.leader_epoch) == (2, new.leader_epoch)
        assert partition.make_follower(new._replace(leader_epoch=new.leader_epoch + 1)) is True

    in_cluster(tmp_path, story)


def test_a_follower_that_was_answered_is_no_longer_parked(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        owners = [getattr(listener, "__self__", None) for listener in one.partitions._on_leader]
        (followers,) = [owner for owner in owners if isinstance(owner, FollowerFetch)]
        for number in range(3):
            # It waits for more, and gets it.
            await until(lambda: any(followers._parked.values()))
            await one.send(b"%d" % number)
        await until(lambda: two.partition.log.end_offset == 3)
        two.fetchers.stop()
        await until(lambda: not any(followers._parked.values()))

    in_cluster(tmp_path, story)


def test_a_batch_that_no_client_may_write_is_refused_on_the_inline_path_too(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        cluster.create((1,))
        control = build_batch([Record(0, 5, b"\0\0\0\0", b"\0\0\0\0\0\0")], control=True, producer_id=7)
        with pytest.raises(InvalidRecords, match="control"):
            one.partition.append(bytearray(control), 5)
        assert one.partition.log.end_offset == 0
        one.partition.append(bytearray(build_batch([Record(0, 5, None, b"v")])), 5)
        assert one.partition.log.end_offset == 1

    in_cluster(tmp_path, story)
