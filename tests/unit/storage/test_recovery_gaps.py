"""Gaps between segments: what a power cut took ends the log, what compaction took does not."""

from __future__ import annotations

import pytest
from log_support import NOW_MS, LogMaker, append, headers_of, make_batch, read_all

from penstock.storage.log import Log
from penstock.storage.settings import LogSettings


@pytest.fixture
def logs(logs: LogMaker) -> LogMaker:
    logs.settings = LogSettings(segment_bytes=600)
    return logs


def fill(log: Log, count: int) -> None:
    for number in range(count):
        append(log, b"." * 150, producer_id=7, producer_epoch=0, sequence=number)


def tear_first_segment(logs: LogMaker, log: Log) -> list[int]:
    """A power cut after a roll: the end of a finished segment is gone, the next ones are there. Returns the bases."""
    bases = [segment.base_offset for segment in log._segments]
    last_batch = sum(
        header.size_bytes for header in headers_of(log._segments[0].file.read(0, log._segments[0].size))[:-1]
    )
    log.close(clean=False)
    first = logs.directory / f"{bases[0]:020}.log"
    first.write_bytes(first.read_bytes()[:last_batch])
    return bases


def test_a_log_ends_where_a_power_cut_left_a_gap_between_segments(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 10)
    bases = tear_first_segment(logs, log)
    assert len(bases) > 2
    log = logs.open()
    assert log.end_offset == bases[1] - 1
    assert [stored.offset for stored in read_all(log)] == list(range(log.end_offset))
    assert log.recovery.segments_removed == len(bases) - 1
    assert sorted(path.name for path in logs.directory.glob("*.log")) == [f"{0:020}.log"]
    assert append(log, b"more") == bases[1] - 1
    assert logs.restart(log).end_offset == bases[1]


def test_what_a_producer_wrote_behind_a_gap_is_forgotten_with_it(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 10)
    tear_first_segment(logs, log)
    log = logs.open()
    entry = log.producers.get(7)
    assert entry is not None
    assert entry.last_sequence == log.end_offset - 1
    assert not list(logs.directory.glob("*.snapshot"))


def test_a_gap_before_the_recovery_point_is_compactions(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 10)
    bases = tear_first_segment(logs, log)
    log = logs.open(recovery_point=bases[1])
    assert log.end_offset == 10
    assert [stored.offset for stored in read_all(log)] == [offset for offset in range(10) if offset != bases[1] - 1]


def test_where_the_machine_went_on_no_gap_is_a_loss(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 10)
    tear_first_segment(logs, log)
    assert logs.open(lost_power=False).end_offset == 10


def test_a_follower_of_a_compacted_log_leaves_no_gap_between_segments(logs: LogMaker) -> None:
    log = logs.open()
    for offset in (0, 4, 5, 11, 17, 30):
        data = make_batch(offset, [b"." * 200])
        log.append(headers_of(data), data, NOW_MS)
    assert [segment.base_offset for segment in log._segments] == [0, 5, 12]
    log.close(clean=False)
    log = logs.open()
    assert [stored.offset for stored in read_all(log)] == [0, 4, 5, 11, 17, 30]


def test_a_gap_that_is_too_large_for_a_segment_is_kept(logs: LogMaker) -> None:
    log = logs.open()
    far = 3 * 2**31
    for offset in (0, far):
        data = make_batch(offset, [b"x"])
        log.append(headers_of(data), data, NOW_MS)
    log.close(clean=False)
    log = logs.open()
    assert [stored.offset for stored in read_all(log)] == [0, far]
