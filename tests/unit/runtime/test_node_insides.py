"""What only shows inside a node: listeners that stay behind, offsets of a namesake, and every step of a snapshot."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.node import Node
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.files import OsFile, OsFilesystem
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.delete_topics import DeleteTopicsRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.metadata_records import PartitionRecord
from penstock.wire.record_types import Buffer
from support.node_thread import NodeThread
from support.processes import eventually
from support.wire_client import FETCH_VERSION, WireClient, batch_of, fetch_request, produce_request, records_in

METADATA = "__cluster_metadata-0"


def create(client: WireClient, name: str, partitions: int = 1) -> bytes:
    topic = client.call(CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 10_000), 7).topics[0]
    assert topic.error_code == 0, topic
    topic_id: bytes = topic.topic_id
    return topic_id


def delete(client: WireClient, name: str) -> None:
    assert client.call(DeleteTopicsRequest((), [name], 10_000), 4).responses[0].error_code == 0


def partitions_of(node: Node) -> Partitions:
    assert node._broker is not None
    return node._broker.partitions


def listeners(node: Node) -> int:
    return sum(len(partition._append_listeners) for partition in partitions_of(node))


def test_long_polls_leave_no_listeners_behind(tmp_path: Path) -> None:
    """Neither when they are answered, nor when their time is up, nor when their peer goes away."""
    with NodeThread(tmp_path) as node:
        with WireClient(node.address) as client:
            create(client, "orders", partitions=2)
            client.call(fetch_request("orders", 0, max_wait_ms=50), FETCH_VERSION)
            assert node.look(listeners) == 0
            request = fetch_request("orders", 0, max_wait_ms=30_000)
            client.send(request, FETCH_VERSION)
            assert eventually(lambda: node.look(listeners) == 1, 5)
            with WireClient(node.address) as writer:
                writer.produce("orders", batch_of([b"x"]))
            answer = client.receive(request, FETCH_VERSION)[1]
            assert records_in(answer.responses[0].partitions[0].records)
            assert node.look(listeners) == 0
        with WireClient(node.address) as client:
            client.send(fetch_request("orders", 0, partition=1, max_wait_ms=30_000), FETCH_VERSION)
            assert eventually(lambda: node.look(listeners) == 1, 5)
        assert eventually(lambda: node.look(listeners) == 0, 5)
        assert node.errors == []


@pytest.mark.parametrize("crash", [False, True], ids=["restarted", "crashed"])
def test_a_topic_created_again_starts_from_nothing(tmp_path: Path, crash: bool) -> None:
    """The checkpoints still speak of its namesake, which had many records and a late start."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    with NodeThread(data) as node, WireClient(node.address) as client:
        create(client, "orders")
        for _ in range(10):
            client.produce("orders", batch_of([b"old"] * 10))
        wanted = DeleteRecordsTopic("orders", [DeleteRecordsPartition(0, 60)])
        assert client.call(DeleteRecordsRequest([wanted], 5_000), 2).topics[0].partitions[0].low_watermark == 60
    with NodeThread(data) as node, WireClient(node.address) as client:
        delete(client, "orders")
        create(client, "orders")
        for number in range(5):
            answer = client.produce("orders", batch_of([b"new %d" % number]))
            assert (answer.error_code, answer.base_offset) == (0, number)
        if crash:
            shutil.copytree(data, copy)
    with NodeThread(copy if crash else data) as node, WireClient(node.address) as client:
        values = [record.value for record in records_in(client.fetch("orders", 0).records)]
        assert values == [b"new %d" % number for number in range(5)]
        assert client.produce("orders", batch_of([b"next"])).base_offset == 5
        assert node.errors == []


def test_a_topic_deleted_while_it_is_being_synced_takes_nothing_with_it(tmp_path: Path) -> None:
    with NodeThread(tmp_path) as node, WireClient(node.address) as client, WireClient(node.address) as admin:
        create(client, "stays")
        for number in range(30):
            create(admin, f"goes-{number}")
            request = batch_of([b"x" * 1000] * 50)
            for _ in range(4):
                client.send(produce_request(f"goes-{number}", request), 9)
            delete(admin, f"goes-{number}")
            for _ in range(4):
                code = client.receive(produce_request(f"goes-{number}", request), 9)[1]
                assert code.responses[0].partition_responses[0].error_code in (0, 3)
        assert client.produce("stays", batch_of([b"x"])).error_code == 0
        assert node.look(lambda node: [directory.failure for directory in partitions_of(node).directories]) == [None]
        assert node.errors == []


class Watched(OsFilesystem):
    """Calls `before` before each change of a file below the metadata directory."""

    def __init__(self) -> None:
        self.before: Callable[[], None] = lambda: None

    def _note(self, path: Path) -> None:
        if METADATA in path.parts:
            self.before()

    def _open(self, path: Path, flags: int) -> OsFile:
        self._note(path)
        file = super()._open(path, flags)
        return WatchedFile(path, os.dup(file.fileno()), file.size, self)

    def rename(self, source: Path, target: Path) -> None:
        self._note(source)
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._note(path)
        super().unlink(path)


class WatchedFile(OsFile):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, descriptor: int, size: int, disk: Watched) -> None:
        super().__init__(path, descriptor, size)
        self._disk = disk

    def append(self, data: Buffer) -> None:
        self._disk._note(self.path)
        super().append(data)

    def truncate(self, size: int) -> None:
        self._disk._note(self.path)
        super().truncate(size)


def topics_at(node: NodeThread) -> dict[str, bytes]:
    with WireClient(node.address) as client:
        return {topic.name: topic.topic_id for topic in client.call(MetadataRequest(None), 12).topics}


@pytest.mark.slow
def test_a_crash_at_any_step_of_a_snapshot_loses_nothing(tmp_path: Path) -> None:
    """The directory is copied before every change while two snapshots are taken; each copy starts with every topic."""
    data, copies = tmp_path / "data", tmp_path / "copies"
    disk = Watched()
    with NodeThread(data, filesystem=disk) as node, WireClient(node.address) as client:

        def snapshot() -> None:
            node.look(lambda node: node._raft.take_snapshot())

        def copy() -> None:
            shutil.copytree(data / METADATA, copies / str(len(list(copies.iterdir()))))

        expected = {}
        for number in range(9):
            expected[f"topic-{number}"] = create(client, f"topic-{number}")
            if number in (2, 5):
                snapshot()
        copies.mkdir()
        disk.before = copy
        snapshot()
        disk.before = lambda: None
        names = {path.name for path in (data / METADATA).iterdir()}
        assert sum(name.endswith(".checkpoint") for name in names) == 2
        assert "00000000000000000000.log" not in names
        assert topics_at(node) == expected
    taken = sorted(copies.iterdir(), key=lambda path: int(path.name))
    assert len(taken) > 8
    shutil.rmtree(data / METADATA)
    for crashed in taken:
        home = tmp_path / f"crashed-{crashed.name}"
        home.mkdir()
        # With the broker's own files it knows the epoch it had, and need not wait for that session to end.
        for file in data.iterdir():
            if file.is_file():
                shutil.copy(file, home)
        shutil.copytree(crashed, home / METADATA)
        with NodeThread(home) as node:
            assert topics_at(node) == expected, crashed


def test_a_restart_from_snapshot_and_log_is_the_same_image(tmp_path: Path) -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": "1200"}

    def snapshot_of(node: Node) -> list[Any]:
        kept = [record for record in node._raft.image.snapshot() if "Register" not in type(record).__name__]
        # A start begins a new leader epoch everywhere.
        kept = [
            record._replace(leader_epoch=0, partition_epoch=0) if isinstance(record, PartitionRecord) else record
            for record in kept
        ]
        return [type(record)._make(map(freeze, record)) for record in kept]

    with NodeThread(tmp_path, settings) as node, WireClient(node.address) as client:
        for number in range(20):
            create(client, f"topic-{number}", partitions=2)
            if number % 4 == 3:
                delete(client, f"topic-{number - 1}")
            client.new_producer_id()
        before = node.look(snapshot_of)
        assert len(list((tmp_path / METADATA).glob("*.checkpoint"))) == 2
    with NodeThread(tmp_path, settings) as node:
        assert node.look(snapshot_of) == before


def freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
