"""Apache Kafka 4.3's tools move replicas between the data directories of brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import Cluster
from support.kafka_tools import java_missing, kafka_tool, libraries_of
from support.processes import eventually
from support.wire_client import WireClient, batch_of, records_in

VERSION = "4.3.1"
pytestmark = [pytest.mark.java, pytest.mark.slow]

Tool = Callable[..., str]


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "first", tmp_path / "second"


@pytest.fixture
def cluster(tmp_path: Path, disks: tuple[Path, Path]) -> Iterator[Cluster]:
    settings = {"log.dirs": ",".join(map(str, disks)), "metadata.log.dir": str(tmp_path / "metadata")}
    with Cluster(settings, data_dir=tmp_path / "broker") as running:
        yield running


@pytest.fixture
def tool(cluster: Cluster) -> Tool:
    reason = java_missing(VERSION)
    if reason is not None:
        pytest.skip(reason)

    def run(name: str, *arguments: str) -> str:
        servers = ("--bootstrap-server", cluster.bootstrap_servers)
        done = kafka_tool(name, *servers, *arguments, libraries=libraries_of(VERSION))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def described(tool: Tool, topic: str) -> dict[str, Any]:
    """The directories that have a replica of the topic, by path."""
    out = tool("kafka-log-dirs", "--describe", "--topic-list", topic)
    report = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
    rows = {row["logDir"]: row["partitions"] for row in report["brokers"][0]["logDirs"]}
    return {path: partitions[0] for path, partitions in rows.items() if partitions}


def test_a_replica_is_moved_watched_and_verified(
    cluster: Cluster, tool: Tool, disks: tuple[Path, Path], tmp_path: Path
) -> None:
    topic = cluster.create_topic()
    values = [b"%d" % number + bytes(100_000) for number in range(30)]
    with WireClient(cluster.bootstrap_servers) as client:
        for value in values:
            assert client.produce(topic, batch_of([value])).error_code == 0
    (source,) = described(tool, topic)
    target = next(str(path) for path in disks if str(path) != source)
    plan = tmp_path / "plan.json"
    rows = [{"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [target]}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    file = ("--reassignment-json-file", str(plan))
    out = tool("kafka-reassign-partitions", *file, "--execute", "--replica-alter-log-dirs-throttle", "1000")
    assert f"Successfully started moving log directory to {target} for replica {topic}-0 with broker 1" in out, out
    assert f"Reassignment of replica {topic}-0-1 is still in progress" in tool(
        "kafka-reassign-partitions", *file, "--verify", "--preserve-throttles"
    )
    assert described(tool, topic)[target]["isFuture"] is True
    # As fast as it can from here on.
    tool("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--delete-config",
         "replica.alter.log.dirs.io.max.bytes.per.second")  # fmt: skip
    assert eventually(lambda: set(described(tool, topic)) == {target}, 60, 0.5)
    out = tool("kafka-reassign-partitions", *file, "--verify")
    assert f"Reassignment of replica {topic}-0-1 completed successfully" in out, out
    assert described(tool, topic)[target]["isFuture"] is False
    with WireClient(cluster.bootstrap_servers) as client:
        found: list[bytes | None] = []
        while len(found) < len(values):
            found += [record.value for record in records_in(client.fetch(topic, len(found)).records)]
        assert found == values
