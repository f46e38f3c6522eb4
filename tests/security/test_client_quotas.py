"""Quotas on a running broker: a client over its quota is told, held back, and goes on at its rate."""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import Consumer, Producer

from penstock.client.cluster import ClusterClient
from penstock.client.settings import read_settings
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from support.secure_cluster import SecureCluster


def set_quota(cluster: SecureCluster, user: str, key: str, value: float | None) -> None:
    operation = OpData(key, value or 0.0, value is None)
    entry = AlterClientQuotasRequestEntryData([EntityData("user", user)], [operation])
    client = ClusterClient(read_settings(cluster.librdkafka()))
    try:
        response = client.ask(AlterClientQuotasRequest([entry]))
    finally:
        client.close()
    assert [row.error_code for row in response.entries] == [0]


def test_a_producer_over_its_quota_is_throttled_and_others_are_not(secured: SecureCluster) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    set_quota(secured, "alice", "producer_byte_rate", 100_000)
    try:
        throttled: list[Any] = []
        alice = Producer(
            secured.librdkafka("alice", "alice-secret", "PLAIN") | {"throttle_cb": throttled.append, "linger.ms": "0"}
        )
        bob = Producer(secured.librdkafka("bob", "bob-secret", "PLAIN"))
        # Ten windows count as passed: a million bytes are free, and 300,000 more have to be waited for.
        for _ in range(130):
            alice.produce(topic, b"x" * 10_000)
            alice.poll(0)
        assert alice.flush(60) == 0
        assert any(event.throttle_time > 0 for event in throttled)
        began = time.monotonic()
        alice.produce(topic, b"one more")
        assert alice.flush(60) == 0
        assert time.monotonic() - began > 0.5
        bob.produce(topic, b"x" * 100_000)
        assert bob.flush(20) == 0
    finally:
        set_quota(secured, "alice", "producer_byte_rate", None)


def test_a_consumer_over_its_quota_is_throttled(secured: SecureCluster) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    producer = Producer(secured.librdkafka())
    for _ in range(400):
        producer.produce(topic, b"x" * 10_000)
    assert producer.flush(60) == 0
    set_quota(secured, "bob", "consumer_byte_rate", 300_000)
    try:
        throttled: list[Any] = []
        consumer = Consumer(
            secured.librdkafka("bob", "bob-secret", "PLAIN")
            | {
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "throttle_cb": throttled.append,
                "fetch.max.bytes": "500000",
                "message.max.bytes": "200000",
            }
        )
        consumer.subscribe([topic])
        deadline, seen = time.monotonic() + 90, 0
        while seen < 400 and time.monotonic() < deadline:
            seen += len(consumer.consume(100, 0.5))
        consumer.close()
        assert seen == 400
        assert any(event.throttle_time > 0 for event in throttled)
    finally:
        set_quota(secured, "bob", "consumer_byte_rate", None)
