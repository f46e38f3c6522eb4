"""Everything at once: thousands of records in tiny segments while leaders are killed and S3 fails in every way.

`PENSTOCK_TIER_RECORDS=200000` makes it the long run; `--log-cli-level=info` shows what happened in it.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.testing import Cluster
from support.faulty_store import Fault, faulty_proxy
from support.spark.object_store import ACCESS, object_store, object_store_missing
from support.tier_cluster import TIERED, eventually, find_leader, local_bytes, read_all, tier_missing, tier_settings

MISSING = tier_missing() or object_store_missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]

log = logging.getLogger(__name__)

RECORDS = int(os.environ.get("PENSTOCK_TIER_RECORDS", "8000"))
PARTITIONS = 4
STEP = 1000
READ_S = 60 + RECORDS // 100
LOCAL_BYTES_MAX = 20_000 + 2 * 16_384
AHEAD_BYTES_MAX = 2_000_000
OPTIONS = {
    "allow_http": "true",
    "access_key_id": ACCESS["AWS_ACCESS_KEY_ID"],
    "secret_access_key": ACCESS["AWS_SECRET_ACCESS_KEY"],
    "region": ACCESS["AWS_REGION"],
}


def value(number: int) -> bytes:
    return f"{number:010d}".encode() * 20


@contextmanager
def failing(fault: Fault, seed: int) -> Iterator[list[str]]:
    """The store fails in one way or another, all the while; returns what it did."""
    random, stopped, done = Random(seed), threading.Event(), []

    def work() -> None:
        while not stopped.is_set():
            kind = random.choice(("away", "slow", "lost", "torn", "well"))
            done.append(kind)
            fault.delay_s = 0.3 if kind == "slow" else 0.0
            fault.lost = 0.2 if kind == "lost" else 0.0
            fault.torn = 0.3 if kind == "torn" else 0.0
            if kind == "away":
                fault.answers.clear()
            stopped.wait(random.uniform(0.5, 3))
            fault.answers.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stopped.set()
        thread.join()
        fault.delay_s = fault.lost = fault.torn = 0.0


def write(servers: str, topic: str, first: int, end: int) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "batch.size": 2000, "enable.idempotence": True, "log_level": 0})
    for number in range(first, end):
        producer.produce(
            topic,
            value(number),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: error and failures.append(error),
        )
    assert producer.flush(120) == 0
    assert not failures
    producer.close()


def check_records(servers: str, topic: str, what: object) -> None:
    """Every record is at its offset, once."""
    for partition in range(PARTITIONS):
        expected = list(enumerate(value(number) for number in range(partition, RECORDS, PARTITIONS)))
        found = read_all(servers, topic, len(expected), partition=partition, timeout_s=READ_S)
        assert found == expected, (partition, what)


def verify(servers: str, endpoint: str, *arguments: str) -> dict[str, Any]:
    options = [f"{name}={text}" for name, text in {**OPTIONS, "endpoint": endpoint}.items()]
    command = [sys.executable, "-m", "penstock", "tier", "verify", "-b", servers, "--url", "s3://tier/here"]
    command += [*(word for option in options for word in ("--option", option)), *arguments, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def write_under_fire(cluster: Cluster, topic: str, random: Random, done: list[str]) -> int:
    """Write everything while leaders are killed; returns how much was on the disks of all nodes at most.

    What the store has not taken stays on disk, so the writer waits where it is too far ahead of the store.
    """
    most, dead = 0, 0
    for first in range(0, RECORDS, STEP):
        # Some of it is written while the former leader is away.
        write(cluster.bootstrap_servers, topic, first, first + STEP)
        most = max(most, local_bytes(cluster, topic))
        if dead:
            cluster.start(dead)
        dead = 0
        if random.random() < 0.4:
            living = cluster.address(random.choice(cluster.node_ids))
            dead = find_leader(living, topic, random.randrange(PARTITIONS))
            if dead > 0:
                cluster.kill(dead)
                done.append(f"killed {dead}")
            dead = max(dead, 0)
        else:
            eventually(lambda: local_bytes(cluster, topic) <= len(cluster.node_ids) * AHEAD_BYTES_MAX, 300)
    if dead:
        cluster.start(dead)
    return most


@pytest.mark.timeout(7200)
def test_every_acknowledged_record_is_read_once_at_its_offset() -> None:
    seed = int(os.environ.get("PENSTOCK_SEED", str(time.time_ns() % 1_000_000)))
    random = Random(seed)
    with object_store("tier") as (endpoint, _), faulty_proxy(endpoint) as (address, fault):
        settings = tier_settings("s3://tier/here", nodes=3, endpoint=address, **OPTIONS)
        settings |= {"min.insync.replicas": "2", "penstock.tier.request.timeout.ms": "2000"}
        with Cluster(settings, nodes=3, start_timeout_s=60) as cluster:
            servers = cluster.bootstrap_servers
            topic = cluster.create_topic(partitions=PARTITIONS, configs=dict(TIERED), replication_factor=3)
            with failing(fault, seed) as done:
                most = write_under_fire(cluster, topic, random, done)
            check_records(servers, topic, (seed, done))
            eventually(lambda: local_bytes(cluster, topic) <= 3 * PARTITIONS * LOCAL_BYTES_MAX, 300)
            check_records(servers, topic, (seed, done))
            cleaned = verify(servers, endpoint, "--clean", "--grace", "0")
            found = verify(servers, endpoint)
            assert (found["problems"], found["orphans"]) == ([], []), (seed, done)
            log.info("seed %d, at most %d bytes on disk, %s", seed, most, dict(Counter(done)))
            log.info("%d segments, %d orphans before cleaning", found["segments"], len(cleaned["orphans"]))
