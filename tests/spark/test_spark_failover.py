"""Reads continue while brokers crash, restart and hand over leadership: an executor's part, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.client.cluster import ClusterClient
from penstock.client.operations.offsets import LATEST
from penstock.client.settings import read_settings
from penstock.model.ids import TopicPartition
from penstock.spark.fetching import OffsetRange, RangeFetcher
from penstock.testing import Cluster
from support.spark.topics import numbered, write

pytest.importorskip("pyarrow")

from penstock.spark.arrow import record_batch

COUNT = 5000


def client_for(cluster: Cluster) -> ClusterClient:
    return ClusterClient(read_settings({"bootstrap.servers": cluster.bootstrap_servers}))


def offsets(client: ClusterClient, topic: str) -> Iterator[list[int]]:
    """The offsets of a topic's only partition, in the pieces that arrive."""
    fetcher = RangeFetcher(
        client,
        OffsetRange(topic, 0, 0, COUNT),
        read_committed=False,
        headers=False,
        fail_on_data_loss=True,
        patience_seconds=60,
        fetch_bytes=20_000,
    )
    for columns, timestamp_type in fetcher.columns():
        yield record_batch(columns, topic, 0, timestamp_type).column("offset").to_pylist()


def fill(cluster: Cluster) -> str:
    topic = cluster.create_topic()
    write(cluster.bootstrap_servers, topic, numbered(COUNT), {"batch.num.messages": 50, "acks": "all"})
    return topic


def test_read_waits_for_a_crashed_broker_to_return() -> None:
    with Cluster() as cluster:
        topic = fill(cluster)
        client = client_for(cluster)
        pieces = offsets(client, topic)
        seen = next(pieces)
        assert len(seen) < COUNT
        cluster.kill()
        cluster.start()
        for piece in pieces:
            seen += piece
        assert seen == list(range(COUNT))
        client.close()


def test_read_follows_a_new_leader() -> None:
    with Cluster(nodes=3) as cluster:
        topic = fill(cluster)
        client = client_for(cluster)
        pieces = offsets(client, topic)
        seen = next(pieces)
        address = str(client.leader(TopicPartition(topic, 0)).address)
        leader = next(node for node in cluster.node_ids if cluster.address(node) == address)
        cluster.kill(leader)
        for piece in pieces:
            seen += piece
        assert seen == list(range(COUNT))
        assert client.offsets({TopicPartition(topic, 0): LATEST}) == {TopicPartition(topic, 0): COUNT}
        client.close()


def test_abandoned_read_leaves_no_pending_response() -> None:
    with Cluster() as cluster:
        topic = fill(cluster)
        client = client_for(cluster)
        pieces = offsets(client, topic)
        next(pieces)
        pieces.close()  # type: ignore[attr-defined]
        assert next(offsets(client, topic))[0] == 0
        client.close()
