"""Reads the results with different clients than those that wrote them: librdkafka for topics, Arrow for files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from examples.demo.ledger import Minute, RecordPosition, Sale, Total

from penstock.gateway.kafka.records import HEADERS_UNREADABLE, headers_of
from penstock.spark import dead_letters

READ_TIMEOUT_SECONDS = 30.0
FETCH_COUNT = 5000


class ReadFailed(RuntimeError):
    """A topic could not be read to its end."""


def read_topic(bootstrap: str, topic: str) -> Iterator[Any]:
    """All committed records of a topic, as confluent_kafka's messages."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "demo-audit",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        unread = set(consumer.list_topics(topic, timeout=READ_TIMEOUT_SECONDS).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in unread])
        deadline = time.monotonic() + READ_TIMEOUT_SECONDS
        while unread:
            for message in consumer.consume(FETCH_COUNT, timeout=0.2):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise KafkaException(error)
            if time.monotonic() > deadline:
                raise ReadFailed(f"{topic} could not be read to its end in {READ_TIMEOUT_SECONDS:.0f} s")
    finally:
        consumer.close()


def read_sales(bootstrap: str, topic: str) -> Iterator[tuple[str, Sale]]:
    """By order: the contents of the sales topic."""
    for message in read_topic(bootstrap, topic):
        fields = json.loads(message.value(), parse_float=Decimal, parse_int=Decimal)
        yield fields["id"], Sale(fields["country"], fields["amount"])


def read_revenue(bootstrap: str, topic: str) -> Iterator[tuple[Minute, Total]]:
    """By minute and country: the contents of the revenue topic."""
    for message in read_topic(bootstrap, topic):
        fields = json.loads(message.value(), parse_float=Decimal)
        minute = datetime.fromisoformat(fields["minute"]).astimezone(UTC)
        yield Minute(minute, fields["country"]), Total(fields["orders"], Decimal(fields["revenue"]))


def read_dead_letters(bootstrap: str, topic: str) -> Iterator[tuple[RecordPosition, str]]:
    """By position in the source topic: why records became dead letters."""
    for message in read_topic(bootstrap, topic):
        headers = headers_of(message)
        if headers is None:
            where = f"{topic}-{message.partition()} at offset {message.offset()}"
            raise ReadFailed(f"the dead letter in {where} has no readable reason: {HEADERS_UNREADABLE}")
        notes = {name: (value or b"").decode() for name, value in headers}
        position = RecordPosition(int(notes[dead_letters.PARTITION]), int(notes[dead_letters.OFFSET]))
        yield position, notes[dead_letters.REASON]


def read_archive(path: Path) -> Iterator[tuple[RecordPosition, bytes]]:
    """By position: the values in an archive's files, read without Spark."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path, columns=["partition", "offset", "value"])
    for row in table.to_pylist():
        yield RecordPosition(row["partition"], row["offset"]), row["value"]
