"""Apache Kafka's own tools against a broker whose old segments are in object storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing import Cluster
from support.kafka_tools import kafka_tool
from support.tier_cluster import TIERED, eventually, fill, local_bytes, tier_missing, tier_settings

MISSING = tier_missing()
pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]


def test_the_java_client_reads_from_the_beginning(tmp_path: Path) -> None:
    with Cluster(tier_settings(f"file://{tmp_path}")) as cluster:
        topic = cluster.create_topic(configs=dict(TIERED))
        values = [f"{number:08d}".encode() * 12 for number in range(1500)]
        fill(cluster.bootstrap_servers, topic, values)
        eventually(lambda: local_bytes(cluster, topic) <= 20_000 + 2 * 16_384)

        def tool(name: str, *arguments: str) -> str:
            done = kafka_tool(name, "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, *arguments)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        def offset(time: str) -> int:
            return int(tool("kafka-get-offsets", "--time", time).strip().rpartition(":")[2])

        assert offset("earliest") == 0
        assert 0 < offset("earliest-local") <= offset("latest-tiered") + 1 < offset("latest") == 1500
        read = tool("kafka-console-consumer", "--from-beginning", "--max-messages", "1500", "--timeout-ms", "30000")
        assert read.split() == [value.decode() for value in values]
        options = ("--isolation-level", "read_committed", "--timeout-ms", "30000")
        committed = tool("kafka-console-consumer", "--from-beginning", "--max-messages", "1500", *options)
        assert committed == read
        described = kafka_tool(
            "kafka-configs", "--bootstrap-server", cluster.bootstrap_servers, "--describe", "--topic", topic
        )
        assert "remote.storage.enable=true" in described.stdout
