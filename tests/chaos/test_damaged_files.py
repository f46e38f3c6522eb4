"""Torn tails, rotten bits, damaged metadata: what is whole is served, what is damaged is not, nothing is guessed."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.local.process import BrokerFailed
from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.records import split_batches
from support.processes import fingerprint
from support.wire_client import WireClient, batch_of, records_in

MB = 2**20
SEGMENT = "00000000000000000000.log"
PARTITIONS = 10


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def batch_ends(data: bytes) -> list[tuple[int, int]]:
    """Where each whole batch of a segment ends: position and next offset."""
    return [(at + header.size_bytes, header.next_offset) for at, header in split_batches(data, len(data))]


@pytest.mark.parametrize("clean", [False, True], ids=["after a crash", "after a clean stop"])
def test_a_log_cut_anywhere_loses_no_more_than_was_cut(clean: bool) -> None:
    """Every partition's file is cut at another byte.

    After a crash the batches before the cut are there, byte for byte. After a clean stop everything had been durable:
    the log is damaged, stays as it is and is not served, so that it shortens no other replica.
    """
    rng = random.Random(clean)
    with Cluster() as broker:
        topic = broker.create_topic(partitions=PARTITIONS)
        with WireClient(broker.bootstrap_servers) as client:
            for partition in range(PARTITIONS):
                for number in range(12):
                    values = [b"%d-%d" % (number, index) * rng.randrange(1, 40) for index in range(1 + number % 4)]
                    answer = client.produce(topic, batch_of(values), partition=partition, acks=-1 if number % 3 else 1)
                    assert answer.error_code == 0
        broker.stop() if clean else broker.kill()
        kept: dict[int, tuple[bytes, int]] = {}
        for partition in range(PARTITIONS):
            path = broker.data_dir / f"{topic}-{partition}" / SEGMENT
            data = path.read_bytes()
            ends = [(0, 0), *batch_ends(data)]
            # The first cuts fall on the edges, where off-by-one lives: between batches, and one byte off.
            edge = ends[5][0]
            cut = {0: edge, 1: edge - 1, 2: edge + 1, 3: len(data) - 1, 4: 0}.get(partition, rng.randrange(len(data)))
            path.write_bytes(data[:cut])
            size, next_offset = max(end for end in ends if end[0] <= cut)
            kept[partition] = data[: cut if clean else size], next_offset
        broker.start()
        with WireClient(broker.bootstrap_servers) as client:
            for partition, (data, next_offset) in kept.items():
                if clean:
                    assert (
                        client.list_offset(topic, -1, partition=partition).error_code == ErrorCode.KAFKA_STORAGE_ERROR
                    )
                    answer = client.produce(topic, batch_of([b"refused"]), partition=partition)
                    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                    assert (broker.data_dir / f"{topic}-{partition}" / SEGMENT).read_bytes() == data
                    continue
                assert client.list_offset(topic, -1, partition=partition).offset == next_offset
                if next_offset:
                    assert client.fetch(topic, 0, partition=partition).records == data
                answer = client.produce(topic, batch_of([b"goes on"]), partition=partition)
                assert answer.base_offset == next_offset


@pytest.mark.parametrize("clean", [False, True], ids=["after a crash", "after a clean stop"])
def test_a_rotten_bit_in_a_closed_segment_is_never_served(clean: bool) -> None:
    """The damaged batch is an error; every other batch of the partition, and every other partition, is served."""
    with Cluster() as broker:
        topic = broker.create_topic(partitions=2, configs={"segment.bytes": str(MB)})
        values = {n: bytes([n % 251]) * 100_000 for n in range(40)}
        with WireClient(broker.bootstrap_servers) as client:
            for partition in range(2):
                for number, value in values.items():
                    assert client.produce(topic, batch_of([value]), partition=partition, acks=1).base_offset == number
        if not clean:
            # What is rotten was durable: a clean stop in between has said so.
            assert broker.stop()
            broker.start()
        broker.stop() if clean else broker.kill()
        segments = sorted((broker.data_dir / f"{topic}-0").glob("*.log"))
        assert len(segments) > 3
        flip(segments[1], 150_000)
        damaged = int(segments[1].stem) + 1
        broker.start()
        with WireClient(broker.bootstrap_servers) as client:
            for number, value in values.items():
                fetched = client.fetch(topic, number, partition_max_bytes=1000)
                if number == damaged:
                    assert fetched.error_code == ErrorCode.CORRUPT_MESSAGE
                    assert not fetched.records
                else:
                    assert [(r.offset, r.value) for r in records_in(fetched.records)] == [(number, value)]
                assert client.fetch(topic, number, partition=1, partition_max_bytes=1000).error_code == 0
            # A fetch of many batches stops before it.
            many = [record.offset for record in records_in(client.fetch(topic, 0).records)]
            assert many == list(range(len(many)))
            assert len(many) <= damaged
            assert client.list_offset(topic, -1).offset == 40
            assert client.produce(topic, batch_of([b"goes on"])).base_offset == 40


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that made topics, snapshots and a metadata log of several segments, and stopped."""
    directory = tmp_path_factory.mktemp("prepared") / "broker"
    settings = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
    with Cluster(settings, data_dir=directory) as broker:
        # The log's beginning is dropped beside the work: topics are made until it is gone, and only snapshots have it.
        for number in range(200):
            broker.create_topic(f"topic-{number}", partitions=2)
            if number >= 12 and not (metadata(broker.data_dir) / SEGMENT).exists():
                break
        with WireClient(broker.bootstrap_servers) as client:
            assert client.produce("topic-0", batch_of([b"kept"])).error_code == 0
    return directory


def metadata(data: Path) -> Path:
    return data / "__cluster_metadata-0"


def newest(data: Path, suffix: str) -> Path:
    return sorted(metadata(data).glob(f"*{suffix}"))[-1]


def largest_log(data: Path) -> Path:
    return max(metadata(data).glob("*.log"), key=lambda path: path.stat().st_size)


def cut_first_log(data: Path) -> None:
    first = sorted(metadata(data).glob("*.log"))[0]
    first.write_bytes(first.read_bytes()[:-3])


def remove_logs(data: Path) -> None:
    for path in metadata(data).glob("*.log"):
        path.unlink()


def remove_snapshots(data: Path) -> None:
    for path in metadata(data).glob("*.checkpoint"):
        path.unlink()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of the metadata log": (lambda data: flip(largest_log(data), 100), "damaged at byte"),
    "a length in the metadata log": (lambda data: flip(largest_log(data), 10), "damaged at byte"),
    "a closed segment cut short": (cut_first_log, "cut short"),
    "the metadata log gone, snapshots left": (remove_logs, "no log"),
    "all snapshots gone": (remove_snapshots, "no snapshot"),
    "a bit of the newest snapshot": (lambda data: flip(newest(data, ".checkpoint"), 200), "damaged at byte"),
    "the newest snapshot cut short": (
        lambda data: newest(data, ".checkpoint").write_bytes(newest(data, ".checkpoint").read_bytes()[:-40]),
        "",
    ),
    "quorum-state is noise": (lambda data: (metadata(data) / "quorum-state").write_bytes(b"\xff{"), "quorum-state"),
    "quorum-state is empty": (lambda data: (metadata(data) / "quorum-state").write_bytes(b""), "quorum-state"),
    "quorum-state is gone": (lambda data: (metadata(data) / "quorum-state").unlink(), "quorum-state"),
    "the whole metadata directory is gone": (lambda data: shutil.rmtree(metadata(data)), "is missing"),
    "meta.properties is noise": (lambda data: (data / "meta.properties").write_bytes(b"\xff\xfe"), "meta.properties"),
    "meta.properties is empty": (lambda data: (data / "meta.properties").write_bytes(b""), "meta.properties"),
    "meta.properties of another node": (
        lambda data: (data / "meta.properties").write_text(
            (data / "meta.properties").read_text().replace("node.id=1", "node.id=7")
        ),
        "node.id=7",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_metadata_stops_the_start_and_nothing_is_changed(prepared: Path, tmp_path: Path, what: str) -> None:
    damage, message = DAMAGE[what]
    directory = tmp_path / "broker"
    shutil.copytree(prepared, directory)
    damage(directory / "data")
    before = fingerprint(directory / "data")
    broker = Cluster(data_dir=directory)
    with pytest.raises(BrokerFailed, match="exit code 1") as failed:
        broker.start()
    assert "Penstock cannot start" in failed.value.log_tail
    assert message in failed.value.log_tail
    assert "Traceback" not in failed.value.log_tail
    assert fingerprint(directory / "data") == before


def test_undamaged_it_starts(prepared: Path, tmp_path: Path) -> None:
    """The copy that the other tests damage is good before they do."""
    shutil.copytree(prepared, tmp_path / "broker")
    with Cluster(data_dir=tmp_path / "broker") as broker, WireClient(broker.bootstrap_servers) as client:
        assert [record.value for record in records_in(client.fetch("topic-0", 0).records)] == [b"kept"]


def test_moving_a_damaged_snapshot_away_is_enough(prepared: Path, tmp_path: Path) -> None:
    """The message names them: the snapshot before it, and the log since, are kept for this."""
    shutil.copytree(prepared, tmp_path / "broker")
    newest(tmp_path / "broker" / "data", ".checkpoint").unlink()
    with Cluster(data_dir=tmp_path / "broker") as broker, WireClient(broker.bootstrap_servers) as client:
        for number in range(12):
            assert client.list_offset(f"topic-{number}", -1, partition=1).error_code == 0


def test_a_torn_end_of_the_metadata_log_is_cut_off(prepared: Path, tmp_path: Path) -> None:
    """A write that a crash interrupted was never acknowledged."""
    directory = tmp_path / "broker"
    shutil.copytree(prepared, directory)
    # The newest segment may have been rolled just before, and be empty.
    last = newest(directory / "data", ".log")
    batches = split_batches(last.read_bytes(), last.stat().st_size)
    next_offset = batches[-1][1].next_offset if batches else int(last.stem)
    torn = largest_log(directory / "data").read_bytes()[8:70]
    with last.open("ab") as file:
        file.write(struct.pack(">q", next_offset) + torn)
    with Cluster(data_dir=directory) as broker, WireClient(broker.bootstrap_servers) as client:
        assert client.list_offset("topic-11", -1).error_code == 0
        broker.create_topic("one-more")
    with Cluster(data_dir=directory) as broker, WireClient(broker.bootstrap_servers) as client:
        assert client.list_offset("one-more", -1).error_code == 0
