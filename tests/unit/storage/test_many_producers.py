"""A log with many producers and small segments takes about as much disk space as its batches."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from faulty_filesystem import FaultyFilesystem
from log_support import NOW_MS, LogMaker, append, make_batch

from penstock.core.lifecycle.retention import RetentionPlan
from penstock.storage.log import FILE_OVERHEAD_BYTES, Log
from penstock.storage.names import LOG_SUFFIX, SNAPSHOT_SUFFIX
from penstock.storage.settings import LogSettings
from penstock.wire.records import read_header

PRODUCERS = 4_000


def filled(logs: LogMaker) -> Log:
    """Each batch but the first ones has a segment of its own, as with segment.ms=1."""
    log = logs.open()
    for producer_id in range(PRODUCERS):
        append(log, b"", producer_id=producer_id, producer_epoch=0, sequence=0)
    logs.settings = log.settings = LogSettings(segment_bytes=100)
    for number in range(100):
        append(log, b"", producer_id=0, producer_epoch=0, sequence=number + 1)
    return log


def snapshot_bytes(logs: LogMaker) -> int:
    return sum(size for name, size in sizes(logs).items() if name.endswith(SNAPSHOT_SUFFIX))


def sizes(logs: LogMaker) -> dict[str, int]:
    return logs.filesystem.list_directory(logs.directory)


def last_sequences(log: Log) -> dict[int, int]:
    return {entry.producer_id: entry.last_sequence for entry in log.producers.entries}


def make_logs(logs: LogMaker) -> LogMaker:
    logs.settings = LogSettings(segment_bytes=1 << 20)
    return logs


def test_snapshots_take_no_more_than_the_log(logs: LogMaker) -> None:
    log = filled(make_logs(logs))
    assert log.segment_count == 101
    assert snapshot_bytes(logs) <= log.size_bytes


def test_nothing_is_forgotten_where_there_is_no_snapshot(logs: LogMaker) -> None:
    log = filled(make_logs(logs))
    expected = last_sequences(log)
    assert len(expected) == PRODUCERS
    for _ in range(2):
        # Twice, and once more after the log was read whole.
        log = logs.crash(log)
        assert last_sequences(log) == expected
        assert snapshot_bytes(logs) <= log.size_bytes
    log = logs.crash(log, recovery_point=log.end_offset)
    assert last_sequences(log) == expected
    log = logs.restart(log)
    assert last_sequences(log) == expected
    log.truncate_to(log.end_offset - 50)
    assert last_sequences(log) == {**expected, 0: 50}


def test_few_producers_are_stored_with_every_segment(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(100):
        append(log, bytes(500), producer_id=7, producer_epoch=0, sequence=number)
    assert len(logs.files(SNAPSHOT_SUFFIX)) == log.segment_count - 1


def test_a_tiered_log_has_a_snapshot_for_every_segment_that_is_copied(logs: LogMaker) -> None:
    make_logs(logs)
    log = logs.open()
    for producer_id in range(PRODUCERS):
        append(log, b"", producer_id=producer_id, producer_epoch=0, sequence=0)
    logs.settings = log.settings = LogSettings(segment_bytes=100, tiered=True)
    for number in range(5):
        append(log, b"", producer_id=0, producer_epoch=0, sequence=number + 1)
    assert len(logs.files(SNAPSHOT_SUFFIX)) == log.segment_count - 1


def test_all_files_of_a_log_are_counted(logs: LogMaker) -> None:
    log = filled(make_logs(logs))
    assert log.disk_bytes() > sum(sizes(logs).values()) >= log.size_bytes
    assert log.disk_bytes() > log.segment_count * FILE_OVERHEAD_BYTES


def test_space_that_is_reserved_is_counted(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_bytes=1 << 20, preallocate=True)
    log = logs.open()
    data = make_batch(0, [b"one"])
    log.append([read_header(data)], data, 0)
    assert log.size_bytes < 1000
    assert log.disk_bytes() >= 1 << 20


@pytest.mark.parametrize("how", ["crash", "check everything", "restart"])
@pytest.mark.parametrize("kept", [0, 30])
def test_producers_are_known_until_they_expire_although_their_segments_are_deleted(
    logs: LogMaker, kept: int, how: str
) -> None:
    """Their repeated batches were stored twice after a restart, as if nothing was known of them."""
    log = filled(make_logs(logs))
    expected = last_sequences(log)
    log.roll(NOW_MS)
    bases = [segment.base_offset for segment in log.segment_facts()]
    doomed = bases[:-kept] if kept else bases
    log.delete_segments(RetentionPlan(frozenset(doomed), log.end_offset), NOW_MS)
    assert last_sequences(log) == expected
    log.flush()
    if how == "restart":
        log = logs.restart(log)
    else:
        log = logs.crash(log, recovery_point=0 if how == "check everything" else None)
    assert last_sequences(log) == expected
    if kept:
        end_offset = log.end_offset - 10
        log.truncate_to(end_offset)
        assert last_sequences(log) == {**expected, 0: expected[0] - 10}


def test_a_full_disk_does_not_keep_segments_from_being_deleted(tmp_path: Path) -> None:
    disk = FaultyFilesystem()
    log = filled(make_logs(LogMaker(tmp_path, disk)))
    log.roll(NOW_MS)
    disk.write_error, disk.suffixes = errno.ENOSPC, (SNAPSHOT_SUFFIX,)
    base_offset = log.segment_facts()[0].base_offset
    log.delete_segments(RetentionPlan(frozenset([base_offset]), log.end_offset), NOW_MS)
    assert log.start_offset > base_offset


def test_recovery_takes_a_snapshot_once_the_log_has_grown_by_its_size(logs: LogMaker) -> None:
    log = filled(make_logs(logs))
    log.close(clean=False)
    for name in logs.files(SNAPSHOT_SUFFIX):
        (logs.directory / name).unlink()
    log = logs.open()
    # The first segment is larger than a snapshot, the others together are much smaller.
    assert logs.files(SNAPSHOT_SUFFIX) == [logs.files(LOG_SUFFIX)[1].replace(LOG_SUFFIX, SNAPSHOT_SUFFIX)]
