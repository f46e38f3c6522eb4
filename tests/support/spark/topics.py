"""Records for Spark's tests: written with librdkafka, and remembered as they should be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewPartitions


class Written(NamedTuple):
    """A record as the broker took it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None


class Entry(NamedTuple):
    """A record to be written."""

    key: bytes | None = None
    value: bytes | None = None
    partition: int = -1
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    timestamp: int = 0


def write(
    bootstrap: str, topic: str, entries: Iterable[Entry], properties: Mapping[str, Any] | None = None
) -> list[Written]:
    """Send the entries, wait until all are acknowledged, and say where they went."""
    written: list[Written] = []

    # librdkafka's delivery reports leave headers out, so the entry itself contains them.
    def delivered(entry: Entry, error: Any, message: Message) -> None:
        assert error is None, error
        written.append(
            Written(
                topic,
                message.partition(),
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                entry.headers,
            )
        )

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 5, **(properties or {})})
    for entry in entries:
        producer.poll(0)
        producer.produce(
            topic,
            key=entry.key,
            value=entry.value,
            partition=entry.partition,
            headers=list(entry.headers) if entry.headers else None,
            timestamp=entry.timestamp,
            on_delivery=partial(delivered, entry),
        )
    assert producer.flush(60) == 0
    return sorted(written)


def numbered(count: int, start: int = 0) -> list[Entry]:
    """So many records with keys and values that tell them apart."""
    return [Entry(b"key-%d" % number, b"value-%d" % number) for number in range(start, start + count)]


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """Let a topic grow."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(timeout=10)
