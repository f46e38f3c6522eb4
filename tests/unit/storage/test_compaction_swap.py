"""Cleaned segments take the place of those that they were made from, unless the log has changed under them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from compaction_support import (
    clean,
    compact,
    make_job,
    pairs,
    put,
    swap_in,
)
from log_support import NOW_MS, LogMaker

from penstock.core.lifecycle.retention import RetentionPlan
from penstock.storage.compaction.clean import Compaction
from penstock.storage.compaction.swap import CleanedSegment
from penstock.storage.files import OsFilesystem, StorageError, storage_error
from penstock.storage.log import Log


def test_a_cleaned_segment_is_refused_when_history_changed(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    put(log, (b"a", b"2"))
    generation = log.generation
    (cleaned,) = Compaction(make_job(log), OsFilesystem(), lambda _: None).run()
    log.truncate_to(1, NOW_MS)
    assert log.begin_swap(cleaned, generation) is None
    assert logs.files(".cleaned") == []
    assert pairs(log) == [(0, b"a", b"1")]


def test_a_cleaned_segment_is_refused_when_retention_took_its_sources(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(3):
        put(log, (b"a", b"%d" % number))
        log.roll(NOW_MS)
    (cleaned,) = Compaction(make_job(log), OsFilesystem(), lambda _: None).run()
    log.delete_segments(RetentionPlan(frozenset({0}), 1), NOW_MS)
    assert log.begin_swap(cleaned, log.generation) is None
    assert [offset for offset, _, _ in pairs(log)] == [1, 2]


@pytest.mark.parametrize("change", ["truncate", "retention"])
def test_a_swap_is_given_up_when_the_log_changes_before_it_is_applied(logs: LogMaker, change: str) -> None:
    log = logs.open()
    for number in range(3):
        put(log, (b"a", b"%d" % number))
        log.roll(NOW_MS)
    (cleaned,) = Compaction(make_job(log), OsFilesystem(), lambda _: None).run()
    swap = log.begin_swap(cleaned, log.generation)
    assert swap is not None
    if change == "truncate":
        log.truncate_to(2, NOW_MS)
    else:
        log.delete_segments(RetentionPlan(frozenset({0}), 1), NOW_MS)
    assert not log.apply_swap(swap, NOW_MS)
    assert logs.files(".swap") == []
    expected = [0, 1] if change == "truncate" else [1, 2]
    assert [offset for offset, _, _ in pairs(log)] == expected
    assert [offset for offset, _, _ in pairs(logs.crash(log))] == expected


def test_slices_of_replaced_segments_stay_readable_and_their_files_go_in_time(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"old"))
    put(log, (b"a", b"new"))
    log.roll(NOW_MS)
    before = log.read(0, 10_000)
    compact(log)
    assert len(before.read()) == before.size
    assert logs.files(".deleted") != []
    assert log.reap(NOW_MS + log.settings.file_delete_delay_ms - 1) == 0
    assert log.reap(NOW_MS + log.settings.file_delete_delay_ms) == 3
    assert logs.files(".deleted") == []
    assert len(before.read()) == before.size


def test_the_segment_is_readable_before_it_has_its_name(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(30):
        put(log, (b"k%d" % (number % 3), b"v%d" % number))
    log.roll(NOW_MS)
    seen: list[list[tuple[int, bytes | None, bytes | None]]] = []

    def look(_: str) -> None:
        for segment in log._segments:
            segment.release()
        seen.append(pairs(log))

    clean(log, make_job(log, segment_bytes=100_000), look)
    assert [len(each) for each in seen] == [30, 30, 3, 3]


def test_the_segment_that_awaits_its_name_can_be_deleted_and_truncated(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(3):
        put(log, (b"k%d" % number, b"1"))
        log.roll(NOW_MS)

    def change(step: str) -> None:
        if step == "applied":
            log.truncate_to(2, NOW_MS)
            put(log, (b"again", b"1"))

    clean(log, make_job(log), change)
    assert [key for _, key, _ in pairs(log)] == [b"k0", b"k1", b"again"]
    log = logs.crash(log)
    assert [key for _, key, _ in pairs(log)] == [b"k0", b"k1", b"again"]


def test_idle_segments_roll_by_the_age_that_compaction_allows(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"1"))
    assert not log.roll_if_due(NOW_MS + 100, 100)
    assert log.roll_if_due(NOW_MS + 101, 100)
    assert not log.roll_if_due(NOW_MS + 1000, 100)
    assert log.earliest_timestamp(0) == NOW_MS
    assert log.earliest_timestamp(1) is None


def test_swapping_twice_in_a_row(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(4):
        put(log, (b"k%d" % (number % 2), b"%d" % number))
        log.roll(NOW_MS)
    for cleaned in Compaction(make_job(log, segment_bytes=200), OsFilesystem(), lambda _: None).run():
        swap_in(log, cleaned, log.generation)
    assert [offset for offset, _, _ in pairs(log)] == [2, 3]
    assert logs.files(".swap") == logs.files(".cleaned") == []


def three_segments(logs: LogMaker) -> Log:
    log = logs.open()
    for number in range(3):
        put(log, (b"a", b"%d" % number))
        log.roll(NOW_MS)
    return log


def cleaned_of(log: Log, **options: int) -> CleanedSegment:
    return next(Compaction(make_job(log, **options), OsFilesystem(), lambda _: None).run())


def assert_same_after_two_starts(logs: LogMaker, log: Log) -> None:
    expected = pairs(log)
    for _ in range(2):
        log = logs.crash(log)
        assert pairs(log) == expected
    assert logs.files(".swap") == []


def test_a_swap_that_was_left_half_done_is_given_up_before_another_one(logs: LogMaker) -> None:
    """It stayed beside the next one, and a start had its segment in the middle of the log again."""
    log = three_segments(logs)
    middle = make_job(log, 0)
    middle = replace(middle, segments=middle.segments[1:])
    (cleaned,) = Compaction(middle, OsFilesystem(), lambda _: None).run()
    assert log.begin_swap(cleaned, log.generation) is not None
    put(log, (b"a", b"3"))
    log.roll(NOW_MS)
    compact(log, segment_bytes=100_000)
    assert [offset for offset, _, _ in pairs(log)] == [3]
    assert_same_after_two_starts(logs, log)


def test_files_that_could_not_be_set_aside_are_before_the_next_swap(logs: LogMaker) -> None:
    """The next cleaning read the old file, and brought back what the first had removed."""
    log = three_segments(logs)
    swap = log.begin_swap(cleaned_of(log), log.generation)
    assert swap is not None
    with refusing("rename", ".log"), pytest.raises(StorageError):
        log.apply_swap(swap, NOW_MS)
    assert log.apply_swap(swap, NOW_MS)
    swap.sync()
    log.finish_swap(swap)
    assert [offset for offset, _, _ in pairs(log)] == [2]
    put(log, (b"b", b"1"))
    log.roll(NOW_MS)
    compact(log)
    assert [offset for offset, _, _ in pairs(log)] == [2, 3]
    assert_same_after_two_starts(logs, log)


def test_a_segment_gets_its_name_although_that_failed_once(logs: LogMaker) -> None:
    log = three_segments(logs)
    swap = log.begin_swap(cleaned_of(log), log.generation)
    assert swap is not None
    assert log.apply_swap(swap, NOW_MS)
    for kind in (".log.swap", ".index.swap"):
        with refusing("rename", kind), pytest.raises(StorageError):
            log.finish_swap(swap)
        assert [offset for offset, _, _ in pairs(log)] == [2]
    log.finish_swap(swap)
    assert ".log.swap" not in str(logs.files(".swap"))
    assert_same_after_two_starts(logs, log)


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("change", ["truncate", "restart", "retention"])
def test_nothing_is_removed_beside_a_swap_that_a_start_would_finish(
    logs: LogMaker, change: str, *, applied: bool
) -> None:
    """A start brought back what was truncated or deleted."""
    log = three_segments(logs)
    swap = log.begin_swap(cleaned_of(log), log.generation)
    assert swap is not None
    if applied:
        with refusing("rename", ".log"), pytest.raises(StorageError):
            log.apply_swap(swap, NOW_MS)
    with refusing("rename" if applied else "unlink", ".log" if applied else ".swap"), pytest.raises(StorageError):
        change_log(log, change)
    assert [offset for offset, _, _ in pairs(log)] == ([2] if applied else [0, 1, 2])
    change_log(log, change)
    assert log.apply_swap(swap, NOW_MS) is False
    assert_same_after_two_starts(logs, log)


def change_log(log: Log, change: str) -> None:
    if change == "truncate":
        log.truncate_to(2, NOW_MS)
    elif change == "restart":
        log.truncate_fully_and_start_at(7, NOW_MS)
    else:
        log.delete_segments(RetentionPlan(frozenset({0}), 3), NOW_MS)


@contextmanager
def refusing(action: str, suffix: str) -> Iterator[None]:
    """A disk that does not rename or unlink files with a suffix, for now."""
    known: Callable[..., None] = getattr(OsFilesystem, action)

    def refuse(filesystem: OsFilesystem, path: Path, *others: Path) -> None:
        if path.name.endswith(suffix):
            raise storage_error(action, path, OSError(errno.ENOSPC, "No space left on device"))
        known(filesystem, path, *others)

    with patch.object(OsFilesystem, action, refuse):
        yield
