"""Cleaned segments take the place of those that they were made from, unless the log has changed under them."""

from __future__ import annotations

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
from penstock.storage.files import OsFilesystem


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
