"""A leader's registrations for its followers end with the connection, the session or the incarnation they belong to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from replication_world import LISTENER, TOPIC, TOPIC_ID, Broker, Cluster, in_cluster, until

from penstock.api.context import Client, RequestContext
from penstock.core.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from penstock.model.errors import ErrorCode
from penstock.runtime.replication.follower_fetch import FetchedPartition, _is_urgent
from penstock.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)


class Follower:
    """A connection of broker 2 to broker 1, for requests by hand."""

    def __init__(self, leader: Broker, broker_epoch: int = -1) -> None:
        self.leader = leader
        self.broker_epoch = broker_epoch
        self.client = Client(("127.0.0.1", 1), LISTENER)

    def send(self, session_id: int = 0, session_epoch: int = INITIAL_EPOCH, wait_ms: int = 0) -> Any:
        row = FetchPartition(0, 0, 0, partition_max_bytes=1_000, last_fetched_epoch=-1, log_start_offset=0)
        request = FetchRequest(
            replica_state=ReplicaState(2, self.broker_epoch),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1_000,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=[FetchTopic(TOPIC, TOPIC_ID, [row])],
        )
        return self.leader.fetch(request, RequestContext(17, None, self.client))

    def fetch(self, session_id: int = 0, session_epoch: int = INITIAL_EPOCH) -> int:
        """Fetch at once; returns the session's id."""
        response = self.send(session_id, session_epoch)
        assert isinstance(response, FetchResponse)
        assert not response.error_code
        return response.session_id


async def leader(cluster: Cluster) -> Broker:
    one, two = await cluster.start(1), await cluster.start(2)
    two.fetchers.stop()
    cluster.create((1, 2), isr=(1,))
    assert not one.partition.watchers
    return one


def test_a_session_ends_with_its_connection(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await leader(cluster)
        first, second = Follower(one), Follower(one)
        first.fetch()
        second.fetch()
        assert len(one.partition.watchers) == 2, "a follower may have several fetchers"
        first.client.closed()
        assert len(one.partition.watchers) == 1
        second.client.closed()
        assert not one.partition.watchers

    in_cluster(tmp_path, story)


def test_a_new_session_ends_the_one_that_it_names(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await leader(cluster)
        former, again = Follower(one), Follower(one)
        session_id = former.fetch()
        # The follower has noticed that the connection broke, and this broker has not.
        next_id = again.fetch(session_id)
        assert next_id not in (0, session_id)
        assert len(one.partition.watchers) == 1
        former.client.closed()
        assert len(one.partition.watchers) == 1

    in_cluster(tmp_path, story)


def test_the_sessions_of_an_incarnation_end_with_the_next_one(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await leader(cluster)
        registered = cluster.brokers[2].epoch
        for _ in range(3):
            Follower(one, registered).fetch()
        assert len(one.partition.watchers) == 3
        Follower(one, registered + 1).fetch()
        assert [watch.replica for watch in one.partition.watchers] == [2]

    in_cluster(tmp_path, story)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_fetch_without_a_session_leaves_nothing_behind(tmp_path: Path, *, is_closed: bool) -> None:
    async def story(cluster: Cluster) -> None:
        one = await leader(cluster)
        reply = Follower(one).send(session_epoch=FINAL_EPOCH, wait_ms=20)
        assert isinstance(reply, asyncio.Future)
        assert len(one.partition.watchers) == 1
        if is_closed:
            # What the dispatcher does when the connection closes.
            reply.cancel()
        await asyncio.wait([reply])
        await asyncio.sleep(0)
        assert not one.partition.watchers

    in_cluster(tmp_path, story)


def test_a_follower_that_connects_again_and_again_leaves_nothing_behind(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.create((1, 2))
        for number in range(5):
            await until(lambda: one.partition.watchers)
            known = set(one.partition.watchers)
            two.fetchers.stop()
            await until(lambda: not one.partition.watchers)
            two.follow_again()
            assert (await one.send(b"%d" % number)).error_code == 0
            assert len(one.partition.watchers) == 1
            assert not known & set(one.partition.watchers)

    in_cluster(tmp_path, story)


def test_the_fetches_of_a_session_are_counted(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await leader(cluster)
        follower = Follower(one)
        session_id = follower.fetch()
        (watch,) = one.partition.watchers
        assert (watch.replica, watch.fetch_count) == (2, 1)
        follower.fetch(session_id, INITIAL_EPOCH + 1)
        assert watch.fetch_count == 2

    in_cluster(tmp_path, story)


@pytest.mark.parametrize(
    ("data", "is_urgent"),
    [
        (PartitionData(0), False),
        (PartitionData(0, ErrorCode.FENCED_LEADER_EPOCH), True),
        (PartitionData(0, diverging_epoch=EpochEndOffset(0, 5)), True),
        (PartitionData(0, high_watermark=4, log_start_offset=2), False),
        (PartitionData(0, high_watermark=5, log_start_offset=2), True),
        (PartitionData(0, high_watermark=4, log_start_offset=3), True),
    ],
)
def test_errors_divergence_and_new_bounds_do_not_wait_for_records(data: PartitionData, is_urgent: bool) -> None:
    key: Any = "orders-0"
    is_cached = data.high_watermark > 0
    known = SimpleNamespace(high_watermark=4, log_start_offset=2)
    session = SimpleNamespace(partitions={key: known} if is_cached else {})
    for one in [session] if is_cached else [session, None]:
        fetch: Any = SimpleNamespace(session=one)
        assert _is_urgent(fetch, [FetchedPartition(key, data, 0)]) is is_urgent
