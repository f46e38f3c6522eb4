"""`penstock dlq replay`: what was not sent back is kept, and letters of aborted transactions are none."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import Cluster
from support.dlq_command import dlq

JOBS, LETTERS = "jobs.replayed", "dlq.replayed"


def letter(offset: int) -> list[tuple[str, str | bytes | None]]:
    headers = {"topic": JOBS, "partition": "0", "offset": str(offset), "reason": "ValueError", "group": "workers"}
    return [(f"penstock.dlq.{name}", value.encode()) for name, value in headers.items()]


def values_in(servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, 30)]
    finally:
        consumer.close()


def test_what_is_not_sent_back_is_neither_deleted_nor_replayed_from_aborted_transactions() -> None:
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic(JOBS)
        cluster.create_topic(LETTERS)
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "app-1"})
        producer.init_transactions()
        for value, offset, is_aborted in ((b"aborted", 3, True), (b"first", 4, False)):
            producer.begin_transaction()
            producer.produce(LETTERS, value, b"key", headers=letter(offset))
            if is_aborted:
                producer.flush()
                producer.abort_transaction()
            else:
                # Written by something whose headers are not known, at offset 3.
                producer.produce(LETTERS, b"unknown", b"key")
                producer.produce(LETTERS, b"second", b"key", headers=letter(5))
                producer.commit_transaction()

        sent = dlq(servers, "replay", LETTERS, "--yes", "--purge")
        assert sent == {"topics": [{"topic": JOBS, "records": 2}], "gone": 0, "unknown": 1}
        assert values_in(servers, JOBS, 2) == [b"first", b"second"]
        assert [each["value"] for each in dlq(servers, "peek", LETTERS)] == ["second"]
        # The offsets of the records that stay: unknown, second, and the marker of their transaction.
        assert {"topic": LETTERS, "partitions": 1, "letters": 3} in dlq(servers, "list")
