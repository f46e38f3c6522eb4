"""An open cluster is closed under load by the rounds of docs/security.md: nothing is lost, nothing is there twice."""

from __future__ import annotations

import datetime
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.cli.storage.format import format_directories
from penstock.config.load import load_node_settings, read_properties
from penstock.local.layout import CONTROLLER_HOST, free_ports, node_layouts, node_properties, write_properties
from penstock.local.process import BrokerProcess
from penstock.runtime.security.certificates import issue, make_authority

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
NODES = (1, 2, 3)
HOST = CONTROLLER_HOST
TOPIC, GROUP = "orders", "billing"
USERS = {"node": "node-secret", "alice": "alice-secret"}
START_S = 90.0
HEALTHY_S = 120.0
PAUSE_S = 0.005


def rounds() -> list[str]:
    """The settings of each round, as the page has them."""
    _, _, section = PAGE.read_text("utf-8").partition("\n## Closing an open cluster\n")
    return re.findall(r"```properties\n(.*?)```", section, re.DOTALL)


class OpenCluster:
    """Three nodes without any security at first; `ports` has those of each node by the ports of the page."""

    def __init__(self, directory: Path) -> None:
        now = datetime.datetime.now(datetime.UTC)
        ports = iter(free_ports(4 * len(NODES)))
        self.ports = {node: {page: next(ports) for page in (9092, 9093, 9094, 9095)} for node in NODES}
        self._directory = directory
        authority = make_authority("Penstock's tests", now)
        self.ca_path = directory / "ca.pem"
        self.ca_path.write_text(authority.certificate)
        clients, controllers = ([self.ports[node][page] for node in NODES] for page in (9092, 9093))
        self._places = {place.node_id: place for place in node_layouts(directory, HOST, clients, controllers)}
        self._properties = {
            node: node_properties(place, list(self._places.values())) for node, place in self._places.items()
        }
        self.processes = {node: BrokerProcess(place.properties, place.log) for node, place in self._places.items()}
        for node, place in self._places.items():
            (directory / f"node{node}.pem").write_text(issue(authority, f"node{node}", now, [HOST]).pem)
            write_properties(place, self._properties[node])
            settings, _ = load_node_settings(place.properties)
            format_directories(settings, "an-open-cluster-at-once", [], False, [])

    def change(self, node: int, text: str) -> None:
        """Change a node's settings by a block of the page."""
        for other in NODES:
            text = text.replace(f"{other}@broker{other}.example:9095", f"{other}@{HOST}:{self.ports[other][9095]}")
        for page, port in self.ports[node].items():
            text = text.replace(f"://:{page}", f"://{HOST}:{port}")
            text = text.replace(f"broker1.example:{page}", f"{HOST}:{port}")
        text = text.replace("/etc/penstock/node1.pem", str(self._directory / f"node{node}.pem"))
        text = text.replace("/etc/penstock/ca.pem", str(self.ca_path)).replace("NODE-PASSWORD", USERS["node"])
        assert "example" not in text
        self._properties[node].update((line.name, line.value) for line in read_properties(text))
        write_properties(self._places[node], self._properties[node])

    def plain(self) -> dict[str, str]:
        """A client's settings before."""
        return {"bootstrap.servers": self._servers(9092)}

    def closed(self) -> dict[str, str]:
        """A client's settings afterwards."""
        return {
            "bootstrap.servers": self._servers(9094),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca_path),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": USERS["alice"],
        }

    def _servers(self, page: int) -> str:
        return ",".join(f"{HOST}:{ports[page]}" for ports in self.ports.values())


class Load:
    """A program that writes numbers and one that reads them, until told to stop; both can move to other settings."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._write, self._read)]
        self._generation = 0
        self.moved = Counter[str]()
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self.read = Counter[int]()
        self.longest_wait_s = 0.0

    def move(self, settings: Mapping[str, str]) -> None:
        """Have both programs start again with other settings, and wait until they have."""
        self._settings = dict(settings)
        self._generation += 1
        wait_for(lambda: all(self.moved[name] == self._generation for name in ("writer", "reader")), HEALTHY_S)

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in self._threads:
                thread.join(HEALTHY_S)

    def _write(self) -> None:
        number, last = 0, time.monotonic()

        def answered(value: int) -> Callable[[object, object], None]:
            def note(error: object, _: object) -> None:
                nonlocal last
                if error is None:
                    self.acknowledged.append(value)
                    self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - last)
                    last = time.monotonic()
                else:
                    self.failed.append(str(error))

            return note

        while not self._stopping.is_set():
            generation = self._generation
            producer = Producer({**self._settings, "enable.idempotence": "true", "message.timeout.ms": "180000"})
            self.moved["writer"] = generation
            while generation == self._generation and not self._stopping.is_set():
                producer.produce(TOPIC, str(number).encode(), on_delivery=answered(number))
                number += 1
                producer.poll(PAUSE_S)
            assert producer.flush(180) == 0

    def _read(self) -> None:
        while not self._stopping.is_set():
            generation = self._generation
            consumer = Consumer({**self._settings, "group.id": GROUP, "auto.offset.reset": "earliest"})
            consumer.subscribe([TOPIC])
            self.moved["reader"] = generation
            while generation == self._generation and not self._stopping.is_set():
                self.read.update(numbers(consumer, 0.5))
            consumer.close()


def numbers(consumer: Consumer, timeout_s: float) -> list[int]:
    return [int(one.value()) for one in consumer.consume(500, timeout_s) if one.error() is None]


def wait_for(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{condition} did not become true within {timeout_s} s"
        time.sleep(0.1)


def is_healthy(settings: Mapping[str, str]) -> bool:
    """Whether all nodes are there and have all that they should."""
    admin = AdminClient(dict(settings))
    try:
        metadata = admin.list_topics(timeout=10)
    except KafkaException:
        return False
    partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
    return len(metadata.brokers) == len(NODES) and all(sorted(one.isrs) == sorted(one.replicas) for one in partitions)


def is_open(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def create_users(admin: AdminClient) -> None:
    kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    changes = [UserScramCredentialUpsertion(name, kind, password.encode()) for name, password in USERS.items()]
    for future in admin.alter_user_scram_credentials(changes).values():
        future.result(60)


def read_everything(settings: Mapping[str, str], count: int) -> Counter[int]:
    """All records, by another group."""
    consumer = Consumer({**settings, "group.id": "auditors", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    found = Counter[int]()
    deadline = time.monotonic() + HEALTHY_S
    while found.total() < count and time.monotonic() < deadline:
        found.update(numbers(consumer, 1.0))
    found.update(numbers(consumer, 1.0))
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_cluster_is_closed_under_load_and_nothing_is_lost(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    cluster = OpenCluster(tmp_path)

    def restart_each(text: str, settings: Mapping[str, str]) -> None:
        for node in NODES:
            cluster.change(node, text)
            cluster.processes[node].stop(60)
            cluster.processes[node].start(START_S)
            wait_for(lambda: is_healthy(settings), HEALTHY_S)

    beside, among_themselves, without = rounds()
    try:
        for process in cluster.processes.values():
            process.launch()
        for process in cluster.processes.values():
            process.wait_until_ready(START_S)
        admin = AdminClient(cluster.plain())
        admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(60)
        create_users(admin)
        load = Load(cluster.plain())
        with load.running():
            restart_each(beside, cluster.plain())
            load.move(cluster.closed())
            restart_each(among_themselves, cluster.closed())
            restart_each(without, cluster.closed())
            assert not any(is_open(cluster.ports[node][page]) for node in NODES for page in (9092, 9093))
            assert all(is_open(cluster.ports[node][page]) for node in NODES for page in (9094, 9095))
        assert load.failed == []
        found = read_everything(cluster.closed(), len(load.acknowledged))
        assert found == Counter(load.acknowledged)
        assert load.read.keys() <= found.keys()
        assert len(load.acknowledged) > 500
        record_property("longest wait for an acknowledgement in s", round(load.longest_wait_s, 1))
    finally:
        for process in cluster.processes.values():
            process.kill()
