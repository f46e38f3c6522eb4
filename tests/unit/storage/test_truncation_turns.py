"""A truncation reads the producers of what is left a few headers at a time: all of it may be a gigabyte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from log_support import NOW_MS, LogMaker, append

from penstock.core.replica import producer_state
from penstock.core.replica.producer_state import ProducerEntry
from penstock.storage import scan, segment
from penstock.storage.log import Log
from penstock.storage.producers import snapshot
from penstock.storage.producers.replay import HEADERS_PER_TURN
from penstock.storage.settings import LogSettings

PRODUCER = 7


def long_log(logs: LogMaker) -> Log:
    """A log of one segment with many batches of one producer."""
    log = logs.open()
    for sequence in range(5 * HEADERS_PER_TURN):
        append(log, b"x", producer_id=PRODUCER, producer_epoch=0, sequence=sequence)
    log.flush()
    return log


@pytest.fixture
def headers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of headers that were read."""
    right, count = scan.header_in, [0]

    def header_in(*arguments: Any) -> Any:
        count[0] += 1
        return right(*arguments)

    monkeypatch.setattr(scan, "header_in", header_in)
    return count


def test_a_truncation_reads_few_headers_between_two_steps(logs: LogMaker, headers: list[int]) -> None:
    logs.settings = LogSettings(segment_bytes=1 << 20)
    log = long_log(logs)
    end_offset = log.end_offset - 20
    before, most, steps = headers[0], 0, 0
    for offset in log.truncation(end_offset, NOW_MS):
        assert offset == log.end_offset == end_offset
        log.flush()
        most, before, steps = max(most, headers[0] - before), headers[0], steps + 1
    assert steps > 4
    assert most <= HEADERS_PER_TURN + 20, "and those between two entries of the index"
    (entry,) = log.producers.entries
    assert (entry.last_sequence, log.producers.end_offset) == (end_offset - 1, end_offset)


def test_a_truncation_reads_few_batches_to_find_the_largest_timestamp(
    logs: LogMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All after the first record with that timestamp were read, in one turn."""
    logs.settings = LogSettings(segment_bytes=1 << 20)
    log = logs.open()
    for number in range(600):
        append(log, b"x" * 50, timestamp=NOW_MS + min(number, 1))
    log.flush()
    walked: list[int] = []

    def counted(*args: Any) -> Iterator[scan.BatchPlace]:
        for place in scan.walk(*args):
            walked.append(place.position)
            yield place

    monkeypatch.setattr(segment, "walk", counted)
    before = len(walked)
    assert log.truncate_to(550, NOW_MS)
    assert len(walked) - before < 150, "those between a few entries of the index"
    assert log.max_timestamp() == (NOW_MS + 1, 1, 0)
    append(log, b"x", timestamp=NOW_MS + 2)
    assert log.max_timestamp() == (NOW_MS + 2, 550, 0)
    assert logs.restart(log).max_timestamp() == (NOW_MS + 2, 550, 0)


def test_a_truncation_that_is_given_up_leaves_no_snapshot_of_half_the_producers(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_bytes=1 << 20)
    log = long_log(logs)
    steps = log.truncation(log.end_offset - 20, NOW_MS)
    next(steps)
    log.flush()
    end_offset = log.end_offset
    log.close()
    log = logs.open(clean=True, recovery_point=end_offset)
    (entry,) = log.producers.entries
    assert (log.end_offset, entry.last_sequence) == (end_offset, end_offset - 1)


def test_a_truncation_loads_many_producers_in_turns(logs: LogMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of all of them was loaded in one turn, which took seconds."""
    monkeypatch.setattr(producer_state, "ENTRIES_PER_TURN", 100)
    right, count = snapshot._entry, [0]

    def entry(fields: tuple[int, ...]) -> ProducerEntry:
        count[0] += 1
        return right(fields)

    monkeypatch.setattr(snapshot, "_entry", entry)
    logs.settings = LogSettings(segment_bytes=1 << 20)
    log = logs.open()
    for producer_id in range(1_000):
        append(log, b"x", producer_id=producer_id, producer_epoch=0, sequence=0)
    log.roll(NOW_MS)
    for number in range(10):
        append(log, b"x", producer_id=0, producer_epoch=0, sequence=number + 1)
    log.flush()
    expected = {one.producer_id: one.last_sequence for one in log.producers.entries} | {0: 5}
    before = most = 0
    for _ in log.truncation(1_005, NOW_MS):
        log.flush()
        assert len(list(log.producers.entries)) == 1_000
        most, before = max(most, count[0] - before), count[0]
    assert (count[0], most) == (1_000, 100)
    assert {one.producer_id: one.last_sequence for one in log.producers.entries} == expected
