"""The metadata log on disk: what a start finds, finishes and reads."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.raft.events import Election
from penstock.core.raft.messages import LogEnd
from penstock.core.raft.voters import VoterSet
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import SystemEnv
from penstock.runtime.raft.control_records import kraft_version, read_controls
from penstock.runtime.raft.metadata_files import (
    PENDING_SUFFIX,
    SnapshotId,
    list_pending,
    list_snapshots,
    write_election,
    write_snapshot,
)
from penstock.runtime.raft.metadata_log import RECORD_BYTES_MAX, MetadataLog
from penstock.storage.settings import LogSettings
from penstock.wire import codec
from penstock.wire.messages.metadata_records import DelegationTokenRecord, TopicRecord
from penstock.wire.records import Record, build_batch, control_key
from sim.disk import DATA, SimDisk, SimFilesystem

OLD, NEW = TopicRecord("old", b"o" * 16), TopicRecord("new", b"n" * 16)


def test_a_start_finishes_replacing_the_log_by_a_leaders_snapshot(tmp_path: Path) -> None:
    env = SystemEnv()
    directory = tmp_path / "log"
    before = MetadataLog(env, directory, LogSettings(), VoterSet.of_ids([1]))
    before.open()
    before.append_records([OLD], 1)
    before.log.close(clean=True)
    write_election(env.filesystem, directory, Election(epoch=3), [1])
    # A crash came when the snapshot was complete, and the log it replaces not yet emptied.
    snapshot = SnapshotId(50, 3)
    write_snapshot(env.filesystem, directory, snapshot, [NEW], env.now_ms())
    path = directory / snapshot.file_name
    path.rename(path.with_name(path.name + PENDING_SUFFIX))
    assert list_pending(env.filesystem, directory) == [snapshot]

    after = MetadataLog(env, directory, LogSettings(), VoterSet.of_ids([1]))
    after.open()
    assert (after.start(), after.end()) == (LogEnd(50, 3), LogEnd(50, 3))
    assert [batch.records for batch in after.newest_snapshot() if batch.records] == [[NEW]]
    assert list_snapshots(env.filesystem, directory) == [snapshot]
    assert list_pending(env.filesystem, directory) == []
    after.log.close(clean=True)


def test_fields_that_a_later_version_added_to_a_control_record_are_ignored() -> None:
    kind, message, version = kraft_version(1)
    value = codec.encode(message, version) + b"added later"
    batch = build_batch([Record(7, 0, control_key(kind), value)], base_offset=7, leader_epoch=1, control=True)
    assert [(control.offset, control.message) for control in read_controls(batch)] == [(7, message)]


def test_everything_after_an_offset_is_read_whether_committed_or_not(tmp_path: Path) -> None:
    log = MetadataLog(SystemEnv(), tmp_path / "log", LogSettings(segment_bytes=200), VoterSet.of_ids([1]))
    log.open()
    records = [TopicRecord(f"topic-{number}", bytes([number]) * 16) for number in range(20)]
    for record in records:
        log.append_records([record], 1)
    assert list(log.records_after(0)) == records
    assert list(log.records_after(15)) == records[15:]
    assert list(log.records_after(20)) == []
    log.log.close(clean=True)


def test_a_power_failure_leaves_a_log_that_opens_and_has_what_was_synced() -> None:
    """Disks write files in any order: nothing may be torn before the last segment."""
    rolled = 0
    for seed in range(300):
        random, disk = Random(seed), SimDisk()
        env: Any = SimpleNamespace(filesystem=SimFilesystem(disk, lambda: 0), now_ms=lambda: 0)
        directory = Path("/") / DATA / "log"
        log = MetadataLog(env, directory, LogSettings(segment_bytes=200), VoterSet.of_ids([1]))
        log.open()
        write_election(env.filesystem, directory, Election(epoch=1), [1])
        for number in range(20):
            log.append_records([TopicRecord(f"topic-{number}", bytes([number]) * 16)], 1)
            if random.random() < 0.3:
                log.log.flush()
            if random.random() < 0.2 and log.log.flushed_offset > log.snapshot().offset:
                snapshot = SnapshotId(log.log.flushed_offset, 1)
                write_snapshot(env.filesystem, directory, snapshot, [OLD], 0)
                log.snapshot_taken(snapshot)
        rolled += log.log.segment_count > 1
        synced = log.log.flushed_offset
        disk.lose_power(random)
        env.filesystem = SimFilesystem(disk, lambda: 0)
        after = MetadataLog(env, directory, LogSettings(segment_bytes=200), VoterSet.of_ids([1]))
        after.open()
        assert synced <= after.log.end_offset <= 20
    assert rolled > 100


@pytest.mark.parametrize("synced", [0, 3, 12])
def test_what_a_failed_sync_left_in_the_page_cache_is_written_again(synced: int) -> None:
    """The kernel takes the dropped pages for written; a power failure after the restart's syncs would lose them."""
    disk = SimDisk()
    env: Any = SimpleNamespace(filesystem=SimFilesystem(disk, lambda: 0), now_ms=lambda: 0)
    directory = Path("/") / DATA / "log"

    def opened() -> MetadataLog:
        log = MetadataLog(env, directory, LogSettings(segment_bytes=200), VoterSet.of_ids([1]))
        log.open()
        return log

    log = opened()
    write_election(env.filesystem, directory, Election(epoch=1), [1])
    records = [TopicRecord(f"topic-{number}", bytes([number]) * 16) for number in range(synced + 3)]
    for number, record in enumerate(records):
        log.append_records([record], 1)
        if number < synced:
            log.log.flush()
    for name in env.filesystem.list_directory(directory):
        env.filesystem._inode(directory / name).fail_sync()

    log = opened()
    assert log.log.flushed_offset == 0, "nothing of it counts as durable"
    log.log.flush()
    disk.lose_power(Random(1))
    env.filesystem = SimFilesystem(disk, lambda: 0)
    log = opened()
    assert list(log.records_after(0)) == records


def test_a_segment_that_is_far_too_large_is_synced_and_finished(tmp_path: Path) -> None:
    log = MetadataLog(SystemEnv(), tmp_path / "log", LogSettings(segment_bytes=200), VoterSet.of_ids([1]))
    log.open()
    while log.log.segment_count == 1:
        assert log.log.flushed_offset == 0
        log.append_records([OLD], 1)
    assert log.log.flushed_offset == log.log.end_offset - 1
    assert log.log.size_bytes < 600
    log.log.close(clean=True)


def test_a_record_that_is_too_large_is_refused_and_nothing_is_appended(tmp_path: Path) -> None:
    log = MetadataLog(SystemEnv(), tmp_path / "log", LogSettings(), VoterSet.of_ids([1]))
    log.open()
    log.append_records([OLD], 1)
    large = DelegationTokenRecord("User:alice", "User:alice", ["User:" + "x" * RECORD_BYTES_MAX], 0, 1, 1, "t")
    with pytest.raises(ApiError) as refused:
        log.append_records([OLD, large], 1)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert log.log.end_offset == 1
    log.log.close(clean=True)
