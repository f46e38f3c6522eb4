"""Replicas that move between the data directories of a broker, as clients and administrators see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.node_thread import NodeThread
from support.processes import eventually
from support.wire_client import WireClient, batch_of, records_in

BROKER = 4
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Disks:
    """A node with two data directories."""

    def __init__(self, path: Path) -> None:
        self.first, self.second = path / "first", path / "second"
        self.settings = {
            "log.dirs": f"{self.first},{self.second}",
            "metadata.log.dir": str(path / "metadata"),
            "log.segment.bytes": "1048576",
        }

    def node(self) -> NodeThread:
        return NodeThread(self.first, self.settings)

    def home(self, name: str = "orders-0") -> Path:
        (found,) = [path for path in (self.first, self.second) if (path / name).exists()]
        return found

    def other(self, name: str = "orders-0") -> Path:
        return self.second if self.home(name) == self.first else self.first

    def leftovers(self) -> list[str]:
        """Directories of replicas that are being filled or removed."""
        return [one.name for path in (self.first, self.second) for one in path.glob("*-*.*-*")]

    def has_settled(self, client: WireClient, target: Path) -> bool:
        """Whether the replica is in this directory, and nothing of it anywhere else."""
        if set(replicas(client)) != {(str(target), False)} or self.leftovers():
            return False
        return [path for path in (self.first, self.second) if (path / "orders-0").exists()] == [target]


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def create(client: WireClient, name: str = "orders", **configs: str) -> None:
    rows = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    answer = client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1, configs=rows)], 10_000), 7)
    assert answer.topics[0].error_code == 0, answer


def alter(client: WireClient, path: Path, topic: str = "orders", partition: int = 0) -> ErrorCode:
    wanted = AlterReplicaLogDir(str(path), [AlterReplicaLogDirTopic(topic, [partition])])
    answer = client.call(AlterReplicaLogDirsRequest([wanted]), 2)
    return ErrorCode(answer.results[0].partitions[0].error_code)


def throttle(client: WireClient, rate: int) -> None:
    resource = AlterConfigsResource(BROKER, "1", [AlterableConfig(THROTTLE, 0, str(rate))])
    assert client.call(IncrementalAlterConfigsRequest([resource]), 1).responses[0].error_code == 0


def replicas(client: WireClient, topic: str = "orders") -> dict[tuple[str, bool], Any]:
    """The rows of a topic's replicas by directory, and whether they are being filled."""
    answer = client.call(DescribeLogDirsRequest(None), 4)
    return {
        (directory.log_dir, row.is_future_key): row
        for directory in answer.results
        for found in directory.topics
        for row in found.partitions
        if found.name == topic
    }


def values(client: WireClient, topic: str = "orders") -> list[bytes | None]:
    end = client.list_offset(topic, -1).offset
    found: list[bytes | None] = []
    while len(found) < end:
        found += [record.value for record in records_in(client.fetch(topic, len(found)).records)]
    return found


def fill(client: WireClient, count: int = 40, first: int = 0) -> list[bytes]:
    written = [b"%06d" % number + bytes(60_000) for number in range(first, first + count)]
    for value in written:
        assert client.produce("orders", batch_of([value])).error_code == 0
    return written


def test_a_replica_moves_with_everything_it_has(disks: Disks) -> None:
    with disks.node() as node, WireClient(node.address) as client:
        create(client)
        written = fill(client)
        source, target = disks.home(), disks.other()
        bases = sorted(path.name for path in (source / "orders-0").glob("*.log"))
        assert alter(client, target) is ErrorCode.NONE
        assert eventually(lambda: disks.has_settled(client, target), 20)
        assert sorted(path.name for path in (target / "orders-0").glob("*.log")) == bases
        assert values(client) == written
        written += fill(client, 5, first=40)
        assert values(client) == written
    with disks.node() as node, WireClient(node.address) as client:
        assert values(client) == written
        assert disks.home() == target


def test_a_throttled_move_is_described_changed_and_ended(disks: Disks) -> None:
    with disks.node() as node, WireClient(node.address) as client:
        create(client)
        fill(client)
        source, target = disks.home(), disks.other()
        throttle(client, 0)
        assert alter(client, target) is ErrorCode.NONE
        assert eventually(lambda: (str(target), True) in replicas(client), 20)
        row = replicas(client)[str(target), True]
        assert row.offset_lag == 40
        assert len(list(target.glob("orders-0.*-future"))) == 1
        assert alter(client, source) is ErrorCode.NONE
        assert set(replicas(client)) == {(str(source), False)}
        assert eventually(lambda: not disks.leftovers(), 20)


def test_a_move_resumes_after_a_restart(disks: Disks) -> None:
    with disks.node() as node, WireClient(node.address) as client:
        create(client)
        written = fill(client)
        source, target = disks.home(), disks.other()
        throttle(client, 1)
        assert alter(client, target) is ErrorCode.NONE
        # One second's worth is free: a first piece, and then no more.
        assert eventually(lambda: (str(target), True) in replicas(client), 20)
    assert disks.home() == source
    assert len(list(target.glob("orders-0.*-future"))) == 1
    with disks.node() as node, WireClient(node.address) as client:
        throttle(client, 10**9)
        assert eventually(lambda: disks.has_settled(client, target), 20)
        assert values(client) == written


def test_a_topic_is_deleted_while_it_moves(disks: Disks) -> None:
    with disks.node() as node, WireClient(node.address) as client:
        create(client)
        fill(client)
        target = disks.other()
        throttle(client, 0)
        assert alter(client, target) is ErrorCode.NONE
        assert eventually(lambda: (str(target), True) in replicas(client), 20)
        client.call(DeleteTopicsRequest([DeleteTopicState("orders")], timeout_ms=10_000), 6)
        assert eventually(lambda: not disks.leftovers(), 20)
        assert not list(target.glob("orders*"))


def test_what_cannot_be_done_is_refused_as_kafka_does(disks: Disks, tmp_path: Path) -> None:
    with disks.node() as node, WireClient(node.address) as client:
        create(client)
        assert alter(client, tmp_path / "third") is ErrorCode.LOG_DIR_NOT_FOUND
        assert alter(client, disks.other(), topic="nothing") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(client, disks.other(), partition=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(client, disks.home()) is ErrorCode.NONE


def test_producers_are_remembered_and_compaction_continues(disks: Disks) -> None:
    """A batch that is sent again after the move is recognised, though retention deleted its producer's first ones."""
    with disks.node() as node, WireClient(node.address) as client:
        create(client)
        producer_id = client.new_producer_id()
        batch = batch_of([b"once"], producer_id=producer_id, producer_epoch=0, base_sequence=0)
        assert client.produce("orders", batch).base_offset == 0
        fill(client)
        target = disks.other()
        assert alter(client, target) is ErrorCode.NONE
        assert eventually(lambda: disks.has_settled(client, target), 20)
        again = batch_of([b"once"], producer_id=producer_id, producer_epoch=0, base_sequence=0)
        answer = client.produce("orders", again)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        late = batch_of([b"late"], producer_id=producer_id, producer_epoch=0, base_sequence=7)
        assert client.produce("orders", late).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
