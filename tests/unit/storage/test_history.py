"""Truncation, delete-records, retention and removal."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from log_support import NOW_MS, LogMaker, append, read_all

from penstock.core.lifecycle.retention import RetentionPlan, RetentionSettings, plan_retention
from penstock.model.errors import ApiError, ErrorCode
from penstock.storage.files import OsFilesystem, StorageError, storage_error
from penstock.storage.leader_epochs import UNDEFINED_EPOCH
from penstock.storage.log import Log
from penstock.storage.names import is_deletion_directory, parse_partition_directory
from penstock.storage.producers.snapshot import decode_snapshot
from penstock.storage.settings import LogSettings


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        number = log.end_offset
        append(
            log,
            b"%05d" % number + b"." * 150,
            timestamp=NOW_MS + number,
            epoch=number // 10,
            producer_id=1,
            producer_epoch=0,
            sequence=number,
        )


@pytest.mark.parametrize("offset", [39, 25, 11, 1, 0])
@pytest.mark.parametrize("reopen_first", [False, True])
def test_truncation_forgets_batches_epochs_and_producers(logs: LogMaker, offset: int, reopen_first: bool) -> None:
    log = logs.open()
    fill(log, 40)
    if reopen_first:
        log = logs.restart(log)
    assert log.truncate_to(offset, NOW_MS)
    for _ in range(2):
        assert log.end_offset == offset
        assert [record.offset for record in read_all(log)] == list(range(offset))
        assert log.epochs.latest == ((offset - 1) // 10 if offset else UNDEFINED_EPOCH)
        entry = log.producers.get(1)
        assert (entry.last_offset if entry else -1) == offset - 1
        latest = log.max_timestamp()
        assert (latest.offset if latest else -1) == offset - 1
        log = logs.crash(log, recovery_point=40)
    fill(log, 40 - offset)
    assert [record.offset for record in read_all(logs.crash(log))] == list(range(40))


def test_truncation_in_mid_batch_takes_the_whole_batch(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"a", b"b")
    append(log, b"c", b"d", b"e")
    assert log.truncate_to(4)
    assert log.end_offset == 2
    assert append(log, b"C") == 2


def test_truncation_past_the_end_drops_only_an_epoch_without_batches(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"a", epoch=1)
    log.assign_epoch(2, 1)
    assert not log.truncate_to(7)
    assert (log.end_offset, log.epochs.latest) == (1, 1)


def test_truncation_lowers_what_counts_as_durable(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 10)
    log.flush()
    log.truncate_to(5)
    assert log.flushed_offset == 5


def test_starting_over_at_an_offset(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 40)
    log.truncate_fully_and_start_at(1000, NOW_MS)
    for _ in range(2):
        assert (log.start_offset, log.end_offset, log.size_bytes, len(log.producers)) == (1000, 1000, 0, 0)
        assert log.epochs.entries == ()
        log = logs.crash(log)
    assert append(log, b"x") == 1000


def test_starting_over_without_room_for_a_new_segment_changes_nothing(
    logs: LogMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.open()
    fill(log, 40)

    def refuse(_disk: object, path: Path, _data: object) -> None:
        raise storage_error("open", path, OSError(errno.ENOSPC, "No space left on device"))

    with monkeypatch.context() as full:
        full.setattr(OsFilesystem, "write_file", refuse)
        with pytest.raises(StorageError):
            log.truncate_fully_and_start_at(1000, NOW_MS)
    assert [record.offset for record in read_all(log)] == list(range(40))
    log.roll(NOW_MS)
    fill(log, 1)
    log.truncate_fully_and_start_at(1000, NOW_MS)
    assert (append(log, b"x"), logs.files(".tmp")) == (1000, [])


def test_truncation_below_the_first_segment_starts_over(logs: LogMaker) -> None:
    log = logs.open(start_offset=100)
    append(log, b"a")
    assert log.truncate_to(50)
    assert (log.start_offset, log.end_offset) == (50, 50)


def test_a_tiered_log_that_is_cut_to_before_its_disk_knows_the_epochs_of_the_tier(logs: LogMaker) -> None:
    logs.settings = replace(logs.settings, tiered=True)
    log = logs.open()
    fill(log, 40)
    older = frozenset(one.base_offset for one in log.segment_facts()[:-1])
    log.delete_segments(RetentionPlan(older, 0, copied_offset=40), NOW_MS)
    assert (log.start_offset, log.local_start_offset > 26) == (0, True)
    assert log.truncate_to(26, NOW_MS)
    for _ in range(2):
        assert (log.start_offset, log.local_start_offset, log.end_offset) == (0, 26, 26)
        assert log.epochs.entries == ((0, 0), (1, 10), (2, 20))
        log = logs.crash(log)
    # Where nothing of the log is left, nothing is known of its epochs either.
    log.truncate_fully_and_start_at(50, NOW_MS)
    assert log.epochs.entries == ()


def test_a_snapshot_that_is_lost_or_damaged_is_made_anew_for_the_tier(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 3)
    append(log, b"open", producer_id=2, producer_epoch=5, sequence=0, transactional=True)
    fill(log, 40)
    facts = log.segment_facts()
    whole = [log.tier_copy(one.base_offset) for one in facts[:3]]
    for number in range(1, 4):
        path = logs.directory / f"{facts[number].base_offset:020d}.snapshot"
        assert path.exists()
        if number == 2:
            path.write_bytes(path.read_bytes()[:-1] + b"?")
        else:
            path.unlink()
    for number, before in enumerate(whole):
        after = log.tier_copy(facts[number].base_offset)
        assert before is not None
        assert after is not None
        assert before.sound_snapshot() == before.snapshot
        if number == 0:
            # But for when they appended, of which the records tell nothing.
            made_anew, known = (
                [
                    (entry.producer_id, entry.last_sequence, entry.last_offset, entry.transaction_first_offset)
                    for entry in decode_snapshot(one.sound_snapshot())
                ]
                for one in (after, before)
            )
            assert made_anew == known
        producers = {entry.producer_id: entry.last_offset for entry in decode_snapshot(after.sound_snapshot())}
        assert producers[1] == after.end_offset - 1
        # Known from the first segment, and forgotten where nothing tells of it.
        assert producers.get(2) == (3 if number == 0 else None)


def test_deleted_records_cannot_be_read_and_their_segments_go(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 40)
    assert log.advance_start_offset(23)
    assert not log.advance_start_offset(20)
    with pytest.raises(ApiError) as caught:
        log.read(22, 1000)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.offset for record in read_all(log)] == list(range(23, 40))
    assert log.epochs.entries[0] == (2, 23)
    plan = plan_retention(
        log.segment_facts(), RetentionSettings(delete=False), NOW_MS, high_watermark=40, log_start_offset=23
    )
    log.delete_segments(plan, NOW_MS)
    assert log.segment_facts()[0].base_offset <= 23 < log.segment_facts()[0].end_offset
    assert log.start_offset == 23
    with pytest.raises(ApiError):
        log.advance_start_offset(41)


def test_expired_segments_are_set_aside_and_removed_after_the_delay(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_bytes=2000, file_delete_delay_ms=60_000)
    log = logs.open()
    fill(log, 40)
    taken = log.read(0, 500)
    now_ms = NOW_MS + 1000
    facts = log.segment_facts()
    plan = plan_retention(facts, RetentionSettings(retention_ms=980), now_ms, high_watermark=40, log_start_offset=0)
    expected = [each for each in facts if each.max_timestamp_ms < now_ms - 980]
    assert plan.delete == {each.base_offset for each in expected}
    assert log.delete_segments(plan, now_ms) == sum(each.size_bytes for each in expected) == plan.bytes_freed
    assert log.start_offset == plan.start_offset == expected[-1].end_offset
    assert len(logs.files(".log.deleted")) == len(expected)
    assert log.reap(now_ms + 59_999) == 0
    assert log.reap(now_ms + 60_000) > 0
    assert not logs.files(".deleted")
    assert len(taken.read()) == taken.size
    assert [record.offset for record in read_all(logs.crash(log))] == list(range(plan.start_offset, 40))


def test_a_log_whose_records_have_all_expired_keeps_its_end(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 5)
    plan = plan_retention(
        log.segment_facts(), RetentionSettings(retention_ms=0), NOW_MS + 10**6, high_watermark=5, log_start_offset=0
    )
    log.delete_segments(plan, NOW_MS)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (5, 5, 0)
    log = logs.crash(log)
    assert (log.start_offset, log.end_offset) == (5, 5)
    assert append(log, b"x") == 5


def test_records_without_timestamps_expire_by_when_they_were_written(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"a", timestamp=-1)
    path = logs.directory / log._active.name
    assert log.segment_facts()[0].max_timestamp_ms == path.stat().st_mtime_ns // 1_000_000


def test_asking_for_facts_keeps_nothing_open(logs: LogMaker) -> None:
    log = logs.open()
    fill(log, 40)
    log = logs.restart(log)
    first = log.segment_facts()
    assert not any(segment.is_open for segment in log._segments)
    for path in logs.directory.glob("*index"):
        path.unlink()
    assert log.segment_facts() == first


def test_a_deleted_log_leaves_its_name_free(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"a")
    taken = log.read(0, 1000)
    target = log.delete_directory(bytes(range(16)))
    assert target.name == "events-0.000102030405060708090a0b0c0d0e0f-delete"
    assert is_deletion_directory(target.name)
    assert parse_partition_directory(target.name) is None
    assert not logs.directory.exists()
    again = logs.open()
    assert again.end_offset == 0
    logs.filesystem.remove_directory(target)
    assert not target.exists()
    assert len(taken.read()) == taken.size


@pytest.mark.parametrize(
    ("name", "expected"),
    [("events-0", ("events", 0)), ("a-b-12", ("a-b", 12)), ("events", None), ("-1", None), ("a b-1", None)],
)
def test_directory_names(name: str, expected: tuple[str, int] | None) -> None:
    assert parse_partition_directory(name) == expected


def test_a_deletion_directory_of_a_long_name_still_fits_the_file_system(tmp_path: Path) -> None:
    logs = LogMaker(tmp_path)
    logs.directory = tmp_path / ("t" * 249 + "-0")
    target = logs.open().delete_directory(bytes(16))
    assert target.is_dir()
    assert is_deletion_directory(target.name)
