"""What a sync covers, and what it may not claim."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from faulty_filesystem import FaultyFilesystem
from log_support import NOW_MS, LogMaker, append, read_all

from penstock.core.lifecycle.retention import RetentionPlan
from penstock.storage.settings import LogSettings


@pytest.fixture
def disk() -> FaultyFilesystem:
    return FaultyFilesystem()


@pytest.fixture
def logs(tmp_path: Path, disk: FaultyFilesystem) -> LogMaker:
    return LogMaker(tmp_path, disk)


def test_a_ticket_covers_what_was_appended_before_it_was_drawn(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"a")
    ticket = log.begin_flush()
    assert ticket is not None
    append(log, b"b")
    worker = threading.Thread(target=ticket.run)
    worker.start()
    worker.join()
    assert log.flushed_offset == 0
    log.finish_flush(ticket)
    assert log.flushed_offset == 1
    log.flush()
    assert log.flushed_offset == 2
    assert log.begin_flush() is None


def test_a_sync_covers_every_file_that_a_roll_made_and_the_directory(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    for _ in range(20):
        append(log, b"x" * 200)
    disk.synced.clear()
    log.flush()
    assert log.segment_count > 2
    durable = set(logs.files()) - {"leader-epoch-checkpoint"}
    assert durable <= set(disk.synced)
    assert disk.synced[-1] == "events-0/"


def test_a_sync_in_the_middle_of_a_segment_touches_only_its_file(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    append(log, b"a")
    log.flush()
    append(log, b"b")
    disk.synced.clear()
    log.flush()
    assert disk.synced == [log._active.name]


def test_a_sync_after_a_roll_covers_the_end_of_the_finished_segment(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    append(log, b"x" * 500)
    log.flush()
    append(log, b"x" * 500)
    finished = log._active.name
    log.roll(NOW_MS)
    disk.synced.clear()
    log.flush()
    assert {finished, log._active.name} <= set(disk.synced)


def test_a_truncation_is_durable_when_it_returns(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    for epoch in range(6):
        append(log, b"x" * 900, epoch=epoch)
    log.flush()
    disk.synced.clear()
    log.truncate_to(3)
    assert {log._active.name, "leader-epoch-checkpoint.tmp", "events-0/"} <= set(disk.synced)
    assert (logs.directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n1 1\n2 2\n"


def test_a_deletion_is_durable_when_it_returns(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    disk.synced.clear()
    log.delete_directory(bytes(16))
    assert disk.synced == [f"{logs.directory.parent.name}/"]


def test_a_ticket_drawn_before_a_truncation_does_not_cover_what_came_after(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"a")
    append(log, b"b")
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.run()
    log.truncate_to(1)
    append(log, b"other")
    append(log, b"another")
    log.finish_flush(ticket)
    assert log.flushed_offset <= 1


def test_a_ticket_runs_while_its_segment_is_deleted_and_its_directory_renamed(logs: LogMaker) -> None:
    log = logs.open()
    for _ in range(20):
        append(log, b"x" * 200)
    first = log.begin_flush()
    assert first is not None
    log.delete_segments(RetentionPlan(frozenset({0}), 0), NOW_MS)
    log.reap(NOW_MS + 10**9)
    first.run()
    log.finish_flush(first)
    append(log, b"y")
    second = log.begin_flush()
    assert second is not None
    log.delete_directory(bytes(16))
    second.run()
    log.finish_flush(second)


def test_a_sync_is_due_by_count(logs: LogMaker) -> None:
    logs.settings = LogSettings(flush_messages=3)
    log = logs.open()
    append(log, b"a", b"b")
    assert not log.is_flush_due
    append(log, b"c")
    assert log.is_flush_due
    log.flush()
    assert not log.is_flush_due


def test_a_finished_segment_requests_a_sync(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"x" * 1500)
    assert not log.has_unsynced_segment
    append(log, b"x" * 1500)
    assert log.has_unsynced_segment
    log.flush()
    assert not log.has_unsynced_segment


def test_a_clean_close_leaves_everything_synced(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    append(log, b"a", producer_id=1, producer_epoch=0, sequence=0)
    disk.synced.clear()
    log.close()
    assert set(logs.files()) <= {name.removesuffix(".tmp") for name in disk.synced}
    assert log.flushed_offset == 1
    assert len(read_all(logs.open(clean=True, recovery_point=1))) == 1


def open_files(directory: Path) -> list[str]:
    """The files below a directory that this process has open."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("this system does not list open files")
    found = []
    for descriptor in descriptors.iterdir():
        with contextlib.suppress(OSError):
            found.append(descriptor.readlink())
    return [path.name for path in found if directory in path.parents]


def test_a_log_whose_files_are_closed_owes_its_sync(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    append(log, b"a")
    log.flush()
    append(log, b"b")
    assert open_files(logs.directory) != []
    log.close_files()
    assert open_files(logs.directory) == []
    disk.synced.clear()
    log.flush()
    assert log._active.name in disk.synced
    assert log.flushed_offset == 2
    assert [record.value for record in read_all(log)] == [b"a", b"b"]
    append(log, b"c")
    assert [record.value for record in read_all(log)] == [b"a", b"b", b"c"]


def test_a_log_that_was_never_written_holds_no_file_either(logs: LogMaker) -> None:
    log = logs.open()
    assert open_files(logs.directory) == []
    append(log, b"a")
    log.flush()
    assert [record.value for record in read_all(log)] == [b"a"]


def test_readers_of_finished_segments_leave_nothing_open_behind_them(logs: LogMaker) -> None:
    log = logs.open()
    for _ in range(20):
        append(log, b"x" * 200)
    log.flush()
    assert len(read_all(log)) == 20
    log.close_files()
    assert open_files(logs.directory) == []


def test_a_torn_write_is_cut_off_when_a_log_wakes(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"a")
    log.close_files()
    path = logs.directory / log._active.name
    path.write_bytes(path.read_bytes() + b"torn")
    append(log, b"b")
    assert [record.value for record in read_all(log)] == [b"a", b"b"]


def test_a_log_holds_no_file_after_recovery(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    for _ in range(20):
        append(log, b"x" * 200)
    assert log.segment_count > 2
    log = logs.crash(log, recovery_point=0)
    assert open_files(logs.directory) == []
    disk.synced.clear()
    log.flush()
    assert {path.name for path in logs.directory.glob("*.log")} <= set(disk.synced)


def test_what_waits_for_a_sync_may_be_deleted_meanwhile(logs: LogMaker) -> None:
    log = logs.open()
    for _ in range(20):
        append(log, b"x" * 200)
    log = logs.crash(log, recovery_point=0)
    log.delete_segments(RetentionPlan(frozenset(segment.base_offset for segment in log._segments[:2]), 0), NOW_MS)
    log.flush()
    assert log.flushed_offset == 20
