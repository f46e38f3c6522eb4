"""`penstock cluster …` and `penstock storage` against real nodes: replicas move, nodes come and go, records stay."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.local.layout import free_ports
from penstock.local.process import BrokerProcess
from penstock.testing import Cluster
from support.kafka_tools import kafka_tool

pytestmark = pytest.mark.slow

PACE = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    # Leadership moves when a test wants it.
    "auto.leader.rebalance.enable": "false",
}


def penstock(bootstrap: str, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap},
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + ("" if code == 0 else done.stderr)


def answer(bootstrap: str, *arguments: str) -> Any:
    return json.loads(penstock(bootstrap, *arguments, "-o", "json"))


def eventually(check: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def create(bootstrap: str, assignment: list[list[int]]) -> str:
    name = f"moved-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = NewTopic(name, len(assignment), replica_assignment=assignment)
    admin.create_topics([topic])[name].result(timeout=20)
    return name


def fill(bootstrap: str, topic: str, partitions: int, count: int = 600) -> list[str]:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    values = [f"{number}-{'x' * 500}" for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(30) == 0
    return values


def read(bootstrap: str, topic: str, partitions: int, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "moved", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[str] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += [(message.value() or b"").decode() for message in consumer.consume(count, timeout=1)]
    consumer.close()
    return sorted(found, key=lambda value: int(value.partition("-")[0]))


def replicas(bootstrap: str, topic: str) -> list[list[int]]:
    described = answer(bootstrap, "topic", "describe", topic)
    return [partition["replicas"] for partition in described["partitions"]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(PACE, nodes=3) as running:
        yield running


@pytest.fixture
def bootstrap(cluster: Cluster) -> str:
    cluster.start()
    address = cluster.bootstrap_servers
    eventually(lambda: not any(row["fenced"] for row in answer(address, "cluster", "info")["brokers"]), "all are up")
    return address


def test_three_voters_follow_one_leader(bootstrap: str) -> None:
    def settled() -> bool:
        nodes = answer(bootstrap, "cluster", "quorum")["nodes"]
        return all(node["lag"] < 5 for node in nodes)

    quorum = answer(bootstrap, "cluster", "quorum")
    assert quorum["epoch"] > 0
    assert sorted(node["node_id"] for node in quorum["nodes"]) == [1, 2, 3]
    assert sorted(node["role"] for node in quorum["nodes"]) == ["leader", "voter", "voter"]
    eventually(settled, "voters keep up")


def test_a_plan_moves_replicas_and_records_stay(bootstrap: str, tmp_path: Path) -> None:
    topic = create(bootstrap, [[1, 2], [1, 2]])
    values = fill(bootstrap, topic, 2)
    rows = [{"topic": topic, "partition": number, "replicas": [2, 3]} for number in range(2)]
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    shown = penstock(bootstrap, "cluster", "reassign", str(plan), "--save-current", str(back), "--yes")
    assert "2 partitions change, 2 replicas copied" in shown
    assert replicas(bootstrap, topic) == [[2, 3], [2, 3]]
    assert read(bootstrap, topic, 2, len(values)) == values
    assert answer(bootstrap, "cluster", "reassign") == []
    penstock(bootstrap, "cluster", "reassign", str(back), "--yes")
    assert replicas(bootstrap, topic) == [[1, 2], [1, 2]]
    assert read(bootstrap, topic, 2, len(values)) == values


def test_a_throttle_slows_a_move_and_is_lifted(bootstrap: str, tmp_path: Path) -> None:
    topic = create(bootstrap, [[1, 2]])
    # Five megabytes: a follower fetches one of them before the throttle knows.
    fill(bootstrap, topic, 1, 10_000)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3, 2]}]}))
    started = time.monotonic()
    penstock(bootstrap, "cluster", "reassign", str(plan), "--yes", "--throttle", "1MB")
    assert time.monotonic() - started > 2.5
    assert replicas(bootstrap, topic) == [[3, 2]]
    settings = {row["name"]: row for row in answer(bootstrap, "topic", "describe", topic, "--all-configs")["configs"]}
    assert settings["leader.replication.throttled.replicas"]["value"] == ""


def test_a_move_outlives_the_command_and_the_death_of_the_broker_it_goes_to(
    cluster: Cluster, bootstrap: str, tmp_path: Path
) -> None:
    topic = create(bootstrap, [[1, 2]])
    values = fill(bootstrap, topic, 1, 12_000)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2, 3]}]}))
    penstock(bootstrap, "cluster", "reassign", str(plan), "--yes", "--no-wait", "--throttle", "1MB")
    (moving,) = answer(bootstrap, "cluster", "reassign")
    assert (moving["adding"], moving["removing"]) == ([3], [1])
    cluster.kill(3)
    assert len(answer(bootstrap, "cluster", "reassign")) == 1
    cluster.start(3)
    assert "moved" in penstock(bootstrap, "cluster", "reassign")
    assert replicas(bootstrap, topic) == [[2, 3]]
    assert read(bootstrap, topic, 1, len(values)) == values


def test_a_move_can_be_taken_back(bootstrap: str, tmp_path: Path) -> None:
    topic = create(bootstrap, [[1, 2]])
    values = fill(bootstrap, topic, 1, 10_000)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2, 3]}]}))
    penstock(bootstrap, "cluster", "reassign", str(plan), "--yes", "--no-wait", "--throttle", "500kB")
    assert "cancelled: 1 partition" in penstock(bootstrap, "cluster", "reassign", "--cancel", "--yes")
    assert answer(bootstrap, "cluster", "reassign") == []
    # The plan's order stays, as in Kafka.
    assert replicas(bootstrap, topic) == [[2, 1]]
    assert read(bootstrap, topic, 1, len(values)) == values


def test_a_rebalance_levels_replicas_and_leaders(bootstrap: str) -> None:
    topic = create(bootstrap, [[1, 2]] * 6)
    values = fill(bootstrap, topic, 6)
    penstock(bootstrap, "cluster", "rebalance", "--yes")
    leaders = answer(bootstrap, "cluster", "leaders")
    preferred = [row["preferred"] for row in leaders["brokers"]]
    assert max(preferred) - min(preferred) <= 1
    assert leaders["not_preferred"] == []
    assert "nothing to do" in penstock(bootstrap, "cluster", "rebalance")
    assert read(bootstrap, topic, 6, len(values)) == values


def test_leadership_goes_back_on_request(cluster: Cluster, bootstrap: str) -> None:
    topic = create(bootstrap, [[3, 1, 2]] * 3)
    cluster.restart(3)
    eventually(lambda: all(len(row) == 3 for row in in_sync(bootstrap, topic)), "all are in sync again")
    assert len(answer(bootstrap, "cluster", "leaders")["not_preferred"]) >= 3
    assert answer(bootstrap, "cluster", "leaders", "--elect")["not_preferred"] == []


def in_sync(bootstrap: str, topic: str) -> list[list[int]]:
    return [row["in_sync_replicas"] for row in answer(bootstrap, "topic", "describe", topic)["partitions"]]


def test_what_cannot_be_placed_is_not_moved(bootstrap: str) -> None:
    topic = create(bootstrap, [[1, 2, 3]])
    said = penstock(bootstrap, "cluster", "decommission", "2", "--yes", code=1)
    assert "nowhere to go; nothing was changed" in said
    assert replicas(bootstrap, topic) == [[1, 2, 3]]


def test_a_broker_that_is_down_is_shown(cluster: Cluster, bootstrap: str) -> None:
    cluster.kill(2)
    left = ",".join(cluster.address(number) for number in (1, 3))
    eventually(lambda: fenced(left) == [2], "node 2 is fenced")
    assert "broker 2 is down" in penstock(left, "cluster", "rebalance", "--yes", code=1)
    cluster.start(2)
    eventually(lambda: fenced(left) == [], "node 2 is back")
    assert bootstrap


def fenced(bootstrap: str) -> list[int]:
    return [row["node_id"] for row in answer(bootstrap, "cluster", "info")["brokers"] if row["fenced"]]


@pytest.mark.java
def test_kafka_s_tools_see_and_move_what_ours_do(bootstrap: str, tmp_path: Path) -> None:
    def tool(name: str, *arguments: str) -> str:
        done = kafka_tool(name, "--bootstrap-server", bootstrap, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    topic = create(bootstrap, [[1, 2], [2, 3]])
    values = fill(bootstrap, topic, 2)
    quorum = answer(bootstrap, "cluster", "quorum")
    status = tool("kafka-metadata-quorum", "describe", "--status")
    assert re.search(rf"LeaderId:\s+{quorum['leader']}\b", status)
    assert len(re.findall(r'"id": \d+', status)) == 3
    plan = tmp_path / "plan.json"
    rows = [{"topic": topic, "partition": 0, "replicas": [3, 2]}, {"topic": topic, "partition": 1, "replicas": [1, 3]}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    assert "Successfully started" in tool(
        "kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--execute"
    )
    penstock(bootstrap, "cluster", "reassign")
    verified = tool("kafka-reassign-partitions", "--reassignment-json-file", str(plan), "--verify")
    assert verified.count("is completed") == 2
    assert replicas(bootstrap, topic) == [[3, 2], [1, 3]]
    assert read(bootstrap, topic, 2, len(values)) == values
    tool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    assert answer(bootstrap, "cluster", "leaders")["not_preferred"] == []


class Fleet:
    """Nodes with files of their own, set up as in docs/operations.md: formatted, then started one by one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = free_ports(12)
        self.ports = dict(enumerate(ports[:6], start=1))
        self.controller_ports = dict(enumerate(ports[6:], start=1))
        self.processes: dict[int, BrokerProcess] = {}
        self.cluster_id = penstock("", "storage", "random-uuid").strip()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[1]}"

    def write(self, number: int, roles: str, **more: str) -> str:
        listeners = []
        if "broker" in roles:
            listeners.append(f"PLAINTEXT://127.0.0.1:{self.ports[number]}")
        if "controller" in roles:
            listeners.append(f"CONTROLLER://127.0.0.1:{self.controller_ports[number]}")
        servers = ",".join(f"127.0.0.1:{self.controller_ports[each]}" for each in (1, 2, 3))
        settings = {
            "process.roles": roles,
            "node.id": str(number),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": servers,
            "log.dirs": str(self.directory / str(number)),
            **PACE,
            **more,
        }
        path = self.directory / f"{number}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return str(path)

    def format(self, number: int, *options: str) -> None:
        config = str(self.directory / f"{number}.properties")
        penstock("", "storage", "format", "--config", config, "--cluster-id", self.cluster_id, *options)

    def launch(self, *numbers: int) -> None:
        for number in numbers:
            process = BrokerProcess(self.directory / f"{number}.properties", self.directory / f"{number}.log")
            self.processes[number] = process
            process.launch()
        for number in numbers:
            self.processes[number].wait_until_ready(30)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    running = Fleet(tmp_path)
    yield running
    running.close()


@pytest.mark.slow
def test_a_cluster_is_formatted_grows_by_a_broker_and_shrinks_again(fleet: Fleet) -> None:
    directories = {number: penstock("", "storage", "random-uuid").strip() for number in (1, 2, 3)}
    first = ",".join(
        f"{number}@127.0.0.1:{fleet.controller_ports[number]}:{directory}" for number, directory in directories.items()
    )
    for number in (1, 2, 3):
        fleet.write(number, "broker,controller")
        fleet.format(number, "--initial-controllers", first)
    fleet.launch(1, 2, 3)
    bootstrap = fleet.bootstrap
    topic = create(bootstrap, [[1, 2], [2, 3], [3, 1], [1, 3]])
    values = fill(bootstrap, topic, 4)
    assert answer(bootstrap, "cluster", "info")["cluster_id"] == fleet.cluster_id
    printed = penstock(bootstrap, "cluster", "add", "--no-wait", "--host", "127.0.0.1")
    assert "node.id=4" in printed
    assert f"--cluster-id {fleet.cluster_id}" in printed
    servers = next(line for line in printed.splitlines() if line.startswith("controller.quorum.bootstrap.servers="))
    assert servers.count("127.0.0.1:") == 3
    fleet.write(4, "broker")
    fleet.format(4)
    fleet.launch(4)
    grown = penstock(bootstrap, "cluster", "add", "--node-id", "5", "--timeout", "0", code=1)
    assert "broker 5 has not registered" in grown
    eventually(lambda: len(answer(bootstrap, "cluster", "info")["brokers"]) == 4, "broker 4 is there")
    penstock(bootstrap, "cluster", "rebalance", "--yes")
    assert any(4 in row for row in replicas(bootstrap, topic))
    assert read(bootstrap, topic, 4, len(values)) == values
    said = penstock(bootstrap, "cluster", "decommission", "4", "--yes", "--timeout", "0", code=1)
    assert "broker 4 is still running" in said
    assert not any(4 in row for row in replicas(bootstrap, topic))
    fleet.processes[4].stop()
    assert "broker 4 is removed from the cluster" in penstock(bootstrap, "cluster", "decommission", "4", "--yes")
    assert [row["node_id"] for row in answer(bootstrap, "cluster", "info")["brokers"]] == [1, 2, 3]
    assert read(bootstrap, topic, 4, len(values)) == values


@pytest.mark.slow
def test_a_quorum_grows_from_one_and_shrinks_again(fleet: Fleet) -> None:
    fleet.write(1, "broker,controller", **{"offsets.topic.replication.factor": "1"})
    fleet.format(1, "--standalone")
    fleet.launch(1)
    bootstrap = fleet.bootstrap
    for number in (2, 3):
        config = fleet.write(number, "controller")
        fleet.format(number, "--no-initial-controllers")
        fleet.launch(number)
        wait_for_observer(bootstrap, number)
        penstock(bootstrap, "cluster", "add-controller", "--config", config)
    assert sorted(roles(bootstrap).values()) == ["leader", "voter", "voter"]
    topic = create(bootstrap, [[1]])
    # A controller whose disk is lost is another one when it comes back.
    fleet.processes[3].kill()
    penstock(bootstrap, "cluster", "remove-controller", "3", "--yes")
    assert roles(bootstrap).get(3) in (None, "observer")
    shutil.rmtree(fleet.directory / "3")
    fleet.format(3, "--no-initial-controllers")
    fleet.launch(3)
    wait_for_observer(bootstrap, 3)
    penstock(bootstrap, "cluster", "add-controller", "--config", config)
    assert sorted(roles(bootstrap).values()) == ["leader", "voter", "voter"]
    fleet.processes[2].kill()
    eventually(lambda: answer(bootstrap, "cluster", "quorum")["leader"] in (1, 3), "two of three can decide")
    values = fill(bootstrap, topic, 1, 20)
    assert read(bootstrap, topic, 1, 20) == values


def wait_for_observer(bootstrap: str, number: int) -> None:
    eventually(lambda: number in roles(bootstrap), f"node {number} is an observer")


def roles(bootstrap: str) -> dict[int, str]:
    # Voters come first, and a directory that is gone is listed as an observer for a while: the first one counts.
    nodes = answer(bootstrap, "cluster", "quorum")["nodes"]
    return {node["node_id"]: node["role"] for node in reversed(nodes)}
