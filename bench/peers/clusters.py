"""Three nodes of Penstock and three of Apache Kafka on this machine, each broker and controller, set up alike."""

from __future__ import annotations

import sys
import threading
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

from tests.support.kafka_broker import CLUSTER_ID, SERVER_FLAGS, KafkaBroker, free_port, write_properties
from tests.support.kafka_tools import KAFKA_VERSION, java_missing

from bench.build import LoadGenerators
from bench.peers.base import run_program
from bench.peers.kafka_protocol import KafkaProtocolPeer
from bench.peers.process import ServerProcess

NODES = (1, 2, 3)
HEAP = tuple(flag.replace("1G", "512M") if flag.startswith("-Xm") else flag for flag in SERVER_FLAGS)


def three_nodes(data: Path, ports: Mapping[int, int], controllers: Mapping[int, int]) -> dict[int, dict[str, str]]:
    """The settings of each node, in Kafka's own property names."""
    voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
    return {
        node: {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{ports[node]},CONTROLLER://127.0.0.1:{controllers[node]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[node]}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(data / str(node) / "log"),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
        }
        for node in NODES
    }


class ThreeNodes(KafkaProtocolPeer):
    """A cluster whose topics have three replicas, two of which must be in sync."""

    replication_factor = len(NODES)

    def __init__(self, generators: LoadGenerators) -> None:
        super().__init__(generators)
        self._ports: dict[int, int] = {}

    def prepare(self, data: Path, port: int) -> None:
        self._ports = {node: port if node == 1 else free_port() for node in NODES}
        controllers = {node: free_port() for node in NODES}
        for node, properties in three_nodes(data, self._ports, controllers).items():
            (data / str(node)).mkdir(parents=True)
            self.prepare_node(data / str(node), node, properties)

    @abstractmethod
    def prepare_node(self, data: Path, node: int, properties: dict[str, str]) -> None:
        """Write one node's settings and format its storage."""

    @abstractmethod
    def start_node(self, data: Path, node: int) -> None:
        """Start one node; returns once it listens."""

    def start(self, data: Path, port: int) -> None:  # noqa: ARG002 - all ports were chosen before
        starting = [threading.Thread(target=self.start_node, args=(data / str(node), node)) for node in NODES]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()

    @property
    def port(self) -> int:
        return self._ports[1]

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    @property
    def pid(self) -> int:
        return self.pids[0]

    @property
    @abstractmethod
    def pids(self) -> list[int]:
        """One process a node."""


class PenstockCluster(ThreeNodes):
    name = "penstock"
    label = "Penstock"
    durability = "acks=all: every in-sync replica has it; from the page cache, as all three nodes would have to fail"

    def __init__(self, generators: LoadGenerators) -> None:
        super().__init__(generators)
        self._servers: dict[int, ServerProcess] = {}

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return "this checkout"

    def settings(self) -> str:
        return f"three processes, defaults, CPython {sys.version.split()[0]}"

    def prepare_node(self, data: Path, node: int, properties: dict[str, str]) -> None:
        config = data / "server.properties"
        write_properties(config, properties)
        run_program([sys.executable, "-m", "penstock", "storage", "format", "-t", CLUSTER_ID, "-c", str(config)])
        self._servers[node] = ServerProcess()

    def start_node(self, data: Path, node: int) -> None:
        command = [sys.executable, "-m", "penstock", "server", "--config", str(data / "server.properties")]
        self._servers[node].start(command, data, self._ports[node])

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self._servers.values()]

    def stop(self) -> None:
        for server in self._servers.values():
            server.stop()


class KafkaCluster(ThreeNodes):
    name = "kafka"
    label = "Apache Kafka"
    durability = "acks=all: every in-sync replica has it, in its page cache"

    def __init__(self, generators: LoadGenerators) -> None:
        super().__init__(generators)
        self._brokers: dict[int, KafkaBroker] = {}

    def missing(self) -> str | None:
        return java_missing()

    def version(self) -> str:
        return KAFKA_VERSION

    def settings(self) -> str:
        return "three JVMs in KRaft combined mode, the shipped server.properties, 512 MB heap each, G1"

    def prepare_node(self, data: Path, node: int, properties: dict[str, str]) -> None:
        self._brokers[node] = KafkaBroker(data, self._ports[node], properties, HEAP)
        self._brokers[node].format()

    def start_node(self, data: Path, node: int) -> None:  # noqa: ARG002 - it knows where its data are
        self._brokers[node].start()

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self._brokers.values()]

    def stop(self) -> None:
        for broker in self._brokers.values():
            broker.stop()
        self._brokers.clear()
