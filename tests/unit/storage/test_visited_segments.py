"""What reads segments now and then leaves none of them open, whether it succeeds or not."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from unittest.mock import patch

import pytest
from log_support import NOW_MS, LogMaker, append

from penstock.storage.files import OsFile, StorageError, storage_error
from penstock.storage.log import Log

VISITS: list[Callable[[Log], object]] = [
    lambda log: log.offset_for_timestamp(NOW_MS + 55),
    lambda log: log.max_timestamp(),
    lambda log: log.segment_facts(),
    lambda log: log.earliest_timestamp(0),
    lambda log: log.tier_copy(10),
]


def filled(logs: LogMaker) -> Log:
    """A log of seven segments, none of which is open."""
    log = logs.open()
    for number in range(70):
        append(log, b"value", timestamp=NOW_MS + number, producer_id=number, producer_epoch=0, sequence=0)
        if number % 10 == 9:
            log.roll(NOW_MS)
    return logs.restart(log)


def open_count(log: Log) -> int:
    return sum(segment.is_open for segment in log._segments)


@pytest.mark.parametrize("visit", VISITS)
@pytest.mark.parametrize("fails", [False, True])
def test_a_visit_leaves_no_segment_open(logs: LogMaker, visit: Callable[[Log], object], fails: bool) -> None:
    log = filled(logs)
    error = storage_error("read", logs.directory, OSError(errno.EIO, "Input/output error"))
    with patch.object(OsFile, "read", side_effect=error) if fails else contextlib.nullcontext():
        with pytest.raises(StorageError) if fails else contextlib.nullcontext():
            visit(log)
        assert open_count(log) == 0


def test_a_start_that_reads_producers_again_leaves_no_segment_open(logs: LogMaker) -> None:
    log = filled(logs)
    log.close()
    for name in logs.files(".snapshot"):
        (logs.directory / name).unlink()
    log = logs.open(clean=True, recovery_point=70)
    assert len(log.producers) == 70
    assert open_count(log) == 0


def test_a_segment_that_is_rolled_is_closed(logs: LogMaker) -> None:
    log = logs.open()
    for _ in range(3):
        append(log, b"value")
        log.roll(NOW_MS)
        assert log._active.is_open
        assert open_count(log) == 1


def test_the_segment_that_was_opened_the_longest_ago_is_closed(logs: LogMaker) -> None:
    log = filled(logs)
    for number in range(6):
        log.read(10 * number, 100).read()
    assert [segment.is_open for segment in log._segments] == [False, False, True, True, True, True, False, False]


def test_the_largest_timestamps_of_segments_are_known_after_a_restart(logs: LogMaker) -> None:
    log = filled(logs)
    assert [segment.max_timestamp_offset for segment in log._segments[:3]] == [9, 19, 29]
    assert [facts.max_timestamp_ms for facts in log.segment_facts()][:7] == [
        NOW_MS + 10 * end - 1 for end in range(1, 8)
    ]
