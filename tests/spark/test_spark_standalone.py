"""On a real Spark cluster: a master and two worker processes, one of which is killed while it works."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import Cluster
from support.spark.topics import Entry, numbered, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

from support.processes import eventually
from support.spark.fire import Copy, Findings, judge
from support.spark.standalone import DRIVER_SETTINGS, Standalone, standalone

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(900)]

COUNT_JOB = Path(__file__).with_name("count_job.py")
RECORDS = 30_000
PIPELINE = """\
name: remote
sources:
  lines: {{topic: {topic}, decode: json, schema: "n INT"}}
steps:
  even: {{from: lines, python: "steps.py:even"}}
sinks:
  out: {{from: even, topic: {target}, key: n, delivery: exactly-once}}
"""
# A function of Python that executors run: it must get there.
STEPS = """
from pyspark.sql import functions as F

@F.udf(returnType="boolean")
def is_even(number):
    return number % 2 == 0

def even(frame):
    return frame.filter(is_even("n")).select("n")
"""


@pytest.fixture(scope="module")
def workers() -> Iterator[Standalone]:
    with standalone() as cluster:
        yield cluster


def test_a_batch_is_read_by_executors(cluster: Cluster, workers: Standalone) -> None:
    topic = cluster.create_topic(partitions=4)
    write(cluster.bootstrap_servers, topic, numbered(5000))
    command = [sys.executable, str(COUNT_JOB), cluster.bootstrap_servers, topic, workers.master]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"records": 5000, "different": 5000}


def test_no_record_is_lost_when_a_worker_is_killed(cluster: Cluster, workers: Standalone, tmp_path: Path) -> None:
    topics = cluster.create_topic(partitions=4), cluster.create_topic(partitions=4)
    expected = {each.key for each in numbered(RECORDS)}
    write(cluster.bootstrap_servers, topics[0], numbered(RECORDS))
    copy = Copy(cluster, topics, tmp_path / "copy", master=workers.master, executors=workers.executors)
    copy.until_commits(2)
    assert set(workers.executors().values()) == {worker.pid for worker in workers.workers}
    workers.kill_worker(0)
    copy.under_fire(0, random.Random(1), deadline_seconds=600)
    workers.replace_worker(0)
    assert copy.drivers == 1
    assert judge(cluster.bootstrap_servers, topics[1], expected) == Findings(0, 0, RECORDS)


def test_pipeline_runs_on_a_standalone_cluster(cluster: Cluster, workers: Standalone, tmp_path: Path) -> None:
    topic, target = cluster.create_topic(partitions=2), cluster.create_topic(partitions=2)
    write(cluster.bootstrap_servers, topic, [Entry(b"k", json.dumps({"n": n}).encode(), n % 2) for n in range(1000)])
    (tmp_path / "remote.yaml").write_text(PIPELINE.format(topic=topic, target=target))
    (tmp_path / "steps.py").write_text(STEPS)
    command = [sys.executable, "-m", "penstock", "pipeline", "run", str(tmp_path / "remote.yaml"), "--once"]
    settings = [word for name, value in DRIVER_SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    command += ["-b", cluster.bootstrap_servers, "--master", workers.master, *settings]
    environment = {**os.environ, "PENSTOCK_STATE": str(tmp_path / "state")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    expected = {str(number).encode() for number in range(0, 1000, 2)}
    assert judge(cluster.bootstrap_servers, target, expected) == Findings(0, 0, 500)
    assert eventually(lambda: not workers.executors(), 60)
