"""Kafka 4.3's own tool for share groups, and Penstock's, on a group that has a member and then has none."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.kafka_tools import java_missing, kafka_tool, libraries_of
from support.wire_client import WireClient, batch_of

VERSION = "4.3.1"
GROUP = "sharers"
MEMBER = "member-1"
STARTING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({"offsets.topic.num.partitions": "1"}) as running:
        yield running


class SharingMember:
    """Sends heartbeats until it leaves; `has_all` is set once it has both partitions."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._address = cluster.bootstrap_servers
        self._topic = topic
        self._leaving = threading.Event()
        self.has_all = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> SharingMember:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self._thread.join(30)

    def _run(self) -> None:
        with WireClient(self._address) as wire:
            epoch = 0
            wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 6)
            while not self._leaving.is_set():
                names = [self._topic] if not epoch else None
                response = wire.call(ShareGroupHeartbeatRequest(GROUP, MEMBER, epoch, None, names), 1)
                if response.error_code in STARTING:
                    self._leaving.wait(0.05)
                    continue
                assert not response.error_code, response.error_message
                epoch = response.member_epoch
                if (
                    response.assignment
                    and sum(len(row.partitions) for row in response.assignment.topic_partitions) == 2
                ):
                    self.has_all.set()
                self._leaving.wait(0.05)
            wire.call(ShareGroupHeartbeatRequest(GROUP, MEMBER, -1), 1)


def shares(cluster: Cluster, *arguments: str, fails: bool = False) -> str:
    """What kafka-share-groups prints."""
    done = kafka_tool(
        "kafka-share-groups",
        "--bootstrap-server",
        cluster.bootstrap_servers,
        *arguments,
        libraries=libraries_of(VERSION),
    )
    assert fails or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def penstock(cluster: Cluster, *arguments: str) -> str:
    command = [sys.executable, "-m", "penstock", "group", *arguments, "-b", cluster.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_share_group_is_managed_with_tools(cluster: Cluster) -> None:
    reason = java_missing(VERSION)
    if reason is not None:
        pytest.skip(reason)
    topic = cluster.create_topic(f"shared-{uuid.uuid4().hex[:8]}", partitions=2)
    with WireClient(cluster.bootstrap_servers) as wire:
        assert wire.produce(topic, batch_of([b"a", b"b", b"c"])).error_code == 0
    with SharingMember(cluster, topic) as member:
        assert member.has_all.wait(60)
        assert re.search(rf"{GROUP}\s+Stable", shares(cluster, "--list", "--state"))
        assert re.search(
            rf"{GROUP}\s+127.0.0.1:\d+\s+\(1\)\s+Stable\s+1", shares(cluster, "--describe", "--group", GROUP, "--state")
        )
        members = shares(cluster, "--describe", "--group", GROUP, "--members", "--verbose")
        assert re.search(rf"{GROUP}\s+{MEMBER}\s.*{topic}:0,1", members)
        busy = shares(cluster, "--delete", "--group", GROUP, fails=True)
        assert "not empty" in busy.lower()
        (listed,) = json.loads(penstock(cluster, "list", GROUP, "-o", "json"))
        assert (listed["type"], listed["state"], listed["members"]) == ("share", "Stable", 1)
    reset = shares(cluster, "--reset-offsets", "--group", GROUP, "--topic", topic, "--to-earliest", "--execute")
    assert re.search(rf"{GROUP}\s+{topic}\s+0\s+0", reset)
    offsets = shares(cluster, "--describe", "--group", GROUP, "--offsets")
    assert re.search(rf"{GROUP}\s+{topic}\s+0\s+0\s+3", offsets)
    described = json.loads(penstock(cluster, "describe", GROUP, "-o", "json"))
    assert (described["state"], described["lag"]) == ("Empty", 3)
    assert [(row["partition"], row["committed_offset"], row["lag"]) for row in described["partitions"]] == [
        (0, 0, 3),
        (1, 0, 0),
    ]
    assert "Successful" in shares(cluster, "--delete-offsets", "--group", GROUP, "--topic", topic)
    shares(cluster, "--delete", "--group", GROUP)
    assert GROUP not in shares(cluster, "--list")


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_java_share_consumers_share_one_partition(cluster: Cluster) -> None:
    reason = java_missing(VERSION)
    if reason is not None:
        pytest.skip(reason)
    group = f"java-{uuid.uuid4().hex[:8]}"
    topic = cluster.create_topic(f"shared-{uuid.uuid4().hex[:8]}", partitions=1)
    values = [f"value-{number}" for number in range(200)]
    with WireClient(cluster.bootstrap_servers) as wire:
        for first in range(0, len(values), 10):
            assert wire.produce(topic, batch_of([text.encode() for text in values[first : first + 10]])).error_code == 0
    where = ("--bootstrap-server", cluster.bootstrap_servers)
    configured = kafka_tool(
        *("kafka-configs", *where, "--alter", "--entity-type", "groups", "--entity-name", group),
        *("--add-config", "share.auto.offset.reset=earliest,share.heartbeat.interval.ms=5000"),
        libraries=libraries_of(VERSION),
    )
    assert configured.returncode == 0, configured.stdout + configured.stderr

    def consume(_: int) -> list[str]:
        done = kafka_tool(
            *("kafka-console-share-consumer", *where, "--topic", topic, "--group", group, "--timeout-ms", "15000"),
            libraries=libraries_of(VERSION),
            timeout=120,
        )
        return done.stdout.split()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(consume, range(2))
    assert sorted([*first, *second]) == sorted(values)
    described = json.loads(penstock(cluster, "describe", group, "-o", "json"))
    assert (described["type"], described["state"], described["lag"]) == ("share", "Empty", 0)
