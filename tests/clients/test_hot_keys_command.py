"""`penstock topic hot` finds the hot keys of a Zipf load on three brokers, within the error that it tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.testing import Cluster

RECORDS = 40_000
KEYS = 20_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as running:
        yield running


@pytest.fixture(scope="module")
def loaded(cluster: Cluster) -> tuple[str, Counter[str]]:
    """A topic, and how many records each of its keys has."""
    random = Random(1)
    topic = cluster.create_topic(partitions=6)
    weights = list(accumulate(1 / rank**1.1 for rank in range(1, KEYS + 1)))
    keys = [f"shop-{number}" for number in random.choices(range(KEYS), cum_weights=weights, k=RECORDS)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.type": "lz4", "linger.ms": 20})
    for key in keys:
        producer.produce(topic, b"v" * 20, key=key)
        producer.poll(0)
    producer.produce(topic, b"large" * 100_000, key="whale")
    assert producer.flush(60) == 0
    return topic, Counter([*keys, "whale"])


def hot(cluster: Cluster, *arguments: str) -> Any:
    command = [sys.executable, "-m", "penstock", "topic", "hot", *arguments, "-o", "json"]
    environment = {**os.environ, "PENSTOCK_BOOTSTRAP": cluster.bootstrap_servers}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_hottest_keys_of_all_brokers_come_first(cluster: Cluster, loaded: tuple[str, Counter[str]]) -> None:
    topic, truth = loaded
    found = hot(cluster, topic, "-n", "20")
    assert (found["records"], found["keyless_records"]) == (RECORDS + 1, 0)
    assert found["records_error"] <= 6 * RECORDS / 1_000
    for row in found["keys"]:
        assert row["records"] <= truth[row["key"]] <= row["records"] + found["records_error"]
        assert row["records_share"] == pytest.approx(row["records"] / found["records"])
        assert len(row["partitions"]) == 1
    wanted = [key for key, _ in truth.most_common(3)]
    assert [row["key"] for row in found["keys"][:3]] == wanted


def test_the_largest_come_first_by_bytes(cluster: Cluster, loaded: tuple[str, Counter[str]]) -> None:
    topic, _ = loaded
    largest = hot(cluster, topic, "--by-bytes", "-n", "1")["keys"][0]
    assert largest["key"] == "whale"
    assert largest["size_bytes"] > 490_000


def test_a_few_records_of_one_partition_are_counted_exactly(cluster: Cluster, loaded: tuple[str, Counter[str]]) -> None:
    topic, _ = loaded
    found = hot(cluster, topic, "-p", "2", "--records", "100")
    assert (found["records"], found["records_error"], found["bytes_error"]) == (100, 0, 0)
    assert {number for row in found["keys"] for number in row["partitions"]} == {2}
