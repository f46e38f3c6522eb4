"""Appending and reading: offsets, limits, segments."""

from __future__ import annotations

import pytest
from log_support import NOW_MS, LogMaker, Stored, append, headers_of, make_batch, read_all

from penstock.model.errors import ApiError, ErrorCode
from penstock.storage.leader_epochs import EpochEntry
from penstock.storage.segment_copy import TierHistory
from penstock.storage.settings import LogSettings
from penstock.wire.records import read_header


def test_what_is_appended_is_read_back(logs: LogMaker) -> None:
    log = logs.open()
    assert append(log, b"a", b"b") == 0
    assert append(log, b"c") == 2
    assert log.end_offset == 3
    assert read_all(log) == [Stored(0, b"a"), Stored(1, b"b"), Stored(2, b"c")]


def test_several_batches_are_appended_in_one_write(logs: LogMaker) -> None:
    log = logs.open()
    data = make_batch(0, [b"a"]) + make_batch(1, [b"b", b"c"]) + make_batch(3, [b"d"])
    log.append(headers_of(data), data, NOW_MS)
    assert log.end_offset == 4
    assert [record.value for record in read_all(log, 2)] == [b"c", b"d"]


def test_an_offset_in_mid_batch_gets_the_whole_batch(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"a", b"b", b"c")
    header = read_header(log.read(1, 1000).read())
    assert (header.base_offset, header.last_offset) == (0, 2)


def test_reading_at_the_end_gives_nothing_and_outside_an_error(logs: LogMaker) -> None:
    log = logs.open(start_offset=10)
    append(log, b"a")
    assert log.read(11, 1000).size == 0
    assert log.read(11, 1000).read() == b""
    for offset in (9, 12, -1):
        with pytest.raises(ApiError) as caught:
            log.read(offset, 1000)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("offset_max", range(7))
def test_nothing_at_or_past_the_limit_is_read(logs: LogMaker, offset_max: int) -> None:
    log = logs.open()
    for value in (b"a", b"b", b"c"):
        append(log, value, value)
    whole_batches = offset_max // 2 * 2
    assert len(read_all(log, 0, offset_max=offset_max)) == whole_batches


def test_a_slice_ends_between_batches_and_within_the_size(logs: LogMaker) -> None:
    log = logs.open()
    for _ in range(8):
        append(log, b"x" * 50)
    size = log.size_bytes // 8
    for size_max in range(size, 6 * size, 7):
        taken = log.read(0, size_max)
        assert taken.size % size == 0
        # It may stop at the index entry before the limit, but never at nothing.
        assert max(0, size_max - size - logs.settings.index_interval_bytes) < taken.size <= size_max


def test_a_batch_larger_than_the_size_comes_only_if_one_is_wanted(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"x" * 500)
    append(log, b"y")
    assert log.read(0, 100, minimum_one_batch=False).size == 0
    assert read_header(log.read(0, 100).read()).last_offset == 0
    assert len(headers_of(log.read(0, 100).read())) == 1


def test_segments_roll_by_size(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(40):
        append(log, b"%03d" % number + b"." * 150)
    assert log.segment_count > 3
    assert all(facts.size_bytes <= 2000 for facts in log.segment_facts())
    assert [record.offset for record in read_all(log)] == list(range(40))
    assert [record.offset for record in read_all(log, 17)] == list(range(17, 40))


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"x" * 3000)
    append(log, b"y" * 3000)
    assert [facts.base_offset for facts in log.segment_facts()] == [0, 1]
    assert len(read_all(log)) == 2


def test_segments_roll_by_the_age_of_their_records(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_ms=1000)
    log = logs.open()
    append(log, b"a", timestamp=5000)
    append(log, b"b", timestamp=6000)
    assert log.segment_count == 1
    append(log, b"c", timestamp=6001)
    assert [facts.base_offset for facts in log.segment_facts()] == [0, 2]


def test_segments_of_records_without_timestamps_roll_by_the_clock(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_ms=1000)
    log = logs.open()
    append(log, b"a", timestamp=-1, now_ms=NOW_MS + 900)
    append(log, b"b", timestamp=-1, now_ms=NOW_MS + 1000)
    assert log.segment_count == 1
    append(log, b"c", timestamp=-1, now_ms=NOW_MS + 1001)
    assert log.segment_count == 2


def test_a_quiet_segment_rolls_after_segment_ms(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_ms=1000)
    log = logs.open()
    assert not log.roll_if_due(NOW_MS + 5000)
    append(log, b"a", timestamp=NOW_MS)
    assert not log.roll_if_due(NOW_MS + 1000)
    assert log.roll_if_due(NOW_MS + 1001)
    assert log.segment_count == 2
    assert append(log, b"b") == 1


def test_jitter_spreads_rolls_and_is_the_same_after_a_restart(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_ms=1000, segment_jitter_ms=900)

    def rolls_after_ms() -> int:
        log = logs.open()
        append(log, b"a", timestamp=NOW_MS)
        due = next(ms for ms in range(1, 1002) if log.roll_if_due(NOW_MS + ms))
        log.truncate_fully_and_start_at(0)
        return due

    first = rolls_after_ms()
    assert 100 < first <= 1001
    assert rolls_after_ms() == first


def test_segments_roll_when_an_index_is_full(logs: LogMaker) -> None:
    logs.settings = LogSettings(index_interval_bytes=0, segment_index_bytes=36)
    log = logs.open()
    for number in range(10):
        append(log, b"x", timestamp=NOW_MS + number)
    assert log.segment_count > 2
    assert len(read_all(log)) == 10


def test_segments_roll_before_offsets_outgrow_the_index(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"a")
    far = 2**31 + 5
    data = make_batch(far, [b"b"])
    log.append(headers_of(data), data, NOW_MS)
    assert [facts.base_offset for facts in log.segment_facts()] == [0, far]
    assert read_all(log, 1) == [Stored(far, b"b")]


def test_settings_take_effect_with_the_next_append(logs: LogMaker) -> None:
    logs.settings = LogSettings()
    log = logs.open()
    append(log, b"x" * 500)
    log.settings = LogSettings(segment_bytes=600)
    append(log, b"x" * 500)
    assert log.segment_count == 2


def test_offsets_that_go_back_are_a_bug_and_change_nothing(logs: LogMaker) -> None:
    log = logs.open(start_offset=5)
    data = make_batch(4, [b"a"])
    with pytest.raises(ValueError, match="before the log's end"):
        log.append(headers_of(data), data, NOW_MS)
    data = make_batch(5, [b"a"])
    with pytest.raises(ValueError, match="describe"):
        log.append(headers_of(data), data + b"x", NOW_MS)
    assert log.size_bytes == 0


def test_gaps_left_by_compaction_are_read_over(logs: LogMaker) -> None:
    """A follower copies a compacted log: batches keep their ranges, records and whole batches are missing."""
    log = logs.open()
    kept = [0, 1, 7, 8, 30, 31, 100, 101, 102, 500, 900, 901]
    for offset in kept:
        data = make_batch(offset, [b"%d" % offset + b"." * 200])
        log.append(headers_of(data), data, NOW_MS)
    assert log.segment_count > 1
    for reopened in (False, True):
        if reopened:
            log = logs.restart(log)
        for offset in range(902):
            expected = [each for each in kept if each >= offset]
            got = read_header(log.read(offset, 10).read()).base_offset
            assert got == expected[0]
        assert [record.offset for record in read_all(log)] == kept
        assert [record.offset for record in read_all(log, 0, offset_max=101)] == [each for each in kept if each < 101]


def test_readers_far_behind_leave_few_files_open(logs: LogMaker) -> None:
    log = logs.open()
    for _ in range(60):
        append(log, b"x" * 300)
    assert log.segment_count >= 10
    read_all(log)
    assert sum(segment.is_open for segment in log._segments) <= 5


def test_a_slice_outlives_its_segment(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"keep me")
    taken = log.read(0, 1000)
    log.truncate_fully_and_start_at(0)
    log.close()
    assert b"keep me" in taken.read()


def test_offsets_are_found_before_and_within_the_newest_batches(logs: LogMaker) -> None:
    """Far more batches than are remembered by position, in one segment."""
    logs.settings = LogSettings(index_interval_bytes=1000)
    log = logs.open()
    for number in range(400):
        append(log, b"%d" % number, b"second")
    for offset in range(800):
        assert read_header(log.read(offset, 1).read()).base_offset == offset // 2 * 2


def test_positions_from_before_a_truncation_are_forgotten(logs: LogMaker) -> None:
    logs.settings = LogSettings(index_interval_bytes=150)
    log = logs.open()
    for number in range(20):
        append(log, b"%d" % number * 30)
    # Readers leave hints all over the segment.
    for size_max in (100, 300, 700):
        assert len(read_all(log, size_max=size_max)) == 20
    log.truncate_to(5)
    assert [record.offset for record in read_all(log)] == list(range(5))
    for number in range(5, 200):
        append(log, b"other" * (number % 30))
    # Backwards where the old hints are, because each read leaves a new one for the offset after it.
    for offset in [*reversed(range(20)), *range(20, 200)]:
        assert read_header(log.read(offset, 1).read()).base_offset == offset


def test_an_index_entry_comes_after_more_than_the_interval(logs: LogMaker) -> None:
    """Kafka's rule: the batch that starts more than the interval after the last entry's batch gets the next one."""
    size = len(make_batch(0, [b"x"]))
    logs.settings = LogSettings(index_interval_bytes=size)
    log = logs.open()
    for _ in range(7):
        append(log, b"x")
    log.close()
    index = (logs.directory / "00000000000000000000.index").read_bytes()
    entries = [(index[at + 3], int.from_bytes(index[at + 4 : at + 8], "big")) for at in range(0, len(index), 8)]
    assert entries == [(2, 2 * size), (4, 4 * size), (6, 6 * size)]


def test_a_log_that_was_truncated_to_its_beginning_has_forgotten_its_age(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_ms=1_000)
    log = logs.open()
    append(log, b"old")
    log.truncate_to(0)
    for number in range(2):
        append(log, b"new", now_ms=NOW_MS + 60_000, timestamp=NOW_MS + 60_000 + number)
    assert log.segment_count == 1


def test_epochs_that_a_log_takes_from_the_tier_survive_a_crash(logs: LogMaker) -> None:
    logs.settings = LogSettings(tiered=True)
    log = logs.open()
    history = TierHistory((EpochEntry(1, 0), EpochEntry(4, 30), EpochEntry(6, 90)), ())
    log.start_from_tier(50, 0, history, NOW_MS)
    known = log.epochs.entries
    assert [entry.epoch for entry in known] == [1, 4]
    assert logs.open().epochs.entries == known


def test_epochs_of_a_log_that_starts_earlier_in_the_tier_than_it_did_stay(logs: LogMaker) -> None:
    logs.settings = LogSettings(tiered=True)
    log = logs.open()
    for _ in range(5):
        append(log, b"record")
    log.advance_start_offset(4)
    log.note_durable_start(4)
    history = TierHistory((EpochEntry(1, 0), EpochEntry(4, 30)), ())
    log.start_from_tier(50, 2, history, NOW_MS)
    log.note_durable_start(2)
    assert log.durable_start_offset == 2
    assert [entry.epoch for entry in log.epochs.entries] == [1, 4]
    assert log.epochs.entries[0].start_offset <= 2
