"""Apache Kafka's own command line, the Java client in its default settings, against this broker."""

from __future__ import annotations

import json
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.testing import Cluster
from support.kafka_tools import java_command, kafka_tool
from support.wire_client import WireClient, batch_of, records_in

pytestmark = [pytest.mark.java, pytest.mark.slow]

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({"offsets.topic.num.partitions": "3"}) as running:
        yield running


@pytest.fixture
def tool(cluster: Cluster) -> Tool:
    """Run a tool against the broker; it must succeed."""

    def run(name: str, *arguments: str, stdin: str | None = None) -> str:
        done = kafka_tool(name, "--bootstrap-server", cluster.bootstrap_servers, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    with WireClient(cluster.bootstrap_servers) as wire:
        return [record.value for record in records_in(wire.fetch(topic, 0).records)]


def test_topics_are_created_described_altered_and_deleted(tool: Tool) -> None:
    name = f"java-{uuid.uuid4().hex[:8]}"
    created = tool("kafka-topics", "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=60000")
    assert f"Created topic {name}." in created
    assert name in tool("kafka-topics", "--list").split()
    described = tool("kafka-topics", "--describe", "--topic", name)
    assert re.search(r"PartitionCount:\s*2\s+ReplicationFactor:\s*1\s+Configs:.*retention.ms=60000", described)
    assert len(re.findall(r"Leader:\s*1\s+Replicas:\s*1\s+Isr:\s*1", described)) == 2
    tool("kafka-topics", "--alter", "--topic", name, "--partitions", "4")
    assert "PartitionCount: 4" in tool("kafka-topics", "--describe", "--topic", name)
    tool("kafka-topics", "--delete", "--topic", name)
    assert name not in tool("kafka-topics", "--list").split()


def test_settings_are_described_and_altered(cluster: Cluster, tool: Tool) -> None:
    topic = cluster.create_topic()
    about = ("--entity-type", "topics", "--entity-name", topic)
    tool("kafka-configs", *about, "--alter", "--add-config", "retention.ms=12345,cleanup.policy=[compact,delete]")
    described = tool("kafka-configs", *about, "--describe")
    assert "retention.ms=12345" in described
    assert "cleanup.policy=compact,delete" in described
    tool("kafka-configs", *about, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in tool("kafka-configs", *about, "--describe")
    assert "min.insync.replicas=1" in tool("kafka-configs", *about, "--describe", "--all")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_java_producer_and_consumer_agree_with_us(cluster: Cluster, tool: Tool, codec: str) -> None:
    topic = cluster.create_topic()
    lines = [f"k{number}\tvalue {number} ü" for number in range(200)]
    tool(
        "kafka-console-producer",
        *("--topic", topic, "--compression-codec", codec, "--reader-property", "parse.key=true"),
        stdin="\n".join(lines) + "\n",
    )
    assert values(cluster, topic) == [line.split("\t")[1].encode() for line in lines]
    read = tool(
        "kafka-console-consumer",
        *("--topic", topic, "--partition", "0", "--offset", "50", "--max-messages", "150"),
        *("--formatter-property", "print.key=true"),
    )
    assert read.splitlines() == lines[50:]


def test_a_java_consumer_in_a_group_reads_from_the_beginning(cluster: Cluster, tool: Tool) -> None:
    topic = cluster.create_topic(partitions=3)
    with WireClient(cluster.bootstrap_servers) as wire:
        for partition in range(3):
            wire.produce(topic, batch_of([b"%d" % partition] * 5), partition=partition)
    read = tool("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "15")
    assert sorted(read.split()) == ["0"] * 5 + ["1"] * 5 + ["2"] * 5


def test_a_java_consumer_s_long_poll_and_session_see_new_records(cluster: Cluster) -> None:
    """One fetch session over many polls: partitions that are quiet are not told again, and news still arrive."""
    topic = cluster.create_topic(partitions=3)
    command = java_command(
        "kafka-console-consumer",
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--partition", "0", "--offset", "0"),
        *("--max-messages", "6"),
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with WireClient(cluster.bootstrap_servers) as wire:
            for number in range(6):
                wire.produce(topic, batch_of([b"late %d" % number]))
                time.sleep(0.6)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert out.splitlines() == [f"late {number}" for number in range(6)], err


def test_offsets_records_and_directories(cluster: Cluster, tool: Tool, tmp_path: Path) -> None:
    topic = cluster.create_topic()
    now = int(time.time() * 1000)
    with WireClient(cluster.bootstrap_servers) as wire:
        wire.produce(topic, batch_of([b"x"] * 10, timestamps=[now + number for number in range(10)]))
    for wanted, offset in (("earliest", 0), ("latest", 10), ("max-timestamp", 9), (str(now + 4), 4)):
        assert tool("kafka-get-offsets", "--topic", topic, "--time", wanted).strip() == f"{topic}:0:{offset}"
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 7}]}))
    assert "low_watermark: 7" in tool("kafka-delete-records", "--offset-json-file", str(plan))
    assert tool("kafka-get-offsets", "--topic", topic, "--time", "earliest").strip() == f"{topic}:0:7"
    described = tool("kafka-log-dirs", "--describe", "--topic-list", topic)
    report = json.loads(next(line for line in described.splitlines() if line.startswith("{")))
    (directory,) = report["brokers"][0]["logDirs"]
    assert (directory["error"], directory["logDir"]) == (None, str(cluster.data_dir))
    assert [(row["partition"], row["size"] > 0) for row in directory["partitions"]] == [(f"{topic}-0", True)]


def test_the_cluster_is_known(cluster: Cluster, tool: Tool) -> None:
    versions = tool("kafka-broker-api-versions")
    assert cluster.bootstrap_servers in versions
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "Fetch(1): 4 to 18 [usable: 18]" in versions
    cluster_id = kafka_tool("kafka-cluster", "cluster-id", "--bootstrap-server", cluster.bootstrap_servers)
    assert "Cluster ID: " in cluster_id.stdout


def test_the_java_producer_s_load_tool(cluster: Cluster, tool: Tool) -> None:
    topic = cluster.create_topic()
    arguments = ("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    servers = f"bootstrap.servers={cluster.bootstrap_servers}"
    done = kafka_tool("kafka-producer-perf-test", *arguments, "--producer-props", servers)
    assert done.returncode == 0, done.stderr
    assert "20000 records sent" in done.stdout
    assert tool("kafka-get-offsets", "--topic", topic).strip() == f"{topic}:0:20000"


def test_what_is_not_there_is_named(cluster: Cluster) -> None:
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    absent = kafka_tool("kafka-topics", *servers, "--describe", "--topic", "no-such-topic")
    assert absent.returncode != 0
    assert "no-such-topic" in absent.stdout + absent.stderr
    bad = kafka_tool("kafka-topics", *servers, "--create", "--topic", "t", "--config", "retention.ms=soon")
    assert bad.returncode != 0
    assert "retention.ms" in bad.stdout + bad.stderr
