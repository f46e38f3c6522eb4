"""A quorum of two Penstock nodes and one Apache Kafka controller: each leads the others, and their logs are equal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from support.kafka_broker import CLUSTER_ID, free_port, write_properties
from support.kafka_tools import java_command, java_missing, kafka_tool, libraries_of
from support.processes import eventually

pytestmark = [pytest.mark.java, pytest.mark.slow]

LOG = Path("__cluster_metadata-0/00000000000000000000.log")
KAFKA_FLAGS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
KAFKA_ID = 3
# It must know the metadata version that Penstock starts clusters with.
VERSION = "4.3.1"


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    missing = java_missing(VERSION)
    if missing is not None:
        pytest.skip(missing)


class MixedQuorum:
    """Nodes 1 and 2 are Penstock's, broker and controller at once; node 3 is a controller of Apache Kafka."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {node_id: (free_port(), free_port()) for node_id in (1, 2, 3)}
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        for node_id in self.ports:
            self._format(node_id)

    def _format(self, node_id: int) -> None:
        port, controller_port = self.ports[node_id]
        voters = ",".join(f"{one}@127.0.0.1:{ports[1]}" for one, ports in self.ports.items())
        listeners = f"CONTROLLER://127.0.0.1:{controller_port}"
        properties = {
            "node.id": str(node_id),
            "process.roles": "controller",
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data(node_id)),
        }
        if node_id != KAFKA_ID:
            listeners += f",PLAINTEXT://127.0.0.1:{port}"
            properties |= {"process.roles": "broker,controller", "inter.broker.listener.name": "PLAINTEXT"}
        write_properties(self.config(node_id), properties | {"listeners": listeners})
        arguments = ("format", "-t", CLUSTER_ID, "-c", str(self.config(node_id)))
        if node_id == KAFKA_ID:
            done = kafka_tool("kafka-storage", *arguments, libraries=libraries_of(VERSION))
        else:
            command = [sys.executable, "-m", "penstock", "storage", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    def config(self, node_id: int) -> Path:
        return self.directory / f"node{node_id}.properties"

    def data(self, node_id: int) -> Path:
        return self.directory / f"data{node_id}"

    def start(self, node_id: int) -> None:
        command = (
            java_command(
                "kafka-server-start", str(self.config(node_id)), libraries=libraries_of(VERSION), flags=KAFKA_FLAGS
            )
            if node_id == KAFKA_ID
            else [sys.executable, "-m", "penstock", "server", "-c", str(self.config(node_id))]
        )
        with open(self.directory / f"node{node_id}.out", "ab") as out:
            self.running[node_id] = subprocess.Popen(command, stdout=out, stderr=out)

    def end(self, node_id: int, *, kill: bool) -> None:
        process = self.running.pop(node_id)
        if kill:
            process.kill()
        else:
            process.terminate()
        process.wait(60)

    def leader(self, seen_by: int) -> int:
        """Who leads, as a node's quorum-state tells; -1 when it does not know."""
        path = self.data(seen_by) / "__cluster_metadata-0/quorum-state"
        return int(json.loads(path.read_text())["leaderId"]) if path.exists() else -1

    def settled(self) -> int | None:
        """The leader that all running nodes agree on."""
        leaders = {self.leader(node_id) for node_id in self.running}
        return leaders.pop() if len(leaders) == 1 and leaders <= set(self.running) else None

    def create_topic(self, name: str) -> None:
        """Have it created by the leader; a client that was too early retries."""
        assert eventually(lambda: self._creates(name), 40)

    def _creates(self, name: str) -> bool:
        brokers = ",".join(f"127.0.0.1:{self.ports[one][0]}" for one in self.running if one != KAFKA_ID)
        admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
        try:
            admin.create_topics([NewTopic(name, 2, 1)], request_timeout=5)[name].result(10)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    def have_equal_logs(self) -> bool:
        return len({(self.data(node_id) / LOG).read_bytes() for node_id in self.running}) == 1


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[MixedQuorum]:
    quorum = MixedQuorum(tmp_path)
    try:
        yield quorum
    finally:
        for node_id in list(quorum.running):
            quorum.end(node_id, kill=True)


def test_penstock_and_apache_kafka_lead_each_other(mixed: MixedQuorum) -> None:
    for node_id in (1, 2):
        mixed.start(node_id)
    assert eventually(lambda: mixed.settled() is not None, 20)
    mixed.create_topic("before")
    first = mixed.settled()
    assert first in (1, 2)
    mixed.start(KAFKA_ID)
    assert eventually(lambda: mixed.leader(KAFKA_ID) == first and mixed.have_equal_logs(), 60)

    # With one Penstock node left, Apache Kafka or that node leads; once Kafka does, Penstock follows and forwards.
    mixed.end(first, kill=True)
    assert eventually(lambda: mixed.settled() not in (None, first), 20)
    mixed.create_topic("between")
    second = mixed.settled()
    mixed.start(first)
    assert eventually(lambda: mixed.settled() == second, 20)
    mixed.create_topic("again")

    assert second is not None
    mixed.end(second, kill=False)
    assert eventually(lambda: mixed.settled() not in (None, second), 20)
    mixed.create_topic("after")
    assert eventually(mixed.have_equal_logs, 20)
