"""The proof that a node works: a record goes in and comes back, with an ordinary Kafka client."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from penstock.cli.client import client_settings, explaining
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection

KEY = b"greeting"
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Where the record went and how long sending and reading it took."""

    partition: int
    offset: int
    value: str
    produce_ms: float
    consume_ms: float


def send_and_read(connection: Connection, topic: str, value: str) -> RoundTrip:
    """Send one record and read it back from the offset it was given. Raises CommandFailure when either fails."""
    with explaining("the first record did not make its way"):
        started = time.perf_counter()
        partition, offset = _send(connection, topic, value.encode())
        sent = time.perf_counter()
        found = _read(connection, topic, partition, offset)
        read = time.perf_counter()
    if found != value.encode():
        raise CommandFailure("the first record came back changed", f"sent {value!r}, read {found!r}")
    return RoundTrip(partition, offset, value, (sent - started) * 1000, (read - sent) * 1000)


def _send(connection: Connection, topic: str, value: bytes) -> tuple[int, int]:
    from confluent_kafka import KafkaException, Producer

    outcome: list[Any] = []
    producer = Producer(client_settings(connection, **{"message.timeout.ms": int(TIMEOUT_S * 1000), "linger.ms": 0}))
    producer.produce(topic, value, KEY, on_delivery=lambda error, message: outcome.append((error, message)))
    producer.flush(TIMEOUT_S + 1)
    if not outcome:
        raise CommandFailure("the first record was not acknowledged", f"no answer within {TIMEOUT_S:g} seconds")
    error, message = outcome[0]
    if error is not None:
        raise KafkaException(error)
    return message.partition(), message.offset()


def _read(connection: Connection, topic: str, partition: int, offset: int) -> bytes | None:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"group.id": "penstock-cli", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    consumer = Consumer(client_settings(connection, **settings))
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                return message.value()
    finally:
        consumer.close()
    raise CommandFailure("the first record could not be read back", f"it did not come within {TIMEOUT_S:g} seconds")
