"""Apache Kafka's own tools for clusters against three nodes: quorum, reassignment, elections, features, the log."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.testing import Cluster
from support.kafka_tools import java_missing, libraries_of
from support.kafka_tools import kafka_tool as tool_of_any_version
from support.processes import eventually

pytestmark = [pytest.mark.java, pytest.mark.slow]

# The one whose metadata version new clusters have.
VERSION = "4.3.1"
kafka_tool = partial(tool_of_any_version, libraries=libraries_of(VERSION))

Tool = Callable[..., str]
PATIENCE_S = 30


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    missing = java_missing(VERSION)
    if missing is not None:
        pytest.skip(missing)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({"offsets.topic.num.partitions": "3"}, nodes=3) as running:
        yield running


@pytest.fixture
def tool(cluster: Cluster) -> Tool:
    """Run a tool against the brokers; it must succeed."""

    def run(name: str, *arguments: str) -> str:
        done = kafka_tool(name, "--bootstrap-server", cluster.bootstrap_servers, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def rows(described: str) -> dict[int, dict[str, str]]:
    """The partitions of `kafka-topics --describe`."""
    found = {}
    for line in described.splitlines():
        fields = dict(re.findall(r"(\w+):\s*([\d,]+|none)", line))
        if "Partition" in fields and "Leader" in fields:
            found[int(fields["Partition"])] = fields
    return found


def test_topics_are_spread_over_the_brokers(tool: Tool) -> None:
    tool("kafka-topics", "--create", "--topic", "spread", "--partitions", "6", "--replication-factor", "3")
    partitions = rows(tool("kafka-topics", "--describe", "--topic", "spread"))
    assert len(partitions) == 6
    assert sorted(row["Leader"] for row in partitions.values()) == ["1", "1", "2", "2", "3", "3"]
    assert all(sorted(row["Isr"].split(",")) == ["1", "2", "3"] for row in partitions.values())
    assert eventually(lambda: not rows(tool("kafka-topics", "--describe", "--under-replicated-partitions")), PATIENCE_S)


def test_the_quorum_is_described(tool: Tool) -> None:
    status = dict(re.findall(r"^(\w+):\s+(.*)$", tool("kafka-metadata-quorum", "describe", "--status"), re.MULTILINE))
    assert status["LeaderId"] in ("1", "2", "3")
    assert int(status["HighWatermark"]) > 0
    assert [voter for voter in ("1", "2", "3") if re.search(rf"\b{voter}\b", status["CurrentVoters"])] == [
        "1",
        "2",
        "3",
    ]
    lines = tool("kafka-metadata-quorum", "describe", "--replication").splitlines()
    roles = {line.split()[0]: line.split()[-1] for line in lines[1:] if line.strip()}
    assert sorted(roles.values()) == ["Follower", "Follower", "Leader"]
    assert roles[status["LeaderId"]] == "Leader"


def test_partitions_are_moved_with_a_throttle_and_back(tool: Tool, cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.create_topic("moved", partitions=2, replication_factor=2)
    data = "\n".join(f"value-{number}" for number in range(500))
    done = kafka_tool(
        "kafka-console-producer", "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, stdin=data
    )
    assert done.returncode == 0, done.stderr
    before = rows(tool("kafka-topics", "--describe", "--topic", topic))
    plan = {
        "version": 1,
        "partitions": [
            {
                "topic": topic,
                "partition": index,
                "replicas": [
                    next(broker for broker in (1, 2, 3) if str(broker) not in row["Replicas"].split(",")),
                    int(row["Replicas"].split(",")[0]),
                ],
            }
            for index, row in before.items()
        ],
    }
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    file = ("--reassignment-json-file", str(path))
    executed = tool("kafka-reassign-partitions", *file, "--execute", "--throttle", "5000000")
    assert "Successfully started partition reassignments" in executed
    verified = ""
    deadline = time.monotonic() + PATIENCE_S
    while "still in progress" in (verified := tool("kafka-reassign-partitions", *file, "--verify")):
        assert time.monotonic() < deadline, verified
    assert verified.count("is completed") == 2, verified
    assert "No partition reassignments found" in tool("kafka-reassign-partitions", "--list")
    after = rows(tool("kafka-topics", "--describe", "--topic", topic))
    wanted = {row["partition"]: ",".join(map(str, row["replicas"])) for row in plan["partitions"]}
    assert {index: row["Replicas"] for index, row in after.items()} == wanted
    ends = tool("kafka-get-offsets", "--topic", topic)
    assert sum(int(line.rpartition(":")[2]) for line in ends.split()) == 500
    assert "throttled" not in tool("kafka-configs", "--describe", "--topic", topic)


def test_preferred_leaders_are_elected(tool: Tool, cluster: Cluster) -> None:
    topic = cluster.create_topic("led", partitions=3, replication_factor=3)
    cluster.kill(2)

    def leaders() -> list[str]:
        return [row["Leader"] for row in rows(tool("kafka-topics", "--describe", "--topic", topic)).values()]

    assert eventually(lambda: "2" not in leaders(), PATIENCE_S)
    cluster.start(2)

    def in_sync() -> bool:
        partitions = rows(tool("kafka-topics", "--describe", "--topic", topic))
        return all(len(row["Isr"].split(",")) == 3 for row in partitions.values())

    assert eventually(in_sync, PATIENCE_S)
    assert "2" not in leaders()
    done = tool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed leader election" in done
    assert sorted(leaders()) == ["1", "2", "3"]


def test_features_and_the_cluster_id_are_shown(tool: Tool, cluster: Cluster) -> None:
    features = tool("kafka-features", "describe")
    assert re.search(r"Feature: metadata\.version.*FinalizedVersionLevel: 4\.3-IV0", features), features
    assert "eligible.leader.replicas.version" in features
    shown = kafka_tool("kafka-cluster", "cluster-id", "--bootstrap-server", cluster.bootstrap_servers).stdout
    assert re.search(r"Cluster ID: [\w-]{22}", shown), shown


def test_the_metadata_log_of_a_node_is_read_by_kafka(cluster: Cluster) -> None:
    cluster.create_topic("decoded", partitions=2, replication_factor=3)
    data = next(cluster.data_dir.glob("**/__cluster_metadata-0"))
    log = data / "00000000000000000000.log"
    done = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(log))
    assert done.returncode == 0, done.stderr
    for kind in ("REGISTER_BROKER_RECORD", "REGISTER_CONTROLLER_RECORD", "PARTITION_RECORD", "FEATURE_LEVEL_RECORD"):
        assert kind in done.stdout, kind
    assert "LeaderChange" in done.stdout
    assert "isvalid: false" not in done.stdout
