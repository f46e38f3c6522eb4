"""`penstock txn` and kafka-transactions.sh: what is open is found, described and ended where no producer would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from support.kafka_tools import java_missing, kafka_tool
from support.wire_client import WireClient
from support.wire_transactions import WireProducer

READ_COMMITTED = 1
LATEST = -1
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    # Without verification a write can begin a transaction that its coordinator knows nothing of.
    "transaction.partition.verification.enable": "false",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS) as running:
        yield running


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[WireClient]:
    with WireClient(cluster.bootstrap_servers) as client:
        yield client


def penstock(cluster: Cluster, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "txn", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PENSTOCK_BOOTSTRAP": cluster.bootstrap_servers},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def answer(cluster: Cluster, *arguments: str) -> Any:
    return json.loads(penstock(cluster, *arguments, "-o", "json"))


def kafka_transactions(cluster: Cluster, *arguments: str) -> str:
    if (missing := java_missing()) is not None:
        pytest.skip(missing)
    done = kafka_tool("kafka-transactions", "--bootstrap-server", cluster.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def begun(wire: WireClient, name: str, topic: str) -> WireProducer:
    """A producer in the middle of a transaction."""
    producer = WireProducer(wire, name)
    producer.start()
    assert producer.add(topic) is ErrorCode.NONE
    assert producer.write(topic, b"open").error_code == ErrorCode.NONE
    return producer


def hang(wire: WireClient, name: str, topic: str) -> WireProducer:
    """A transaction that is open on a partition, and unknown to its coordinator."""
    producer = WireProducer(wire, name)
    producer.start()
    assert producer.write(topic, b"hanging").error_code == ErrorCode.NONE
    return producer


def is_stable(wire: WireClient, topic: str) -> bool:
    offsets = [wire.list_offset(topic, LATEST, isolation_level=level).offset for level in (0, READ_COMMITTED)]
    return offsets[0] == offsets[1]


def test_an_open_transaction_is_listed_described_and_aborted(cluster: Cluster, wire: WireClient) -> None:
    topic = cluster.create_topic()
    producer = begun(wire, "orders-copy", topic)
    (row,) = answer(cluster, "list", "orders-*")
    assert (row["transactional_id"], row["state"], row["producer_id"]) == (
        "orders-copy",
        "Ongoing",
        producer.producer_id,
    )
    assert answer(cluster, "list", "--state", "PrepareCommit") == []
    assert answer(cluster, "describe", "orders-copy")["partitions"] == [f"{topic}:0"]
    assert "Ongoing" in penstock(cluster, "describe", "orders-copy")
    assert not is_stable(wire, topic)
    penstock(cluster, "abort", "orders-copy", "--yes")
    assert is_stable(wire, topic)
    assert producer.end(commit=True) is ErrorCode.PRODUCER_FENCED
    assert answer(cluster, "describe", "orders-copy")["partitions"] == []


def test_mistakes_are_explained(cluster: Cluster) -> None:
    said = penstock(cluster, "describe", "nobody", code=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in said
    assert "penstock txn list" in said
    assert "--hanging" in penstock(cluster, "abort", code=1)


def test_a_hanging_transaction_is_found_and_ended(cluster: Cluster, wire: WireClient) -> None:
    topic = cluster.create_topic()
    begun(wire, "well-known", topic)
    producer = hang(wire, "hanging", topic)
    assert answer(cluster, "list", "--hanging", "--topic", topic) == [], "it may still be at work"
    (row,) = answer(cluster, "list", "--hanging", "--topic", topic, "--idle-s", "0")
    assert (row["topic"], row["producer_id"], row["first_offset"]) == (topic, producer.producer_id, 1)
    said = penstock(cluster, "abort", "--hanging", "--topic", topic, "--idle-s", "0", "--yes")
    assert f"producer {producer.producer_id}" in said
    assert answer(cluster, "list", "--hanging", "--topic", topic, "--idle-s", "0") == []
    assert not is_stable(wire, topic), "the other one is left alone"
    penstock(cluster, "abort", "well-known", "--yes")
    assert is_stable(wire, topic)


@pytest.mark.java
def test_kafkas_own_tool_lists_describes_finds_and_aborts(cluster: Cluster, wire: WireClient) -> None:
    topic = cluster.create_topic()
    producer = begun(wire, "for-kafka", topic)
    listed = kafka_transactions(cluster, "list")
    assert any(line.split()[:1] == ["for-kafka"] and "Ongoing" in line for line in listed.splitlines())
    described = kafka_transactions(cluster, "describe", "--transactional-id", "for-kafka")
    assert f"{topic}-0" in described
    producers = kafka_transactions(cluster, "describe-producers", "--topic", topic, "--partition", "0")
    assert str(producer.producer_id) in producers
    assert producer.end(commit=True) is ErrorCode.NONE
    hanging = hang(wire, "hangs-for-kafka", topic)
    arguments = ("--topic", topic, "--max-transaction-timeout", "0")
    # The tool counts whole minutes, so nothing that a test begins is old enough; it must answer all the same.
    assert "Topic" in kafka_transactions(cluster, "find-hanging", *arguments)
    producers = kafka_transactions(cluster, "describe-producers", "--topic", topic, "--partition", "0")
    (row,) = [line.split() for line in producers.splitlines() if line.split()[:1] == [str(hanging.producer_id)]]
    start_offset = row[-1]
    kafka_transactions(cluster, "abort", "--topic", topic, "--partition", "0", "--start-offset", start_offset)
    assert is_stable(wire, topic)
