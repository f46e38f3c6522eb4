"""Exactly once under fire: driver, workers and broker are killed at random, and nothing is lost or doubled.

`SPARK_CRASH_RECORDS` and `SPARK_CRASH_KILLS` make it longer; the defaults fit a test run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.testing import Cluster
from support.spark_topics import numbered, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

RECORDS = int(os.environ.get("SPARK_CRASH_RECORDS", "30000"))
KILLS = int(os.environ.get("SPARK_CRASH_KILLS", "3"))
SEED = int(os.environ.get("SPARK_CRASH_SEED", "7"))
PARTITIONS = 4
# A driver takes this long to come to work; kills before that would only test Java's start.
COMMIT_WAIT_SECONDS = 120.0
JOB = Path(__file__).with_name("copy_job.py")


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "check", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "log_level": 0})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    keys, ended = [], 0
    while ended < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None, "nothing for a minute: an open transaction is in the way"
        if message.error() is not None:
            ended += 1
        else:
            keys.append(message.key())
    consumer.close()
    return keys


def start(cluster: Cluster, topics: tuple[str, str], checkpoint: Path) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, str(JOB), cluster.bootstrap_servers, *topics, str(checkpoint)]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(arguments, stdout=quiet, stderr=quiet, start_new_session=True)


def wait_for_commits(checkpoint: Path, more_than: int, driver: subprocess.Popen[bytes]) -> int:
    """How many micro-batches are noted as done, once there are more of them or the driver has ended."""
    deadline = time.monotonic() + COMMIT_WAIT_SECONDS
    while True:
        found = len([path for path in (checkpoint / "commits").glob("*") if path.name.isdigit()])
        if found > more_than or driver.poll() is not None or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


def copy_under_fire(cluster: Cluster, directory: Path) -> Counter[bytes | None]:
    """Copy with kills until a driver gets to the end; returns how often each key arrived."""
    chance = random.Random(SEED)
    topics = cluster.create_topic(partitions=PARTITIONS), cluster.create_topic(partitions=PARTITIONS)
    write(cluster.bootstrap_servers, topics[0], numbered(RECORDS))
    checkpoint, done = directory / "checkpoint", 0
    for number in range(KILLS + 1):
        driver = start(cluster, topics, checkpoint)
        try:
            if number < KILLS:
                done = wait_for_commits(checkpoint, done, driver)
                time.sleep(chance.random() * 1.5)
                if number % 2:
                    cluster.kill()
                    cluster.start()
                    time.sleep(chance.random())
            else:
                assert driver.wait(600) == 0
        finally:
            if driver.poll() is None:
                # The whole group: the driver, Java and the Python workers.
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    return Counter(committed(cluster.bootstrap_servers, topics[1]))


def test_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    with Cluster() as cluster:
        arrived = copy_under_fire(cluster, tmp_path)
    expected = {each.key for each in numbered(RECORDS)}
    assert expected - set(arrived) == set()
    assert [key for key, count in arrived.items() if count > 1] == []
