"""`penstock pipeline` from outside: a run that is watched and stopped, a dry run, an archive that is audited."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.testing import Cluster
from support.processes import eventually
from support.spark.topics import Entry, numbered, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

from penstock.spark.pipelines.reporting import TOPIC
from penstock.spark.pipelines.running import running

pytestmark = pytest.mark.slow

PIPELINE = """\
name: watched
sources:
  lines: {{topic: {topic}, decode: json, schema: "n INT"}}
steps:
  even: {{sql: SELECT n FROM lines WHERE n % 2 = 0}}
sinks:
  out: {{from: even, topic: {target}, key: n}}
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    return {**os.environ, "SPARK_MASTER": "local[2]"}


def command(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "penstock", "pipeline", *words]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=200)


def test_a_pipeline_is_watched_and_stopped(cluster: Cluster, tmp_path: Path, environment: dict[str, str]) -> None:
    topic, target = cluster.create_topic(), cluster.create_topic()
    cluster.create_topic(f"dlq.{topic}")
    entries = [Entry(b"k", json.dumps({"n": number}).encode()) for number in range(100)]
    write(cluster.bootstrap_servers, topic, [*entries, Entry(b"k", b"bad")])
    file = tmp_path / "watched.yaml"
    file.write_text(PIPELINE.format(topic=topic, target=target))
    words = ["run", str(file), "-b", cluster.bootstrap_servers, "--metrics-port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "pipeline", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:

        def has_worked() -> bool:
            found = running()
            return bool(found) and bool(found[0].queries) and all(query.rows == 101 for query in found[0].queries)

        assert eventually(has_worked, 300, interval=0.5)
        (status,) = json.loads(command(environment, "status", "-o", "json").stdout)
        assert [query["lag"] for query in status["queries"]] == [0, 0]
        assert "watched" in command(environment, "list").stdout
        with urllib.request.urlopen(status["metrics"], timeout=10) as answer:
            figures = answer.read().decode().splitlines()
        for line in (
            'penstock_pipeline_up{pipeline="watched"} 1',
            'penstock_pipeline_input_rows_total{pipeline="watched",query="sinks/out"} 101',
            'penstock_pipeline_output_rows_total{pipeline="watched",query="sinks/out"} 50',
            'penstock_pipeline_dead_letters_total{pipeline="watched",query="dead_letters/lines"} 1',
            f'penstock_pipeline_lag_records{{pipeline="watched",query="sinks/out",topic="{topic}"}} 0',
        ):
            assert line in figures
        again = command(environment, "run", str(file))
        assert (again.returncode, "watched is already running" in again.stderr) == (1, True)
        stopped = command(environment, "stop", "watched")
        assert (stopped.returncode, stopped.stdout) == (0, "watched is stopped\n")
    finally:
        process.kill()
        output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "watched/sinks/out" in output
    assert "[]" in command(environment, "list", "-o", "json").stdout
    reports = reported_states(cluster.bootstrap_servers, "watched")
    assert set(reports) == {"running", "ended"}
    assert reports["ended"]["queries"][0]["rows"] == 101


def reported_states(bootstrap: str, name: str) -> dict[str, dict[str, Any]]:
    """The last report of each state that a pipeline sent to its cluster."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reports",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[str, dict[str, Any]] = {}
    while (message := consumer.poll(30)) is not None and message.error() is None:
        if message.key() == name.encode():
            report = json.loads(message.value() or b"")
            found[report["state"]] = report
    consumer.close()
    return found


@pytest.mark.heavy
def test_a_dry_run_writes_nothing(cluster: Cluster, tmp_path: Path, environment: dict[str, str]) -> None:
    topic = cluster.create_topic()
    write(cluster.bootstrap_servers, topic, [Entry(b"k", b'{"n": 4}'), Entry(b"k", b"bad")])
    file = tmp_path / "dry.yaml"
    file.write_text(PIPELINE.format(topic=topic, target="never-made"))
    done = command(environment, "dry-run", str(file), "-b", cluster.bootstrap_servers)
    assert done.returncode == 0, done.stderr
    assert "out → topic never-made" in done.stdout
    assert '{"n":4}' in done.stdout
    assert "1 dead letter of lines" in done.stdout
    assert not (tmp_path / ".penstock").exists()


@pytest.mark.heavy
def test_an_archive_is_audited(cluster: Cluster, tmp_path: Path, environment: dict[str, str]) -> None:
    topic = cluster.create_topic(partitions=2)
    write(cluster.bootstrap_servers, topic, numbered(50))
    archive = str(tmp_path / "archive")
    where = ("-b", cluster.bootstrap_servers)
    assert "50 records added" in command(environment, "archive", topic, archive, *where).stdout
    assert command(environment, "audit", topic, archive, *where).returncode == 0
    write(cluster.bootstrap_servers, topic, numbered(1))
    behind = command(environment, "audit", topic, archive, *where, "-o", "json")
    assert behind.returncode == 1
    assert sum(each["missing"] for each in json.loads(behind.stdout)) == 1
