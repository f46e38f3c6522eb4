"""Compaction and readers of committed records: whatever goes, they never see an aborted record and miss no other."""

from __future__ import annotations

from random import Random

import pytest
from compaction_support import DELETE_RETENTION_MS, batches, clean, compact, make_job, put
from log_support import NOW_MS, LogMaker, make_marker

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


@pytest.mark.parametrize("step", ["cleaned", "begun", "applied", "finished"])
def test_a_crash_in_the_middle_of_a_swap_keeps_aborted_records_out(logs: LogMaker, step: str) -> None:
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
    before = committed(log)

    class Crashed(Exception):
        pass

    def stop(done: str) -> None:
        if done == step:
            raise Crashed

    with pytest.raises(Crashed):
        clean(log, make_job(log, map_bytes=50 * 32, segment_bytes=1 << 20), stop)
    log = logs.crash(log)
    assert committed(log) == before
    compact(log)
    assert [value for _, _, value in committed(log) if value != b"1"] == []


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
