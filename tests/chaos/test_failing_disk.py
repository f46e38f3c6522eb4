"""A sync that fails, and a disk that fills up: what is acknowledged, what is refused, and when writes go on."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from failing_disk import FailingDisk

from penstock.model.errors import ErrorCode
from penstock.runtime.logs import housekeeping
from penstock.testing import Cluster
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from support.node_thread import NodeThread
from support.processes import eventually
from support.tools import want
from support.wire_client import WireClient, batch_of, records_in

MB = 2**20
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes in this process look at their disks more often than every five seconds."""
    monkeypatch.setattr(housekeeping, "DISK_CHECK_MS", 300)


def create(client: WireClient, name: str, partitions: int = 1) -> None:
    answer = client.call(CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 10_000), 7)
    assert answer.topics[0].error_code == 0, answer


def test_after_a_failed_sync_nothing_is_acknowledged_ever_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    with NodeThread(tmp_path / "data", filesystem=disk) as node, WireClient(node.address) as client:
        create(client, "orders")
        assert client.produce("orders", batch_of([b"durable"])).error_code == 0
        disk.sync_fails = lambda path: "orders-0" in str(path)
        answer = client.produce("orders", batch_of([b"in doubt"]))
        assert answer.error_code == STORAGE_ERROR
        # The disk seems fine again; what it lost meanwhile is unknown.
        disk.heal()
        for acks in (-1, 1):
            answer = client.produce("orders", batch_of([b"in doubt"]), acks=acks)
            assert answer.error_code == STORAGE_ERROR
            assert answer.base_offset == -1
    assert "orders-0" in {path.name for path in (tmp_path / "data").iterdir()}
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists(), "a failed directory was declared clean"


def test_a_failed_directory_fails_alone(tmp_path: Path) -> None:
    """Of two data directories one fails; partitions in the other go on, and new ones go there."""
    disk = FailingDisk()
    first, second = tmp_path / "first", tmp_path / "second"
    settings = {"log.dirs": f"{first},{second}", "metadata.log.dir": str(tmp_path / "metadata")}
    with NodeThread(first, settings, disk) as node, WireClient(node.address) as client:
        create(client, "spread", partitions=4)
        homes = {n: first if (first / f"spread-{n}").exists() else second for n in range(4)}
        assert set(homes.values()) == {first, second}
        disk.sync_fails = lambda path: path.is_relative_to(first)
        victim = next(n for n in range(4) if homes[n] == first)
        assert client.produce("spread", batch_of([b"x"]), partition=victim).error_code == STORAGE_ERROR
        disk.heal()
        for partition in range(4):
            expected = STORAGE_ERROR if homes[partition] == first else 0
            for acks in (-1, 1):
                assert client.produce("spread", batch_of([b"x"]), partition=partition, acks=acks).error_code == expected
            assert client.fetch("spread", 0, partition=partition).error_code == expected
        create(client, "later", partitions=2)
        assert all((second / f"later-{n}").exists() for n in range(2))
        assert client.produce("later", batch_of([b"x"])).error_code == 0


def test_a_failed_metadata_log_decides_nothing_and_data_stays_available(tmp_path: Path) -> None:
    disk = FailingDisk()
    settings = {"metadata.log.dir": str(tmp_path / "metadata")}
    with NodeThread(tmp_path / "data", settings, disk) as node, WireClient(node.address) as client:
        create(client, "orders")
        disk.sync_fails = lambda path: path.is_relative_to(tmp_path / "metadata")
        # The first finds it out; then there is no active controller any more.
        for name, code in (("one", STORAGE_ERROR), ("two", ErrorCode.REQUEST_TIMED_OUT)):
            answer = client.call(CreateTopicsRequest([CreatableTopic(name, 1, 1)], 1_000), 7)
            assert answer.topics[0].error_code == code
            disk.heal()
        assert client.produce("orders", batch_of([b"x"])).error_code == 0
        assert not (tmp_path / "data" / "one-0").exists()


def test_a_full_disk_refuses_writes_and_serves_reads_until_there_is_space(tmp_path: Path) -> None:
    disk = FailingDisk()
    with NodeThread(tmp_path / "data", filesystem=disk) as node, WireClient(node.address) as client:
        create(client, "orders")
        assert client.produce("orders", batch_of([b"before"])).error_code == 0
        disk.is_full = lambda path: path.is_relative_to(tmp_path / "data")
        for acks in (-1, 1, -1):
            assert client.produce("orders", batch_of([b"no room"]), acks=acks).error_code == STORAGE_ERROR
        answer = client.call(CreateTopicsRequest([CreatableTopic("more", 1, 1)], 5_000), 7)
        assert answer.topics[0].error_code == STORAGE_ERROR
        assert [record.value for record in records_in(client.fetch("orders", 0).records)] == [b"before"]
        disk.heal()
        assert client.produce("orders", batch_of([b"after"])).base_offset == 1
        create(client, "more")
    with NodeThread(tmp_path / "data") as node, WireClient(node.address) as client:
        assert [record.value for record in records_in(client.fetch("orders", 0).records)] == [b"before", b"after"]


def test_a_partition_that_found_no_room_opens_when_there_is(tmp_path: Path) -> None:
    """The topic is committed, its directory cannot be made: clients are told to come back, and it heals by itself."""
    disk = FailingDisk()
    settings = {"metadata.log.dir": str(tmp_path / "metadata")}
    with NodeThread(tmp_path / "data", settings, disk) as node, WireClient(node.address) as client:
        disk.is_full = lambda path: path.is_relative_to(tmp_path / "data")
        create(client, "early")
        assert client.produce("early", batch_of([b"x"])).error_code == STORAGE_ERROR
        assert client.fetch("early", 0).error_code == STORAGE_ERROR
        disk.heal()
        assert eventually(lambda: client.produce("early", batch_of([b"x"])).error_code == 0, 10, 0.5)


def test_writes_stop_above_the_limit_and_resume_below_it(tmp_path: Path) -> None:
    disk = FailingDisk()
    settings = {"penstock.disk.full.percent": "80"}
    with NodeThread(tmp_path / "data", settings, disk) as node, WireClient(node.address) as client:
        create(client, "orders")

        def error() -> int:
            return int(client.produce("orders", batch_of([b"x"]), acks=1).error_code)

        assert error() == 0
        disk.used_fraction = 0.81
        assert eventually(lambda: error() == STORAGE_ERROR, 10, 0.3)
        assert client.fetch("orders", 0).error_code == 0
        disk.used_fraction = 0.79
        assert eventually(lambda: error() == 0, 30, 0.3)


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    """A file system of its own in memory, or a skip where that may not be mounted."""
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip(want("the right to mount a tmpfs", "run the tests as root"))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A 24 MB file system fills up under load; nothing acknowledged is lost, and space brings writes back."""
    with small_disk(tmp_path / "disk", "24m"):
        ballast = tmp_path / "disk" / "ballast"
        ballast.write_bytes(bytes(8 * MB))
        settings = {"penstock.disk.full.percent": "100", "log.segment.bytes": str(2 * MB)}
        with Cluster(settings, data_dir=tmp_path / "disk" / "broker") as broker:
            topic = broker.create_topic(partitions=2)
            with WireClient(broker.bootstrap_servers) as client:
                acked = fill(client, topic)
                assert acked[0] > 5, "the disk was full before it was tried"
                assert client.fetch(topic, 0, partition_max_bytes=MB).error_code == 0
                ballast.unlink()
                began = time.monotonic()
                answer = client.produce(topic, batch_of([b"there is room"]))
                while answer.error_code and time.monotonic() - began < 30:
                    time.sleep(0.5)
                    answer = client.produce(topic, batch_of([b"there is room"]))
                assert answer.error_code == 0
                assert answer.base_offset == acked[0]
            assert broker.stop()
            broker.start()
            with WireClient(broker.bootstrap_servers) as client:
                assert client.list_offset(topic, -1).offset == acked[0] + 1
                assert client.list_offset(topic, -1, partition=1).offset == acked[1]


def fill(client: WireClient, topic: str) -> dict[int, int]:
    """Produce to both partitions until the disk refuses a dozen times; what was acknowledged in each."""
    acked = {0: 0, 1: 0}
    refused = 0
    while refused < 12:
        partition = refused % 2
        answer = client.produce(topic, batch_of([bytes(200_000)]), partition=partition)
        if answer.error_code:
            assert answer.error_code == STORAGE_ERROR
            refused += 1
        else:
            assert answer.base_offset == acked[partition]
            acked[partition] += 1
    return acked
