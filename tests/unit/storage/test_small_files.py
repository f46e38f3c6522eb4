"""Checkpoints, epochs, snapshots, indexes and metadata files: Kafka's bytes, and nothing taken from damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.replica.producer_state import AppendedBatch, ProducerEntry
from penstock.model.ids import TopicPartition
from penstock.storage import checkpoint, metadata_files
from penstock.storage.checkpoint import CheckpointError, read_offsets, write_offsets
from penstock.storage.files import OsFilesystem
from penstock.storage.indexes import DamagedIndexError, OffsetIndex, TimeIndex
from penstock.storage.leader_epochs import UNDEFINED_EPOCH, EndOffset, LeaderEpochs
from penstock.storage.metadata_files import (
    BootMarker,
    MetadataFileError,
    MetaProperties,
    read_boot_marker,
    read_clean_shutdown_epoch,
    read_meta_properties,
    read_partition_metadata,
    remove_boot_marker,
    take_clean_shutdown,
    write_boot_marker,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)
from penstock.storage.producers.snapshot import DamagedSnapshotError, decode_snapshot, encode_snapshot

DISK = OsFilesystem()


def test_an_offset_checkpoint_is_kafkas_text(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.RECOVERY_POINTS
    offsets = {TopicPartition("events", 0): 12, TopicPartition("a.b-c", 3): 2**40}
    write_offsets(DISK, path, offsets)
    assert path.read_text() == f"0\n2\nevents 0 12\na.b-c 3 {2**40}\n"
    assert read_offsets(DISK, path) == offsets
    assert [each.name for each in tmp_path.iterdir()] == [checkpoint.RECOVERY_POINTS]


def test_a_missing_or_empty_checkpoint_has_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read_offsets(DISK, path) == {}
    path.write_bytes(b"")
    assert read_offsets(DISK, path) == {}


@pytest.mark.parametrize(
    "content",
    [b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\n", b"0\nx\n", b"0\n1\na 0\n", b"0\n1\na 0 -1\n", b"0", b"\xff\n", b"\n"],
)
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    with pytest.raises(CheckpointError):
        read_offsets(DISK, path)


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    result = LeaderEpochs()
    for epoch, start_offset in entries:
        result.assign(epoch, start_offset)
    return result


def test_epochs_are_kafkas_text() -> None:
    assert epochs((1, 0), (4, 20)).to_bytes() == b"0\n2\n1 0\n4 20\n"
    assert LeaderEpochs.from_bytes(b"0\n2\n1 0\n4 20\n").entries == ((1, 0), (4, 20))
    for damaged in (b"0\n1\n1\n", b"0\n1\na b\n", b"0\n1\n-1 5\n"):
        with pytest.raises(CheckpointError):
            LeaderEpochs.from_bytes(damaged)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),  # undefined
        (0, (0, 10)),  # older than all: the data is gone, go on from our start
        (1, (1, 20)),
        (2, (1, 20)),  # never led here: the epoch before it, up to the next
        (3, (3, 30)),
        (7, (7, 99)),  # the current one ends with the log
        (8, (-1, -1)),  # the future
    ],
)
def test_where_an_epoch_ends(epoch: int, expected: tuple[int, int]) -> None:
    assert epochs((1, 10), (3, 20), (7, 30)).end_offset_for(epoch, 99) == EndOffset(*expected)


def test_without_epochs_nothing_is_known() -> None:
    assert LeaderEpochs().end_offset_for(0, 99) == EndOffset(-1, -1)
    assert LeaderEpochs().latest == UNDEFINED_EPOCH


def test_the_epoch_of_an_offset() -> None:
    known = epochs((1, 10), (3, 20))
    assert [known.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 1000)] == [-1, 1, 1, 3, 3]


def test_a_contradicting_epoch_replaces_what_was_never_committed() -> None:
    known = epochs((1, 10), (3, 20), (5, 30))
    assert not known.assign(5, 35)
    assert known.assign(6, 20)
    assert known.entries == ((1, 10), (6, 20))
    assert known.assign(6, 15)
    assert known.entries == ((1, 10), (6, 15))


def test_epochs_follow_the_log_at_both_ends() -> None:
    known = epochs((1, 10), (3, 20), (5, 30))
    assert known.truncate_from_end(30)
    assert (known.entries, known.latest) == (((1, 10), (3, 20)), 3)
    assert not known.truncate_from_end(30)
    assert known.truncate_from_start(15)
    assert known.entries == ((1, 15), (3, 20))
    assert not known.truncate_from_start(15)
    assert known.truncate_from_start(20)
    assert known.entries == ((3, 20),)
    assert known.truncate_from_start(500)
    assert known.entries == ((3, 500),)


ENTRIES = [
    ProducerEntry(9, 3, 8, 1700, 40, (AppendedBatch(5, 7, 100, 102, 1700),)),
    ProducerEntry(10, 0, -1, 1600, -1, ()),
    ProducerEntry(11, 1, -1, 1650, -1, (AppendedBatch(2**31 - 2, 1, 90, 93, 1650),)),
]


def test_a_snapshot_keeps_each_producers_last_batch() -> None:
    data = encode_snapshot(ENTRIES)
    assert len(data) == 10 + 3 * 46
    assert data[:2] == b"\x00\x01"
    assert decode_snapshot(data) == ENTRIES
    assert decode_snapshot(encode_snapshot([])) == []


def test_a_snapshot_with_any_bit_flipped_or_byte_missing_is_refused() -> None:
    data = encode_snapshot(ENTRIES)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(DamagedSnapshotError):
            decode_snapshot(bytes(damaged))
        with pytest.raises(DamagedSnapshotError):
            decode_snapshot(data[:position])


def increasing(high: int) -> st.SearchStrategy[list[int]]:
    return st.sets(st.integers(0, high), max_size=20).map(sorted)


@given(increasing(2**31 - 1), increasing(2**31 - 2))
def test_an_offset_index_is_eight_bytes_an_entry(offsets: list[int], positions: list[int]) -> None:
    index = OffsetIndex()
    pairs = list(zip(offsets, positions, strict=False))
    for offset, position in pairs:
        index.append(offset, position)
    data = b"".join(offset.to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in pairs)
    assert index.to_bytes() == data
    again = OffsetIndex.from_bytes(data, 2**31)
    assert (again.last_offsets, again.positions) == (index.last_offsets, index.positions)


@given(increasing(2**62), increasing(2**31 - 1))
def test_a_time_index_is_twelve_bytes_an_entry(timestamps: list[int], offsets: list[int]) -> None:
    index = TimeIndex()
    pairs = list(zip(timestamps, offsets, strict=False))
    for timestamp, offset in pairs:
        index.append(timestamp, offset)
    data = b"".join(timestamp.to_bytes(8, "big") + offset.to_bytes(4, "big") for timestamp, offset in pairs)
    assert index.to_bytes() == data
    again = TimeIndex.from_bytes(data)
    assert (again.timestamps, again.offsets) == (index.timestamps, index.offsets)


@pytest.mark.parametrize("data", [bytes(7), bytes(16), b"\0\0\0\5\0\0\0\7", b"\xff\0\0\0\0\0\0\1"])
def test_an_offset_index_that_cannot_be_right_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedIndexError):
        OffsetIndex.from_bytes(data, 7)


def test_a_time_index_leaves_out_redundant_entries() -> None:
    index = TimeIndex()
    index.append(50, 3)
    index.append(50, 9)
    index.append(40, 12)
    assert len(index) == 1
    assert [index.lower_bound(time) for time in (49, 50, 51)] == [0, 0, 4]


def test_who_owns_a_data_directory(tmp_path: Path) -> None:
    assert read_meta_properties(DISK, tmp_path) is None
    owner = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 3, bytes(range(16)))
    write_meta_properties(DISK, tmp_path, owner)
    assert read_meta_properties(DISK, tmp_path) == owner
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert lines[1:] == [
        "cluster.id=MkU3OEVBNTcwNTJENDM2Qg",
        "directory.id=AAECAwQFBgcICQoLDA0ODw",
        "node.id=3",
        "version=1",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("version=0\n", "version '0'"),
        ("version=1\nnode.id=1\n", "lacks cluster.id"),
        ("version=1\ncluster.id=a\nnode.id=x\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n", "invalid literal"),
        ("version=1\ncluster.id=a\nnode.id=1\ndirectory.id=short\n", "node.id or directory.id"),
    ],
)
def test_a_wrong_owner_file_is_reported_with_the_reason(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(MetadataFileError, match=complaint):
        read_meta_properties(DISK, tmp_path)


def test_a_partition_knows_its_topic_id(tmp_path: Path) -> None:
    assert read_partition_metadata(DISK, tmp_path) is None
    write_partition_metadata(DISK, tmp_path, bytes(range(16)))
    path = tmp_path / "partition.metadata"
    assert path.read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_partition_metadata(DISK, tmp_path) == bytes(range(16))
    path.write_text("")
    assert read_partition_metadata(DISK, tmp_path) is None, "a power cut took what was never synced"
    (tmp_path / "partition.metadata").write_bytes(bytes(43))
    assert read_partition_metadata(DISK, tmp_path) is None, "a power cut left the size alone"
    for damaged in ("version", "version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "version: 0\ntopic_id: x"):
        path.write_text(damaged)
        with pytest.raises(MetadataFileError):
            read_partition_metadata(DISK, tmp_path)


def test_a_clean_stop_counts_once(tmp_path: Path) -> None:
    assert not take_clean_shutdown(DISK, tmp_path)
    write_clean_shutdown(DISK, tmp_path, 7)
    assert (tmp_path / metadata_files.CLEAN_SHUTDOWN).read_text() == '{"version":0,"brokerEpoch":7}'
    assert take_clean_shutdown(DISK, tmp_path)
    assert not take_clean_shutdown(DISK, tmp_path)


def test_a_clean_shutdown_records_the_broker_epoch(tmp_path: Path) -> None:
    assert read_clean_shutdown_epoch(DISK, tmp_path) == -1
    write_clean_shutdown(DISK, tmp_path, 7)
    assert read_clean_shutdown_epoch(DISK, tmp_path) == 7
    (tmp_path / metadata_files.CLEAN_SHUTDOWN).write_text("")
    assert read_clean_shutdown_epoch(DISK, tmp_path) == -1


def test_a_boot_marker_counts_until_the_machine_starts_again(tmp_path: Path) -> None:
    assert read_boot_marker(DISK, tmp_path, "monday") is None
    write_boot_marker(DISK, tmp_path, "monday", BootMarker(7, is_checked=False))
    assert read_boot_marker(DISK, tmp_path, "monday") == BootMarker(7, is_checked=False)
    assert read_boot_marker(DISK, tmp_path, "tuesday") is None
    begun = BootMarker(7, is_checked=True, incarnation_id=bytes(range(16)))
    write_boot_marker(DISK, tmp_path, "monday", begun)
    assert read_boot_marker(DISK, tmp_path, "monday") == begun
    write_boot_marker(DISK, tmp_path, "", BootMarker(8, is_checked=True))
    assert read_boot_marker(DISK, tmp_path, "") is None, "whether the machine kept running is unknown"
    for damaged in (
        bytes(40),
        b"[]",
        b'{"bootId": "monday"}',
        b'{"bootId": "monday", "brokerEpoch": 7, "incarnationId": 3}',
    ):
        (tmp_path / metadata_files.BOOT_MARKER).write_bytes(damaged)
        assert read_boot_marker(DISK, tmp_path, "monday") is None
    write_boot_marker(DISK, tmp_path, "monday", begun)
    remove_boot_marker(DISK, tmp_path)
    assert read_boot_marker(DISK, tmp_path, "monday") is None
    remove_boot_marker(DISK, tmp_path)


def test_a_boot_marker_of_an_earlier_version_is_understood(tmp_path: Path) -> None:
    (tmp_path / metadata_files.BOOT_MARKER).write_text('{"bootId": "monday", "brokerEpoch": 7}')
    assert read_boot_marker(DISK, tmp_path, "monday") == BootMarker(7, is_checked=True)


def test_the_disks_space_is_known(tmp_path: Path) -> None:
    space = DISK.disk_space(tmp_path)
    assert 0 <= space.free_bytes <= space.total_bytes
    assert 0.0 <= space.used_fraction <= 1.0
