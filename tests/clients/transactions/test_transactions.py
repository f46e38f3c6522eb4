"""Transactions of a client against a node: a copy job with aborts, and an instance that another one replaces."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from support.wire_client import WireClient
from support.wire_transactions import WireProducer

RECORDS = 300
TIMEOUT_S = 15


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}) as running:
        yield running


def consumer(cluster: Cluster, group: str, topic: str, isolation: str = "read_committed") -> Consumer:
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    reader.subscribe([topic])
    return reader


def producer(cluster: Cluster, name: str) -> Producer:
    started = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    started.init_transactions(TIMEOUT_S)
    return started


def values(cluster: Cluster, topic: str, isolation: str, count: int) -> list[int]:
    """What a reader finds until nothing more comes."""
    reader = consumer(cluster, f"check-{isolation}", topic, isolation)
    found: list[int] = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        batch = [int(message.value()) for message in reader.consume(1000, 1.0) if not message.error()]
        found += batch
        if len(found) >= count and not batch:
            break
    reader.close()
    return found


def test_every_record_is_copied_once_although_some_transactions_abort(cluster: Cluster) -> None:
    source, target = cluster.create_topic(partitions=2), cluster.create_topic(partitions=3)
    writer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(RECORDS):
        writer.produce(source, str(number).encode(), str(number).encode())
    assert writer.flush(TIMEOUT_S) == 0
    reader, copier = consumer(cluster, "job", source), producer(cluster, "copy")
    copied = rounds = aborted = 0
    while copied < RECORDS:
        messages = reader.consume(50, 10)
        assert messages
        rounds += 1
        copier.begin_transaction()
        for message in messages:
            copier.produce(target, message.value(), message.key())
        offsets = {message.partition(): message.offset() + 1 for message in messages}
        positions = [TopicPartition(source, partition, offset) for partition, offset in offsets.items()]
        copier.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), TIMEOUT_S)
        if rounds % 3 != 2:
            copier.commit_transaction(TIMEOUT_S)
            copied += len(messages)
            continue
        # An abort takes back what the client has not sent yet; this is about what is in the log.
        copier.flush(TIMEOUT_S)
        copier.abort_transaction(TIMEOUT_S)
        aborted += len(messages)
        for position in reader.committed([TopicPartition(source, index) for index in (0, 1)], TIMEOUT_S):
            reader.seek(TopicPartition(source, position.partition, max(0, position.offset)))
    reader.close()
    assert aborted
    assert sorted(values(cluster, target, "read_committed", RECORDS)) == list(range(RECORDS))
    assert len(values(cluster, target, "read_uncommitted", RECORDS + aborted)) == RECORDS + aborted


def test_an_instance_that_was_replaced_is_fenced(cluster: Cluster) -> None:
    topic = cluster.create_topic()
    first = producer(cluster, "one")
    first.begin_transaction()
    first.produce(topic, b"1")
    first.flush(TIMEOUT_S)
    second = producer(cluster, "one")
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    second.begin_transaction()
    second.produce(topic, b"2")
    second.commit_transaction(TIMEOUT_S)
    assert values(cluster, topic, "read_committed", 1) == [2]


def test_a_fetch_names_the_aborted_transactions_of_what_it_returns_and_not_of_the_whole_log(cluster: Cluster) -> None:
    topic = cluster.create_topic()
    count = 60
    with WireClient(cluster.bootstrap_servers) as wire:
        writer = WireProducer(wire, "often", version=2)
        writer.start()
        deadline = time.monotonic() + 2 * TIMEOUT_S
        for number in range(count):
            while writer.write(topic, b"%d" % number).error_code == ErrorCode.NOT_ENOUGH_REPLICAS:
                assert time.monotonic() < deadline, "the transaction before does not end"
            assert writer.end(commit=False) is ErrorCode.NONE
        while wire.list_offset(topic, -1, isolation_level=1).offset < 2 * count and time.monotonic() < deadline:
            time.sleep(0.05)
        whole = wire.fetch(topic, 0, isolation_level=1)
        assert [one.first_offset for one in whole.aborted_transactions] == list(range(0, 2 * count, 2))
        part = wire.fetch(topic, 10, isolation_level=1, partition_max_bytes=400)
        assert [one.first_offset for one in part.aborted_transactions] in ([10, 12], [10, 12, 14])
        assert not wire.fetch(topic, 10, isolation_level=0).aborted_transactions
