"""Mirror topics are byte for byte what the source has, with offsets and transactions, and only a link writes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from link_pair import (
    LINK,
    PATIENCE_S,
    alter,
    batches,
    batches_or_none,
    describe,
    end_of,
    link,
    partitions,
    produce,
    wait_until_equal,
)

from penstock.model.errors import ErrorCode
from penstock.runtime.controller.links import LinkAction
from penstock.testing import Cluster
from support.processes import eventually


@pytest.fixture(scope="module")
def source() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture
def destination() -> Iterator[Cluster]:
    with Cluster({"auto.create.topics.enable": "false"}) as running:
        yield running


def read_committed(cluster: Cluster, topic: str, end: int) -> list[bytes | None]:
    """What a read_committed consumer receives up to an offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(message.value())
        return found
    finally:
        consumer.close()


def transactional(cluster: Cluster, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(20)
    return producer


def test_records_and_transactions_are_mirrored_as_they_are(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic(partitions=2, configs={"retention.ms": "123456789"})
    produce(source, topic, [f"value {n}" for n in range(500)], **{"compression.type": "zstd"})
    producer = transactional(source, topic)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, f"transaction {number}", partition=0)
        producer.flush(20)
        producer.commit_transaction(20) if number % 2 else producer.abort_transaction(20)
    link(source, destination, topic)
    for partition in (0, 1):
        wait_until_equal(source, destination, topic, partition)
    end = end_of(source, topic)
    assert read_committed(destination, topic, end) == read_committed(source, topic, end)
    # What is written later comes along, too.
    produce(source, topic, ["later"] * 20)
    for partition in (0, 1):
        wait_until_equal(source, destination, topic, partition)
    (found,) = describe(destination)
    assert (found.name, found.problem) == (LINK, "")
    ids = [
        AdminClient({"bootstrap.servers": one.bootstrap_servers}).list_topics(topic).topics[topic]
        for one in (source, destination)
    ]
    assert len(ids[0].partitions) == len(ids[1].partitions)


def test_only_the_link_writes_a_mirror(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic()
    produce(source, topic, ["mirrored"])
    link(source, destination, topic)
    wait_until_equal(source, destination, topic)
    errors = []
    producer = Producer({"bootstrap.servers": destination.bootstrap_servers, "log_level": 0})
    producer.produce(topic, "refused", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    assert [error.code() for error in errors] == [ErrorCode.POLICY_VIOLATION]
    # A transaction that could not write there ends all the same, and leaves no marker.
    local = transactional(destination, "local")
    local.begin_transaction()
    local.produce(topic, "refused")
    local.flush(20)
    local.abort_transaction(20)
    admin = AdminClient({"bootstrap.servers": destination.bootstrap_servers})
    everything = TopicPartition(topic, 0, 1)
    deletion = admin.delete_records([everything])[everything]
    with pytest.raises(KafkaException):
        deletion.result(20)
    assert batches(source, topic) == batches(destination, topic)


def test_promotion_makes_a_mirror_writable_at_the_end_of_the_source(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic(partitions=2)
    produce(source, topic, [str(n) for n in range(300)])
    link(source, destination, topic)
    assert eventually(lambda: batches_or_none(destination, topic, 0) is not None, PATIENCE_S)
    assert list(alter(destination, LinkAction.PROMOTE, None).topics) == [topic]
    assert eventually(lambda: {row.state for row in partitions(destination, topic).values()} == {"stopped"}, PATIENCE_S)
    ends = {number: row.mirrored_offset for number, row in partitions(destination, topic).items()}
    assert ends == {number: end_of(source, topic, number) for number in (0, 1)}
    produce(destination, topic, ["own"] * 10)
    assert sum(end_of(destination, topic, number) for number in (0, 1)) == 310
    assert alter(destination, LinkAction.DELETE).error_code == 0
    assert describe(destination) == []


def test_failover_aborts_what_was_open_and_reports_where_it_cut(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic()
    produce(source, topic, ["before"])
    producer = transactional(source, topic)
    producer.begin_transaction()
    producer.produce(topic, "undecided")
    producer.flush(20)
    link(source, destination, topic)
    wait_until_equal(source, destination, topic)
    cut = end_of(source, topic)
    assert list(alter(destination, LinkAction.FAILOVER, [topic]).topics) == [topic]
    assert eventually(
        lambda: (
            [(row.state, row.open_transactions) for row in partitions(destination, topic).values()] == [("stopped", 0)]
        ),
        PATIENCE_S,
    )
    assert partitions(destination, topic)[0].mirrored_offset == cut
    produce(destination, topic, ["after"])
    assert read_committed(destination, topic, end_of(destination, topic)) == [b"before", b"after"]
    producer.abort_transaction(20)


def test_deleted_records_and_new_partitions_follow_the_source(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic()
    produce(source, topic, [str(n) for n in range(10)])
    admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
    everything = TopicPartition(topic, 0, 10)
    admin.delete_records([everything])[everything].result(20)
    link(source, destination, topic)
    # Nothing is left to be mirrored, and the mirror ends where the source does.
    assert eventually(lambda: batches_or_none(destination, topic, 0) is not None, PATIENCE_S)
    assert eventually(lambda: end_of(destination, topic) == 10, PATIENCE_S)
    produce(source, topic, ["next"])
    wait_until_equal(source, destination, topic)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    assert eventually(lambda: len(partitions(destination, topic)) == 3, PATIENCE_S)
    produce(source, topic, [str(n) for n in range(300)])
    for partition in range(3):
        wait_until_equal(source, destination, topic, partition)


def test_a_source_that_starts_within_a_batch_is_mirrored(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic()
    produce(source, topic, [str(n) for n in range(10)], **{"linger.ms": "1000"})
    assert [(one.base_offset, one.last_offset) for one in batches(source, topic)] == [(0, 9)]
    admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
    some = TopicPartition(topic, 0, 3)
    admin.delete_records([some])[some].result(20)
    link(source, destination, topic)
    assert eventually(lambda: batches_or_none(destination, topic, 0) is not None, PATIENCE_S)
    wait_until_equal(source, destination, topic)
    reader = Consumer({"bootstrap.servers": destination.bootstrap_servers, "group.id": "reader"})
    try:
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), 20) == (3, 10)
    finally:
        reader.close()
    produce(source, topic, ["next"])
    wait_until_equal(source, destination, topic)


def test_a_destination_that_is_killed_continues_at_its_own_end(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic()
    produce(source, topic, [str(n) for n in range(100)])
    link(source, destination, topic)
    wait_until_equal(source, destination, topic)
    destination.kill()
    produce(source, topic, [str(n) for n in range(100)])
    destination.start()
    wait_until_equal(source, destination, topic)
