"""Groups continue at the destination where they were at the source, and are never rewound there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from link_pair import PATIENCE_S, Served, alter, describe, end_of, link, produce, wait_until_equal

from penstock.runtime.controller.links import LinkAction
from penstock.testing import Cluster
from support.processes import eventually


@pytest.fixture(scope="module")
def source() -> Iterator[Cluster]:
    with Cluster({"offsets.topic.num.partitions": "4"}) as running:
        yield running


@pytest.fixture
def destination() -> Iterator[Cluster]:
    with Cluster({"offsets.topic.num.partitions": "4"}) as running:
        yield running


def commit(cluster: Served, group: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
    admin.alter_consumer_group_offsets([wanted])[group].result(20)


def committed(cluster: Served, group: str, topic: str) -> int | None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
    return next((row.offset for row in found.topic_partitions if row.topic == topic), None)


def test_offsets_of_groups_come_along(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic()
    other = source.create_topic()
    for name in (topic, other):
        produce(source, name, [str(n) for n in range(100)])
        for group in ("billing", "private"):
            commit(source, group, name, 40)
    link(source, destination, topic, **{"link.groups": "bill*", "link.groups.sync.ms": "100"})
    wait_until_equal(source, destination, topic)
    assert eventually(lambda: committed(destination, "billing", topic) == 40, PATIENCE_S)
    commit(source, "billing", topic, 60)
    assert eventually(lambda: committed(destination, "billing", topic) == 60, PATIENCE_S)
    # A group that moved on here stays where it is.
    commit(destination, "billing", topic, 90)
    commit(source, "billing", topic, 70)
    commit(source, "bills", topic, 70)
    assert eventually(lambda: committed(destination, "bills", topic) == 70, PATIENCE_S)
    assert committed(destination, "billing", topic) == 90
    assert committed(destination, "billing", other) is None
    assert committed(destination, "private", topic) is None
    (found,) = describe(destination)
    assert found.problem == ""


def test_a_group_that_reads_here_keeps_its_offsets(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic()
    produce(source, topic, [str(n) for n in range(100)])
    link(source, destination, topic)
    wait_until_equal(source, destination, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": destination.bootstrap_servers,
            "group.id": "reading",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        assert eventually(lambda: consumer.poll(0.2) is not None, PATIENCE_S)
        for group in ("reading", "idle"):
            commit(source, group, topic, 80)
        configs = {"link.groups": "reading,idle", "link.groups.sync.ms": "100"}
        assert alter(destination, LinkAction.ALTER, None, configs).error_code == 0
        assert eventually(lambda: committed(destination, "idle", topic) == 80, PATIENCE_S)
        assert committed(destination, "reading", topic) is None
    finally:
        consumer.close()
    assert end_of(destination, topic) == 100
    # Once it is idle it continues where the source's members have read to.
    assert eventually(lambda: committed(destination, "reading", topic) == 80, PATIENCE_S)
