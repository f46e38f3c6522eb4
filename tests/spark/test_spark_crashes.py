"""Exactly once while drivers, executors and partition leaders are killed at random: no loss, no duplicates.

`SPARK_CRASH_RECORDS`, `SPARK_CRASH_KILLS` and `SPARK_CRASH_SEED` change the long run, which `make spark-test` makes.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import pytest

from penstock.testing import Cluster
from support.spark.topics import numbered, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

from pyspark.sql import SparkSession

from support.spark.fire import Copy, Findings, judge
from support.spark.standalone import standalone

RECORDS = int(os.environ.get("SPARK_CRASH_RECORDS", "120000"))
KILLS = int(os.environ.get("SPARK_CRASH_KILLS", "12"))
SEED = int(os.environ.get("SPARK_CRASH_SEED", "7"))
RECORDS_OF_A_SHORT_RUN = 15_000
PARTITIONS = 4


def fill(cluster: Cluster, records: int) -> tuple[str, str]:
    topics = cluster.create_topic(partitions=PARTITIONS), cluster.create_topic(partitions=PARTITIONS)
    write(cluster.bootstrap_servers, topics[0], numbered(records))
    return topics


def keys(records: int) -> set[bytes | None]:
    return {each.key for each in numbered(records)}


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_duplicated_on_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    with Cluster(nodes=3) as cluster, standalone() as spark:
        topics = fill(cluster, RECORDS)
        copy = Copy(cluster, topics, tmp_path / "copy", master=spark.master, executors=spark.executors)
        copy.under_fire(KILLS, random.Random(SEED), deadline_seconds=3000)
        findings = judge(cluster.bootstrap_servers, topics[1], keys(RECORDS))
    with capsys.disabled():
        seconds = time.monotonic() - started
        print(f"\nseed {SEED}: {dict(copy.killed)} killed, {copy.drivers} drivers, {seconds:.0f} s: {findings}")  # noqa: T201
    assert findings == Findings(missing=0, doubled=0, records=RECORDS)


@pytest.mark.slow
def test_nothing_is_lost_or_duplicated_on_one_machine(tmp_path: Path) -> None:
    with Cluster(nodes=3) as cluster:
        topics = fill(cluster, RECORDS_OF_A_SHORT_RUN)
        copy = Copy(cluster, topics, tmp_path / "copy")
        copy.under_fire(3, random.Random(SEED), deadline_seconds=300)
        findings = judge(cluster.bootstrap_servers, topics[1], keys(RECORDS_OF_A_SHORT_RUN))
    assert findings == Findings(missing=0, doubled=0, records=RECORDS_OF_A_SHORT_RUN)


def test_crash_test_detects_a_sink_that_ignores_markers(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    topics = fill(cluster, 500)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    source = spark.readStream.format("penstock").options(**options, subscribe=topics[0], startingOffsets="earliest")
    rows = source.load().select("key", "value")

    def run(markers: str) -> Findings:
        writer = rows.writeStream.format("penstock").options(**options, topic=topics[1], delivery="exactly-once")
        writer = writer.option("markerTopic", markers).option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(100)
        assert query.exception() is None
        # The driver dies between the tasks' commits and its own note of them.
        shutil.rmtree(tmp_path / "commits")
        return judge(cluster.bootstrap_servers, topics[1], keys(500))

    assert run("markers") == Findings(missing=0, doubled=0, records=500)
    assert run("markers") == Findings(missing=0, doubled=0, records=500)
    # A task that reads its marker from an empty topic ignores the one it has written.
    assert run("no-markers") == Findings(missing=0, doubled=500, records=1000)
