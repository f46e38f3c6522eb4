"""Compaction and readers of committed records: whatever goes, they never see an aborted record and miss no other."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from compaction_support import DELETE_RETENTION_MS, batches, clean, compact, make_job, put
from faulty_filesystem import FaultyFilesystem
from log_support import NOW_MS, LogMaker, make_marker
from test_compaction_crash import Crash, CrashingFilesystem

from penstock.storage.compaction.clean import Compaction, CompactionJob
from penstock.storage.files import OsFilesystem, StorageError, storage_error
from penstock.storage.log import Log
from penstock.wire.records import ControlType, control_type, read_header

LATER_MS = NOW_MS + DELETE_RETENTION_MS
Seen = list[tuple[int, bytes | None, bytes | None]]


class Writer:
    """A producer of transactions."""

    def __init__(self, log: Log, producer_id: int) -> None:
        self.log = log
        self.producer_id = producer_id
        self.sequence = 0

    def put(self, *pairs: tuple[bytes, bytes]) -> int:
        base_offset = put(
            self.log,
            *pairs,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += len(pairs)
        return base_offset

    def end(self, *, commit: bool) -> None:
        marker = make_marker(self.log.end_offset, self.producer_id, 0, commit=commit)
        self.log.append([read_header(marker)], marker, NOW_MS)


def committed(log: Log, start: int | None = None) -> Seen:
    """What a consumer with isolation.level=read_committed makes of its fetches."""
    start = log.start_offset if start is None else start
    aborted = sorted(log.aborted.overlapping(start, log.end_offset), key=lambda one: one.first_offset)
    skipped: set[int] = set()
    seen: Seen = []
    for header, records in batches(log, start):
        while aborted and aborted[0].first_offset <= header.last_offset:
            skipped.add(aborted.pop(0).producer_id)
        if header.is_control:
            if records and control_type(records[0].key) is ControlType.ABORT:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            seen += [(record.offset, record.key, record.value) for record in records if record.offset >= start]
    return seen


def test_what_a_cleaning_had_no_room_for_stays_aborted(logs: LogMaker) -> None:
    log = logs.open()
    put(log, *((b"%d" % number, b"old") for number in range(50)))
    put(log, *((b"more %d" % number, b"kept") for number in range(50)))
    writer = Writer(log, 9)
    first_aborted = writer.put((b"3", b"aborted"))
    writer.end(commit=False)
    put(log, (b"3", b"new"))
    log.roll(NOW_MS)
    before = committed(log)
    report = compact(log, map_bytes=70 * 32)
    assert report.end_offset <= first_aborted, "the cleaning was to stop before the transaction"
    assert committed(log) == before
    log = logs.crash(log)
    assert committed(log) == before


def test_a_producer_may_write_again_when_its_aborted_transaction_and_marker_are_gone(logs: LogMaker) -> None:
    log = logs.open()
    writer = Writer(log, 9)
    writer.put((b"a", b"aborted"))
    writer.end(commit=False)
    put(log, (b"b", b"1"))
    log.roll(NOW_MS)
    log.producers.clear(log.end_offset)
    for now_ms in (NOW_MS, NOW_MS, LATER_MS):
        compact(log, 0, now_ms=now_ms)
    assert [header.is_control for header, _ in batches(log)] == [False]
    assert len(log.aborted) == 0
    writer.put((b"a", b"2"))
    writer.end(commit=True)
    assert [value for _, _, value in committed(log)] == [b"1", b"2"]


class Crashed(Exception):
    """The process ended at some step."""


def stop_at(step: str) -> Callable[[str], None]:
    def stop(done: str) -> None:
        if done == step:
            raise Crashed

    return stop


def partial_job(log: Log) -> CompactionJob:
    """One that has no room for all keys: it makes one segment, which keeps an aborted transaction."""
    return make_job(log, map_bytes=50 * 32, segment_bytes=1 << 20)


def filled_with_aborted(logs: LogMaker) -> Log:
    """A log whose finished segments have two aborted transactions, one of which spans two of them."""
    log = logs.open()
    writer = Writer(log, 9)
    put(log, (b"a", b"1"), (b"b", b"1"))
    log.roll(NOW_MS)
    writer.put((b"a", b"aborted"))
    log.roll(NOW_MS)
    writer.end(commit=False)
    put(log, *((b"%d" % number, b"1") for number in range(60)))
    writer.put((b"b", b"aborted too"))
    writer.end(commit=False)
    log.roll(NOW_MS)
    put(log, (b"z", b"1"))
    log.flush()
    return log


@pytest.mark.parametrize("step", ["cleaned", "begun", "applied", "finished"])
def test_a_crash_in_the_middle_of_a_swap_keeps_aborted_records_out(logs: LogMaker, step: str) -> None:
    log = filled_with_aborted(logs)
    before = committed(log)
    with pytest.raises(Crashed):
        clean(log, partial_job(log), stop_at(step))
    log = logs.crash(log)
    assert committed(log) == before
    compact(log)
    assert [value for _, _, value in committed(log) if value != b"1"] == []


@pytest.mark.parametrize("last", ["begin_swap", "finish_swap"])
def test_a_start_that_crashes_as_it_finishes_a_swap_keeps_aborted_records_out(tmp_path: Path, last: str) -> None:
    """Only the log file had its new name. The next start found no suffix of a swap, and no index."""
    for crash_at in range(100):
        filesystem = CrashingFilesystem()
        logs = LogMaker(tmp_path / str(crash_at), filesystem)
        log = filled_with_aborted(logs)
        before = committed(log)
        with pytest.raises(Crash):
            swap_up_to(log, filesystem, last)
        recovery_point = log.flushed_offset
        log.close(clean=False)
        filesystem.operations_left = crash_at
        with contextlib.suppress(Crash):
            logs.open(recovery_point=recovery_point, lost_power=False)
            assert crash_at > 5
            return
        filesystem.operations_left = 10**9
        assert committed(logs.open(recovery_point=recovery_point, lost_power=False)) == before
    raise AssertionError("the start never ends")


def swap_up_to(log: Log, filesystem: CrashingFilesystem, last: str) -> None:
    """Swap a cleaned segment, with a crash when one file got its name in the `last` step."""
    (cleaned,) = Compaction(partial_job(log), OsFilesystem(), lambda _: None).run()
    if last == "begin_swap":
        filesystem.operations_left = 1
    swap = log.begin_swap(cleaned, log.generation)
    assert swap is not None
    assert log.apply_swap(swap, NOW_MS)
    filesystem.operations_left = 1
    log.finish_swap(swap)


def test_a_segment_that_awaits_its_name_is_truncated_with_its_aborted_transactions(logs: LogMaker) -> None:
    """What was written next by the same producer was hidden, as the former index came into place with the name."""
    log = filled_with_aborted(logs)
    before = committed(log)
    (cleaned,) = Compaction(partial_job(log), OsFilesystem(), lambda _: None).run()
    swap = log.begin_swap(cleaned, log.generation)
    assert swap is not None
    assert log.apply_swap(swap, NOW_MS)
    first_aborted = log.aborted.overlapping(0, log.end_offset)[-1].first_offset
    log.truncate_to(first_aborted, NOW_MS)
    log.finish_swap(swap)
    writer = Writer(log, 9)
    writer.sequence = 1
    writer.put((b"b", b"committed"))
    writer.end(commit=True)
    expected = [*(row for row in before if row[0] < first_aborted), (first_aborted, b"b", b"committed")]
    assert committed(log) == expected
    assert committed(logs.restart(log)) == expected
    assert logs.files(".swap") == []


def test_a_swap_that_finds_no_descriptor_changes_nothing(tmp_path: Path) -> None:
    """Readers had the cleaned segment by then, without its aborted transactions."""
    disk = FaultyFilesystem()
    logs = LogMaker(tmp_path, disk)
    log = filled_with_aborted(logs)
    before = committed(log)
    (cleaned,) = Compaction(partial_job(log), OsFilesystem(), lambda _: None).run()
    swap = log.begin_swap(cleaned, log.generation)
    assert swap is not None
    error = storage_error("open", tmp_path, OSError(errno.EMFILE, "Too many open files"))
    with patch.object(FaultyFilesystem, "read_file", side_effect=error), pytest.raises(StorageError):
        log.apply_swap(swap, NOW_MS)
    assert committed(log) == before
    assert logs.files(".swap") == []
    assert committed(logs.crash(log)) == before


@pytest.mark.parametrize("seed", range(12))
def test_readers_of_committed_records_always_see_the_latest_of_each_key(logs: LogMaker, seed: int) -> None:
    random = Random(seed)
    log = logs.open()
    writers = [Writer(log, producer_id) for producer_id in (7, 8, 9)]
    open_ones: dict[Writer, list[tuple[bytes, tuple[int, bytes]]]] = {}
    expected: dict[bytes, tuple[int, bytes]] = {}
    first_dirty, now_ms = 0, NOW_MS
    for number in range(150):
        key, value = b"%d" % random.randrange(12), b"v%d" % number
        action = random.random()
        writer = random.choice(writers)
        if action < 0.25:
            expected[key] = (put(log, (key, value)), value)
        elif action < 0.6:
            open_ones.setdefault(writer, []).append((key, (writer.put((key, value)), value)))
        elif action < 0.85 and writer in open_ones:
            commit = random.random() < 0.5
            written = open_ones.pop(writer)
            writer.end(commit=commit)
            for one_key, one in written if commit else ():
                expected[one_key] = max(expected.get(one_key, (-1, b"")), one)
        elif action < 0.95:
            log.roll(NOW_MS)
        else:
            stable = log.producers.first_undecided_offset
            now_ms += random.choice((0, DELETE_RETENTION_MS))
            room = random.choice((200, 1 << 20))
            end_offset = log.end_offset if stable is None else stable
            job = make_job(log, first_dirty, now_ms=now_ms, map_bytes=room, end_offset=end_offset)
            if job.segments and job.segments[-1].end_offset > first_dirty:
                first_dirty = clean(log, job).end_offset
    for writer in open_ones:
        writer.end(commit=False)
    seen = {key: (offset, value) for offset, key, value in committed(log)}
    assert seen == expected
    log = logs.crash(log)
    assert {key: (offset, value) for offset, key, value in committed(log)} == expected


def test_outcomes_are_looked_up_after_earlier_segments_were_swapped(logs: LogMaker) -> None:
    log = logs.open()
    for value in (b"first", b"second"):
        put(log, *((b"%d" % number, value) for number in range(20)))
        log.roll(NOW_MS)
    writer = Writer(log, 9)
    writer.put((b"aborted", b"no"))
    writer.end(commit=False)
    put(log, (b"last", b"yes"))
    log.roll(NOW_MS)
    # The transaction is in the clean part: nothing of it is looked up before the first segment is replaced.
    dirty = log.end_offset
    put(log, *((b"%d" % number, b"third") for number in range(20)))
    log.roll(NOW_MS)
    before = [record for record in committed(log) if record[1] == b"last" or record[2] == b"third"]
    report = clean(log, make_job(log, dirty, segment_bytes=1))
    assert report.records_read > report.records_kept
    assert committed(log) == before
