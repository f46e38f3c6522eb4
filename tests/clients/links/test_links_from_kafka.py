"""Topics of Apache Kafka are mirrored as they are: compacted ones with gaps, transactions, every codec."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from link_pair import (
    PATIENCE_S,
    Servers,
    alter,
    batches,
    end_of,
    link,
    partitions,
    produce,
    wait_until_equal,
)

from penstock.runtime.controller.links import LinkAction
from penstock.testing import Cluster
from support.kafka_broker import kafka_broker
from support.processes import eventually

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    settings = {
        "transaction.state.log.num.partitions": "1",
        "log.cleaner.backoff.ms": "100",
        "log.retention.check.interval.ms": "300",
        "log.initial.task.delay.ms": "100",
    }
    with kafka_broker(tmp_path_factory.mktemp("kafka"), settings) as broker:
        yield Servers(broker.address)


@pytest.fixture
def destination() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def create(kafka: Servers, name: str, **configs: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1, config=configs)])[name].result(30)
    return name


def test_batches_of_every_kind(kafka: Servers, destination: Cluster) -> None:
    topic = create(kafka, "kinds")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(kafka, topic, [f"{codec} {n}" for n in range(50)], **{"compression.type": codec})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, f"transaction {number}")
        producer.flush(20)
        producer.commit_transaction(30) if number % 2 else producer.abort_transaction(30)
    link(kafka, destination, topic)
    wait_until_equal(kafka, destination, topic)
    assert list(alter(destination, LinkAction.PROMOTE).topics) == [topic]
    assert eventually(lambda: partitions(destination, topic)[0].state == "stopped", PATIENCE_S)
    assert partitions(destination, topic)[0].mirrored_offset == end_of(kafka, topic)
    produce(destination, topic, ["own"])


def test_gaps_of_compaction(kafka: Servers, destination: Cluster) -> None:
    topic = create(
        kafka,
        "compacted",
        **{
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "0",
        },
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, "log_level": 0})
    for number in range(60):
        producer.produce(topic, f"value {number}", key=f"key {number % 2}")
        assert producer.flush(20) == 0
    written = end_of(kafka, topic)

    def is_compacted() -> bool:
        producer.produce(topic, "tick", key="tick")
        producer.flush(20)
        return len(batches(kafka, topic)) < written / 2

    assert eventually(is_compacted, PATIENCE_S, interval=0.3)
    link(kafka, destination, topic)
    assert eventually(
        lambda: (
            partitions(destination, topic).get(0) is not None
            and partitions(destination, topic)[0].mirrored_offset == end_of(kafka, topic)
        ),
        PATIENCE_S,
    )
    theirs = {batch.base_offset: batch for batch in batches(kafka, topic)}
    ours = batches(destination, topic)
    assert ours[-1] == theirs[ours[-1].base_offset]
    # The first records may be gone too.
    lasts = [-1, *(batch.last_offset for batch in ours)]
    assert max(batch.base_offset - last for last, batch in zip(lasts, ours, strict=False)) > 1


def test_deleted_records(kafka: Servers, destination: Cluster) -> None:
    topic = create(kafka, "trimmed")
    produce(kafka, topic, ["deleted"] * 100)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    everything = TopicPartition(topic, 0, end_of(kafka, topic))
    admin.delete_records([everything])[everything].result(30)
    link(kafka, destination, topic)
    assert eventually(
        lambda: (
            partitions(destination, topic).get(0) is not None
            and partitions(destination, topic)[0].mirrored_offset == 100
        ),
        PATIENCE_S,
    )
    produce(kafka, topic, ["kept"])
    wait_until_equal(kafka, destination, topic)
    assert batches(destination, topic)[0].base_offset == 100
