"""Links survive leaders that are killed, on both sides: nothing is missing, doubled or moved to another offset."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from link_pair import (
    PATIENCE_S,
    alter,
    batches,
    batches_or_none,
    end_of,
    link,
    partitions,
    produce,
    wait_until_equal,
)

from penstock.runtime.controller.links import LinkAction
from penstock.testing import Cluster
from support.processes import eventually

PARTITIONS = 3


@pytest.fixture(scope="module")
def source() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture
def replicated() -> Iterator[Cluster]:
    """A destination whose partitions have three replicas."""
    with Cluster({"default.replication.factor": "3", "min.insync.replicas": "2"}, nodes=3) as running:
        yield running


def leader_of(cluster: Cluster, topic: str, partition: int = 0) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    return int(admin.list_topics(topic, timeout=20).topics[topic].partitions[partition].leader)


def undecided(cluster: Cluster, topic: str) -> Producer:
    """A transaction that stays open."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, "undecided", partition=partition)
    producer.flush(20)
    return producer


def test_leaders_of_mirrors_are_killed(source: Cluster, replicated: Cluster) -> None:
    topic = source.create_topic(partitions=PARTITIONS)
    produce(source, topic, [str(n) for n in range(100)])
    link(source, replicated, topic)
    for partition in range(PARTITIONS):
        wait_until_equal(source, replicated, topic, partition)
    killed = leader_of(replicated, topic)
    replicated.kill(killed)
    produce(source, topic, [str(n) for n in range(100)])
    for partition in range(PARTITIONS):
        wait_until_equal(source, replicated, topic, partition)
    replicated.start(killed)
    # Cut off in the middle of a transaction, with a leader that dies before it has aborted it.
    producer = undecided(source, topic)
    for partition in range(PARTITIONS):
        wait_until_equal(source, replicated, topic, partition)
    expected = [batches(source, topic, partition) for partition in range(PARTITIONS)]
    cut = [end_of(source, topic, partition) for partition in range(PARTITIONS)]
    assert list(alter(replicated, LinkAction.FAILOVER).topics) == [topic]
    replicated.kill(leader_of(replicated, topic))
    assert eventually(
        lambda: (
            [(row.mirrored_offset, row.open_transactions) for _, row in sorted(partitions(replicated, topic).items())]
            == [(end, 0) for end in cut]
        ),
        PATIENCE_S,
    )
    for partition, before in enumerate(expected):
        assert batches(replicated, topic, partition)[: len(before)] == before
    produce(replicated, topic, ["own"] * 30)
    producer.abort_transaction(20)


def test_leaders_at_the_source_are_killed() -> None:
    with Cluster(nodes=3) as source, Cluster() as destination:
        topic = source.create_topic(partitions=PARTITIONS, configs={"min.insync.replicas": "2"})
        produce(source, topic, [str(n) for n in range(100)])
        link(source, destination, topic)
        for partition in range(PARTITIONS):
            wait_until_equal(source, destination, topic, partition)
        source.kill(leader_of(source, topic))
        produce(source, topic, [str(n) for n in range(100)])
        for partition in range(PARTITIONS):
            wait_until_equal(source, destination, topic, partition)


def test_a_promotion_is_completed_by_another_leader(source: Cluster, replicated: Cluster) -> None:
    topic = source.create_topic(partitions=PARTITIONS)
    produce(source, topic, [str(n) for n in range(100)])
    link(source, replicated, topic)
    for partition in range(PARTITIONS):
        wait_until_equal(source, replicated, topic, partition)
    source.pause()
    try:
        assert list(alter(replicated, LinkAction.PROMOTE).topics) == [topic]
        replicated.kill(leader_of(replicated, topic))
    finally:
        source.resume()
    ends = [end_of(source, topic, partition) for partition in range(PARTITIONS)]
    assert eventually(
        lambda: (
            [(row.state, row.mirrored_offset) for _, row in sorted(partitions(replicated, topic).items())]
            == [("stopped", end) for end in ends]
        ),
        PATIENCE_S,
    )
    produce(replicated, topic, ["own"] * 30)


def test_a_mirror_that_the_source_has_overtaken_starts_again_on_all_replicas(
    source: Cluster, replicated: Cluster
) -> None:
    topic = source.create_topic()
    produce(source, topic, ["old"] * 10)
    link(source, replicated, topic)
    wait_until_equal(source, replicated, topic)
    assert alter(replicated, LinkAction.PAUSE).error_code == 0
    assert eventually(lambda: partitions(replicated, topic)[0].state == "paused", PATIENCE_S)
    produce(source, topic, ["deleted"] * 10)
    deleted = TopicPartition(topic, 0, end_of(source, topic))
    admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
    admin.delete_records([deleted])[deleted].result(20)
    produce(source, topic, ["kept"])
    assert alter(replicated, LinkAction.RESUME).error_code == 0
    assert eventually(lambda: (batches_or_none(replicated, topic, 0) or [None])[-1] == batches(source, topic)[-1], 30)
    wait_until_equal(source, replicated, topic)
    # Also with another leader, and after a restart of all.
    replicated.kill(leader_of(replicated, topic))
    wait_until_equal(source, replicated, topic)
    replicated.kill()
    replicated.start()
    produce(source, topic, ["more"])
    wait_until_equal(source, replicated, topic)


def test_a_source_that_lost_records_stops_the_mirror(source: Cluster, replicated: Cluster) -> None:
    topic = source.create_topic()
    produce(source, topic, [str(n) for n in range(50)])
    link(source, replicated, topic)
    wait_until_equal(source, replicated, topic)
    before = batches(replicated, topic)
    admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(20)
    source.create_topic(topic)
    produce(source, topic, ["other"] * 500)
    assert eventually(lambda: partitions(replicated, topic)[0].state == "failed", PATIENCE_S)
    assert "deleted at the source" in partitions(replicated, topic)[0].reason
    assert batches(replicated, topic) == before
    assert list(alter(replicated, LinkAction.FAILOVER).topics) == [topic]
    produce(replicated, topic, ["own"])
