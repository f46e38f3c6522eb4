"""Everything at once: thousands of records in tiny segments while leaders are killed and S3 fails in every way.

`PENSTOCK_TIER_RECORDS=200000` makes it the long run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from confluent_kafka import Producer

from penstock.testing import Cluster
from support.faulty_store import Fault, faulty_proxy
from support.spark.object_store import ACCESS, object_store, object_store_missing
from support.tier_cluster import TIERED, eventually, local_bytes, read_all, tier_missing, tier_settings

MISSING = tier_missing() or object_store_missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]

RECORDS = int(os.environ.get("PENSTOCK_TIER_RECORDS", "8000"))
STEP = 1000
LOCAL_BYTES_MAX = 20_000 + 2 * 16_384
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
            topic, value(number), partition=0, on_delivery=lambda error, _: error and failures.append(error)
        )
    assert producer.flush(120) == 0
    assert not failures
    producer.close()


def verify(servers: str, endpoint: str, *arguments: str) -> dict[str, list[object]]:
    options = [f"{name}={text}" for name, text in {**OPTIONS, "endpoint": endpoint}.items()]
    command = [sys.executable, "-m", "penstock", "tier", "verify", "-b", servers, "--url", "s3://tier/here"]
    command += [*(word for option in options for word in ("--option", option)), *arguments, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(3600)
def test_every_acknowledged_record_is_read_once_at_its_offset() -> None:
    seed = int(os.environ.get("PENSTOCK_SEED", str(time.time_ns() % 1_000_000)))
    random = Random(seed)
    with object_store("tier") as (endpoint, _), faulty_proxy(endpoint) as (address, fault):
        settings = tier_settings("s3://tier/here", nodes=3, endpoint=address, **OPTIONS)
        settings |= {"min.insync.replicas": "2", "penstock.tier.request.timeout.ms": "2000"}
        with Cluster(settings, nodes=3, start_timeout_s=60) as cluster:
            servers = cluster.bootstrap_servers
            topic = cluster.create_topic(configs=dict(TIERED), replication_factor=3)
            with failing(fault, seed) as done:
                for first in range(0, RECORDS, STEP):
                    write(servers, topic, first, first + STEP)
                    if random.random() < 0.4:
                        victim = random.choice(cluster.node_ids)
                        cluster.kill(victim)
                        cluster.start(victim)
                        done.append(f"killed {victim}")
            expected = [(number, value(number)) for number in range(RECORDS)]
            assert read_all(servers, topic, RECORDS) == expected, (seed, done)
            eventually(lambda: local_bytes(cluster, topic) <= 3 * LOCAL_BYTES_MAX, 120)
            assert read_all(servers, topic, RECORDS) == expected, (seed, done)
            verify(servers, endpoint, "--clean", "--grace", "0")
            found = verify(servers, endpoint)
            assert (found["problems"], found["orphans"]) == ([], []), (seed, done)
