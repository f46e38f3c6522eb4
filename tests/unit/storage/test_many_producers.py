"""A log with many producers and small segments takes about as much disk space as its batches."""

from __future__ import annotations

from log_support import LogMaker, append, make_batch

from penstock.storage.log import FILE_OVERHEAD_BYTES, Log
from penstock.storage.names import SNAPSHOT_SUFFIX
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
