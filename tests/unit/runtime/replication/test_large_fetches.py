"""Fetches of so many partitions that they are served in pieces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from replication_world import SIZE, TOPIC, TOPIC_ID, Broker, Cluster, in_cluster

from penstock.api.context import Client, RequestContext
from penstock.api.records.fetch import AT_ONCE_MAX, PIECE_ROWS
from penstock.model.errors import ErrorCode
from penstock.runtime.replication.partition import Partition
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.wire.records import read_records

PARTITIONS = 3 * AT_ONCE_MAX
CONTEXT = RequestContext(12, "test", Client(("127.0.0.1", 1), "PLAINTEXT"))


def request(first: int, count: int, **options: Any) -> FetchRequest:
    partitions = [
        FetchPartition(number, fetch_offset=0, partition_max_bytes=SIZE) for number in range(first, first + count)
    ]
    return FetchRequest(topics=[FetchTopic(TOPIC, TOPIC_ID, partitions)], max_bytes=SIZE, **options)


async def turns_during(work: Any) -> tuple[Any, int]:
    """The result, and how many turns the event loop had in the meantime."""
    working = asyncio.ensure_future(work)
    turns = 0
    while not working.done():
        await asyncio.sleep(0)
        turns += 1
    return working.result(), turns


async def leader(cluster: Cluster) -> Broker:
    one = await cluster.start(1)
    cluster.create((1,), isr=(1,))
    await one.send(b"first")
    return one


def codes(response: FetchResponse) -> list[int]:
    return [row.error_code for topic in response.responses for row in topic.partitions]


def test_a_large_fetch_is_served_in_turns_at_once_and_in_its_session(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await leader(cluster)
        wanted = request(0, PARTITIONS, max_wait_ms=60_000, session_epoch=0)
        response, turns = await turns_during(one.fetch(wanted, CONTEXT))
        assert turns >= 2 * PARTITIONS // PIECE_ROWS
        rows = response.responses[0].partitions
        assert [row.partition_index for row in rows] == [*range(PARTITIONS)]
        assert codes(response) == [0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (PARTITIONS - 1)
        assert [record.value for record in read_records(rows[0].records, SIZE)] == [b"first"]
        again = FetchRequest(session_id=response.session_id, session_epoch=1, max_bytes=SIZE)
        response, turns = await turns_during(one.fetch(again, CONTEXT))
        assert turns >= 2 * PARTITIONS // PIECE_ROWS
        assert len(codes(response)) == PARTITIONS

    in_cluster(tmp_path, story)


def test_a_large_fetch_waits_for_records(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await leader(cluster)
        beyond = FetchPartition(0, fetch_offset=1, partition_max_bytes=SIZE)
        # The same partition over and over again: errors would end the wait.
        topics = [FetchTopic(TOPIC, TOPIC_ID, [beyond] * PARTITIONS)]
        wanted = FetchRequest(topics=topics, min_bytes=1, max_wait_ms=60_000, max_bytes=SIZE, session_epoch=-1)
        waiting = asyncio.ensure_future(one.fetch(wanted, CONTEXT))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await one.send(b"second")
        response = await asyncio.wait_for(waiting, 5)
        rows = response.responses[0].partitions
        assert [len(row.records) > 0 for row in rows[:1]] == [True]
        assert sum(len(row.records) for row in rows) <= SIZE
        partition: Partition = one.partition
        assert not partition._append_listeners, "nothing waits any more"

    in_cluster(tmp_path, story)
