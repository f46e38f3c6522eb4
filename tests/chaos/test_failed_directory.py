"""One of several data directories of a broker fails: only its replicas go, and they come back when it is mended."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from failing_disk import FailingDisk

from penstock.local.layout import free_ports
from penstock.model.errors import ErrorCode
from penstock.model.ids import format_uuid
from penstock.runtime.logs import housekeeping
from penstock.storage.files import OsFilesystem
from penstock.storage.metadata_files import MetaProperties, write_meta_properties
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from support.node_thread import NodeThread
from support.processes import eventually
from support.wire_client import WireClient, batch_of, records_in

NODES = (1, 2, 3)
TOPIC, PARTITIONS = "orders", 6
TIMEOUT_S = 60
STATUS = DescribeQuorumRequest(
    [DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])]
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "DISK_CHECK_MS", 300)


class Trio:
    """Three nodes in this process, each with two data directories and one for metadata, on disks that can break."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disks = {node: FailingDisk() for node in NODES}
        self.running: dict[int, NodeThread] = {}
        ports = free_ports(6)
        self.ports = dict(zip(NODES, ports[:3], strict=True))
        self.controllers = dict(zip(NODES, ports[3:], strict=True))
        cluster_id = format_uuid(b"three disks each")
        for node in NODES:
            directory = self.directory(node, "metadata")
            directory.mkdir(parents=True)
            write_meta_properties(OsFilesystem(), directory, MetaProperties(cluster_id, node, bytes([node]) * 16))

    def directory(self, node: int, name: str) -> Path:
        return self.path / str(node) / name

    def start(self, *nodes: int) -> None:
        with ThreadPoolExecutor() as starting:
            for node, started in zip(nodes, starting.map(self._start, nodes), strict=True):
                self.running[node] = started

    def _start(self, node: int) -> NodeThread:
        settings = {
            "node.id": str(node),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[node]},CONTROLLER://127.0.0.1:{self.controllers[node]}",
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, port in self.controllers.items()),
            "log.dirs": f"{self.directory(node, 'first')},{self.directory(node, 'second')}",
            "metadata.log.dir": str(self.directory(node, "metadata")),
            "min.insync.replicas": "2",
            "replica.lag.time.max.ms": "2000",
            "broker.heartbeat.interval.ms": "200",
        }
        return NodeThread(self.directory(node, "first"), settings, self.disks[node]).__enter__()

    def stop(self, *nodes: int) -> None:
        with ThreadPoolExecutor() as stopping:
            list(stopping.map(lambda node: self.running.pop(node).__exit__(None, None, None), nodes))

    def client(self, node: int) -> WireClient:
        return WireClient(f"127.0.0.1:{self.ports[node]}")

    def homes(self, node: int) -> dict[int, str]:
        return {
            number: name
            for name in ("first", "second")
            for number in range(PARTITIONS)
            if (self.directory(node, name) / f"{TOPIC}-{number}").exists()
        }

    def partitions(self, seen_by: int) -> dict[int, MetadataResponsePartition]:
        with self.client(seen_by) as client:
            answer = client.call(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 12)
        return {row.partition_index: row for row in answer.topics[0].partitions}

    def all_in_sync(self, seen_by: int = 2) -> bool:
        return all(len(row.isr_nodes) == 3 for row in self.partitions(seen_by).values())


@contextmanager
def trio(path: Path) -> Iterator[Trio]:
    made = Trio(path)
    with ExitStack() as stack:
        stack.callback(lambda: made.stop(*made.running))
        made.start(*NODES)
        yield made


def produce(nodes: Trio, number: int, value: bytes) -> None:
    """Have all replicas of a partition acknowledge a record, on any leader."""

    def is_done() -> bool:
        leader = nodes.partitions(2)[number].leader_id
        if leader < 0:
            return False
        with nodes.client(leader) as client:
            return bool(client.produce(TOPIC, batch_of([value]), partition=number).error_code == 0)

    assert eventually(is_done, TIMEOUT_S, 0.1)


def values(nodes: Trio, number: int) -> list[bytes | None]:
    with nodes.client(nodes.partitions(2)[number].leader_id) as client:
        return [record.value for record in records_in(client.fetch(TOPIC, 0, partition=number).records)]


@pytest.mark.parametrize("finder", ["leader", "follower"])
def test_the_replicas_of_a_failed_directory_go_alone_and_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, finder: str
) -> None:
    with trio(tmp_path) as nodes:
        with nodes.client(1) as client:
            created = client.call(CreateTopicsRequest([CreatableTopic(TOPIC, PARTITIONS, 3)], 10_000), 7)
            assert created.topics[0].error_code == 0
        assert eventually(nodes.all_in_sync, TIMEOUT_S, 0.1)
        homes = nodes.homes(1)
        failing = {number for number, home in homes.items() if home == "first"}
        assert 0 < len(failing) < PARTITIONS
        led = {number for number, row in nodes.partitions(2).items() if row.leader_id == 1}
        finding = min(led & failing if finder == "leader" else failing - led)
        assert led - failing
        for number in range(PARTITIONS):
            produce(nodes, number, b"before")

        first = nodes.directory(1, "first")
        nodes.disks[1].is_broken = lambda path: path.is_relative_to(first)
        # The disk's next use finds out, and with it the controller.
        produce(nodes, finding, b"meanwhile")

        def is_gone() -> bool:
            rows = nodes.partitions(2)
            return all(
                (1 not in row.isr_nodes and row.leader_id != 1) if number in failing else 1 in row.isr_nodes
                for number, row in rows.items()
            )

        assert eventually(is_gone, TIMEOUT_S, 0.1)
        rows = nodes.partitions(2)
        assert {number for number in led - failing if rows[number].leader_id == 1} == led - failing
        for number in set(range(PARTITIONS)) - {finding}:
            produce(nodes, number, b"meanwhile")
        with nodes.client(1) as client:
            described = client.call(DescribeLogDirsRequest(None), 4).results
        assert [row.error_code for row in described] == [56, 0]
        assert "background task" not in caplog.text

        nodes.stop(1)
        nodes.start(1)
        assert eventually(is_gone, TIMEOUT_S, 0.1), "a start must not begin the lost replicas anew"
        assert not {number for number, home in nodes.homes(1).items() if home == "second"} & failing
        for number in range(PARTITIONS):
            produce(nodes, number, b"after a start")

        nodes.stop(1)
        nodes.disks[1].heal()
        nodes.start(1)
        assert eventually(nodes.all_in_sync, TIMEOUT_S, 0.1)
        assert nodes.homes(1) == homes
        for number in range(PARTITIONS):
            assert values(nodes, number) == [b"before", b"meanwhile", b"after a start"]


def test_a_broker_without_a_directory_that_works_stops(tmp_path: Path) -> None:
    """It is reported to the controller first; the process then ends with an error, for its supervisor."""
    with trio(tmp_path) as nodes:
        with nodes.client(1) as client:
            client.call(CreateTopicsRequest([CreatableTopic(TOPIC, PARTITIONS, 3)], 10_000), 7)
        assert eventually(nodes.all_in_sync, TIMEOUT_S, 0.1)
        doomed: list[bool] = []
        nodes.running[1].node.on_doom = lambda: doomed.append(True)
        data = [nodes.directory(1, name) for name in ("first", "second")]
        nodes.disks[1].is_broken = lambda path: any(path.is_relative_to(one) for one in data)
        for number in range(PARTITIONS):
            produce(nodes, number, b"meanwhile")
        assert eventually(lambda: bool(doomed), TIMEOUT_S, 0.1)
        # The other nodes hear of it a moment after the controller.
        assert eventually(lambda: all(1 not in row.isr_nodes for row in nodes.partitions(2).values()), TIMEOUT_S, 0.1)


@pytest.mark.parametrize("leads", [True, False])
def test_a_node_whose_metadata_directory_fails_stops(tmp_path: Path, leads: bool) -> None:
    """Going on with what it knew, it would never take over partitions that it is to lead from then on."""
    with trio(tmp_path) as nodes:
        with nodes.client(1) as client:
            leader = client.call(STATUS, 2).topics[0].partitions[0].leader_id
        victim = leader if leads else next(node for node in NODES if node != leader)
        doomed: list[bool] = []
        nodes.running[victim].node.on_doom = lambda: doomed.append(True)
        metadata = nodes.directory(victim, "metadata")
        nodes.disks[victim].is_broken = lambda path: path.is_relative_to(metadata)

        def is_created() -> bool:
            with nodes.client(next(node for node in NODES if node != victim)) as client:
                answer = client.call(CreateTopicsRequest([CreatableTopic(TOPIC, PARTITIONS, 2)], 10_000), 7)
            return answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        assert eventually(is_created, TIMEOUT_S, 0.1)
        assert eventually(lambda: bool(doomed), TIMEOUT_S, 0.1)
