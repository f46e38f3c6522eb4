"""What is left of a log after cleaning: the latest record of each key, in place, with all that hangs on a batch."""

from __future__ import annotations

import pytest
from compaction_support import (
    DELETE_RETENTION_MS,
    batches,
    compact,
    make_job,
    pairs,
    put,
    records,
)
from faulty_filesystem import FaultyFilesystem
from log_support import NOW_MS, LogMaker, make_marker

from penstock.storage.compaction import clean
from penstock.storage.compaction.clean import Compaction, CompactionError
from penstock.storage.files import OsFile, OsFilesystem
from penstock.storage.log import Log
from penstock.storage.settings import LogSettings
from penstock.wire.records import Compression, Record, build_batch, read_header

LATER_MS = NOW_MS + DELETE_RETENTION_MS


def append_batch(log: Log, data: bytes) -> None:
    log.append([read_header(data)], data, NOW_MS)


def test_the_latest_value_of_each_key_stays_where_it_was(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(60):
        put(log, (b"k%d" % (number % 4), b"v%d" % number))
    log.roll(NOW_MS)
    assert log.segment_count > 3
    before = {record.offset: record for record in records(log)}
    report = compact(log)
    assert pairs(log) == [(number, b"k%d" % (number % 4), b"v%d" % number) for number in range(56, 60)]
    assert all(before[record.offset] == record for record in records(log))
    assert (report.end_offset, report.records_read, report.records_kept) == (60, 60, 4)
    assert log.end_offset == 60


def test_the_newest_segment_is_not_touched_but_supersedes_nothing_yet(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    put(log, (b"a", b"2"), (b"a", b"3"))
    compact(log)
    assert pairs(log) == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]


def test_only_what_is_stable_is_cleaned(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(3):
        put(log, (b"a", b"%d" % number), (b"a", b"again"))
        log.roll(NOW_MS)
    report = compact(log, end_offset=5)
    assert report.end_offset == 4
    assert [offset for offset, _, _ in pairs(log)] == [3, 4, 5]


def test_records_without_a_key_go(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (None, b"from before the topic was compacted"), (b"a", b"1"))
    log.roll(NOW_MS)
    compact(log)
    assert pairs(log) == [(1, b"a", b"1")]


@pytest.mark.parametrize("compression", list(Compression))
def test_a_thinned_batch_keeps_range_codec_epoch_and_sequences(logs: LogMaker, compression: int) -> None:
    log = logs.open()
    put(
        log,
        *[(b"k%d" % (number % 2), b"v" * 30) for number in range(6)],
        compression=compression,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
    )
    put(log, (b"k1", b"newer"))
    log.roll(NOW_MS)
    compact(log)
    header, found = next(batches(log))
    assert [(record.offset, record.timestamp, record.key) for record in found] == [(4, NOW_MS + 4, b"k0")]
    assert (header.base_offset, header.last_offset, header.compression) == (0, 5, compression)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert (header.last_sequence, header.max_timestamp) == (45, NOW_MS + 4)


def test_a_batch_that_changes_nothing_is_copied_byte_for_byte(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"1"), (b"b", b"2"), compression=Compression.ZSTD)
    log.roll(NOW_MS)
    before = log.read(0, 10_000).read()
    compact(log)
    assert log.read(0, 10_000).read() == before


def test_a_tombstone_is_dated_by_the_first_cleaning_and_goes_when_its_time_has_come(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None), (b"c", b"1"))
    log.roll(NOW_MS)
    report = compact(log)
    assert report.latest_horizon_ms == LATER_MS
    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    header, found = list(batches(log))[1]
    assert (header.delete_horizon, header.max_timestamp) == (LATER_MS, NOW_MS + 1)
    assert [record.timestamp for record in found] == [NOW_MS, NOW_MS + 1]
    early = compact(log, report.end_offset, now_ms=LATER_MS - 1)
    assert (len(pairs(log)), early.latest_horizon_ms) == (3, LATER_MS)
    assert next(header for header, _ in list(batches(log))[1:]).delete_horizon == LATER_MS
    late = compact(log, report.end_offset, now_ms=LATER_MS)
    assert (pairs(log), late.latest_horizon_ms) == ([(1, b"b", b"1"), (3, b"c", b"1")], -1)
    assert records(log)[1].timestamp == NOW_MS + 1


def test_a_tombstone_that_is_superseded_goes_at_once(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", None))
    put(log, (b"a", b"back"))
    log.roll(NOW_MS)
    assert compact(log).latest_horizon_ms == -1
    assert pairs(log) == [(1, b"a", b"back")]


def test_timestamps_set_by_the_broker_outlive_a_delete_horizon(logs: LogMaker) -> None:
    log = logs.open()
    found = [Record(0, NOW_MS, b"a", None), Record(1, NOW_MS, b"b", b"1")]
    append_batch(log, build_batch(found, leader_epoch=0, timestamp_type=1))  # type: ignore[arg-type]
    log.roll(NOW_MS)
    compact(log)
    assert records(log) == found
    assert next(batches(log))[0].delete_horizon == LATER_MS


def test_the_last_batch_of_an_active_producer_stays_as_an_empty_one(logs: LogMaker) -> None:
    log = logs.open()
    for producer_id, timestamp in ((7, NOW_MS), (8, NOW_MS + 10)):
        for sequence in (0, 1):
            ids = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            put(log, (b"a", b"1"), timestamp=timestamp, **ids)
    put(log, (b"a", b"2"))
    log.roll(NOW_MS)
    # Producer 7 is forgotten, and with it goes what was kept for it.
    seven = log.producers.get(7)
    assert seven is not None
    seven.last_timestamp -= 10
    assert log.producers.expire(seven.last_timestamp + 10, 10) == 1
    compact(log)
    shells = [(header.producer_id, header.base_offset, header.records_count) for header, _ in batches(log)]
    assert shells == [(8, 3, 0), (-1, 4, 1)]


def test_an_emptied_batch_keeps_the_producers_last_sequence_after_a_crash(logs: LogMaker) -> None:
    log = logs.open()
    for sequence in (0, 3):
        put(log, *[(b"a", b"1")] * 3, producer_id=7, producer_epoch=1, base_sequence=sequence)
    put(log, (b"a", b"2"))
    log.roll(NOW_MS)
    log.flush()
    compact(log)
    assert [(header.base_offset, header.last_offset, len(found)) for header, found in batches(log)] == [
        (3, 5, 0),
        (6, 6, 1),
    ]
    for snapshot in logs.files(".snapshot"):
        (logs.directory / snapshot).unlink()
    log = logs.crash(log, recovery_point=0)
    entry = log.producers.get(7)
    assert entry is not None
    assert (entry.producer_epoch, entry.last_sequence, entry.last_offset) == (1, 5, 5)


def test_a_cleaned_segment_keeps_its_end_offset(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), (b"a", b"3"))
    log.roll(NOW_MS)
    put(log, (b"a", b"4"))
    log.roll(NOW_MS)
    compact(log, segment_bytes=150)
    assert log.segment_count == 3
    assert [(header.base_offset, header.last_offset, len(found)) for header, found in batches(log)] == [
        (1, 2, 0),
        (3, 3, 1),
    ]
    # Merged with its neighbour, the shell is not needed any more.
    compact(log, 4)
    assert [header.base_offset for header, _ in batches(log)] == [3]


def test_small_segments_become_one(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(6):
        put(log, (b"k%d" % number, b"value"))
        log.roll(NOW_MS)
    expected = pairs(log)
    compact(log)
    assert log.segment_count == 2
    assert logs.files(".log") == ["00000000000000000000.log", "00000000000000000006.log"]
    assert logs.files(".snapshot") == ["00000000000000000006.snapshot"]
    assert pairs(log) == expected


def test_a_cleaned_segment_keeps_the_producers_as_of_its_start(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(3):
        put(log, (b"a", b"%d" % number))
        log.roll(NOW_MS)
    snapshots = logs.files(".snapshot")
    compact(log, segment_bytes=1)
    assert logs.files(".snapshot") == snapshots
    assert len(snapshots) == 3


def test_cleaned_files_are_on_disk_before_they_are_handed_over(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"1"))
    log.roll(NOW_MS)
    disk = FaultyFilesystem()
    for _ in Compaction(make_job(log), disk, lambda _: None).run():
        assert set(logs.files(".cleaned")) == set(disk.synced)
    assert len(disk.synced) == 3


def test_indexes_of_cleaned_segments_find_every_offset_and_time(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_bytes=4000, index_interval_bytes=100)
    log = logs.open()
    for number in range(200):
        put(log, (b"k%d" % (number % 50), b"v%d" % number), timestamp=NOW_MS + number)
    log.roll(NOW_MS)
    compact(log)
    kept = records(log)
    for reopened in (False, True):
        if reopened:
            log = logs.restart(log)
        for offset in range(200):
            assert next((record for record in records(log, offset) if record.offset >= offset), None) == next(
                (record for record in kept if record.offset >= offset), None
            )
            found = log.offset_for_timestamp(NOW_MS + offset)
            expected = next((record.offset for record in kept if record.timestamp >= NOW_MS + offset), None)
            assert (found and found.offset) == expected


def test_a_map_that_is_full_leaves_the_rest_for_the_next_time(logs: LogMaker) -> None:
    log = logs.open()
    for number in range(40):
        put(log, (b"k%d" % number, b"1"), (b"k%d" % number, b"2"))
    log.roll(NOW_MS)
    first_dirty, rounds = 0, 0
    while first_dirty < log.end_offset:
        # Room for 18 keys.
        report = compact(log, first_dirty, map_bytes=24 * 24)
        assert report.end_offset > first_dirty
        assert report.keys_mapped <= 18
        first_dirty, rounds = report.end_offset, rounds + 1
    assert rounds == 3
    assert [offset for offset, _, _ in pairs(log)] == list(range(1, 80, 2))


def test_what_lies_behind_a_full_map_is_copied_as_it_is(logs: LogMaker) -> None:
    log = logs.open()
    put(log, *[(b"k%d" % number, b"1") for number in range(18)])
    put(log, (b"k0", None), (None, b"from before the topic was compacted"))
    log.roll(NOW_MS)
    report = compact(log, map_bytes=24 * 24)
    assert (report.end_offset, report.records_kept) == (18, 20)
    assert [header.delete_horizon for header, _ in batches(log)] == [None, None]


def test_a_batch_that_no_map_of_this_size_holds_is_an_error_with_advice(logs: LogMaker) -> None:
    log = logs.open()
    put(log, *[(b"k%d" % number, b"1") for number in range(30)])
    log.roll(NOW_MS)
    with pytest.raises(CompactionError, match=r"log\.cleaner\.dedupe\.buffer\.size") as caught:
        compact(log, map_bytes=24 * 24)
    assert not caught.value.is_passing
    assert len(pairs(log)) == 30


def test_a_damaged_batch_stops_the_cleaning_before_it_changes_anything(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"value"))
    put(log, (b"a", b"value"))
    log.roll(NOW_MS)
    path = logs.directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CompactionError, match="damaged"):
        compact(log)
    assert path.read_bytes() == data


def test_a_log_that_was_deleted_meanwhile_is_a_passing_problem(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"value"))
    log.roll(NOW_MS)
    job = make_job(log)
    log.delete_directory(bytes(16))
    with pytest.raises(CompactionError) as caught:
        list(Compaction(job, OsFilesystem(), lambda _: None).run())
    assert caught.value.is_passing


def test_a_batch_longer_than_what_is_read_at_once(logs: LogMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.compaction.clean.READ_CHUNK_BYTES", 70)
    monkeypatch.setattr("penstock.storage.compaction.clean.WRITE_CHUNK_BYTES", 70)
    monkeypatch.setattr("penstock.storage.compaction.clean.SYNC_BYTES", 100)
    log = logs.open()
    for number in range(5):
        put(log, (b"k%d" % number, b"x" * 50 * number), (b"a", b"%d" % number))
    log.roll(NOW_MS)
    compact(log)
    assert [offset for offset, _, _ in pairs(log)] == [0, 2, 4, 6, 8, 9]


def test_a_segment_that_would_outgrow_its_positions_leaves_batches_as_they_are(
    logs: LogMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.open()
    put(log, *[(b"k%d" % number, None) for number in range(10)])
    log.roll(NOW_MS)
    monkeypatch.setattr("penstock.storage.compaction.clean.SEGMENT_SIZE_MAX", log.size_bytes)
    before = log.size_bytes
    compact(log)
    assert log.size_bytes == before
    assert next(batches(log))[0].delete_horizon is None


def test_pace_is_called_with_every_byte_read_and_written(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"))
    log.roll(NOW_MS)
    sizes: list[int] = []
    list(Compaction(make_job(log), OsFilesystem(), sizes.append).run())
    # Read for the map, read for the copy, written.
    assert sum(sizes) == 3 * log.size_bytes


def test_segments_are_read_in_pieces(logs: LogMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "READ_CHUNK_BYTES", 300)
    log = logs.open()
    for number in range(12):
        put(log, (b"k%d" % number, b"v"))
    large = put(log, (b"large", bytes(2_000)))
    log.roll(NOW_MS)
    sizes: list[int] = []
    list(Compaction(make_job(log), OsFilesystem(), sizes.append).run())
    # A batch that is larger than a piece is read alone.
    assert sorted(sizes)[-3] > 2_000
    assert all(size <= 300 or size < 2_200 for size in sizes)
    assert sum(1 for size in sizes if size > 300) <= 4
    assert large == 12


# Transactions


def put_in_transaction(log: Log, key: bytes, value: bytes, sequence: int) -> None:
    put(log, (key, value), producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True)


def end_transaction(log: Log, *, commit: bool) -> None:
    append_batch(log, make_marker(log.end_offset, 9, 0, commit=commit))


def test_aborted_records_supersede_nothing_even_if_the_marker_lies_behind_the_cleaned_part(logs: LogMaker) -> None:
    log = logs.open()
    put(log, (b"a", b"committed"))
    put_in_transaction(log, b"a", b"aborted", 0)
    put(log, (b"b", b"1"))
    log.roll(NOW_MS)
    put_in_transaction(log, b"c", b"aborted", 1)
    end_transaction(log, commit=False)
    compact(log)
    assert [pair for pair in pairs(log) if pair[1] in (b"a", b"b")] == [(0, b"a", b"committed"), (2, b"b", b"1")]


def test_a_marker_outlives_its_records_by_the_retention_of_tombstones(logs: LogMaker) -> None:
    log = logs.open()
    put_in_transaction(log, b"a", b"1", 0)
    end_transaction(log, commit=True)
    put_in_transaction(log, b"a", b"2", 1)
    end_transaction(log, commit=True)
    put(log, (b"a", b"3"))
    log.roll(NOW_MS)
    log.producers.clear(log.end_offset)

    def markers() -> list[tuple[int, int | None]]:
        return [(header.base_offset, header.delete_horizon) for header, _ in batches(log) if header.is_control]

    # Batches of both transactions are met, so their markers stay undated.
    report = compact(log)
    assert markers() == [(1, None), (3, None)]
    report = compact(log, report.end_offset)
    assert markers() == [(1, LATER_MS), (3, LATER_MS)]
    report = compact(log, report.end_offset, now_ms=LATER_MS)
    assert markers() == []
    assert pairs(log) == [(4, b"a", b"3")]


def test_a_marker_with_the_epoch_of_an_active_producer_stays_as_a_shell(logs: LogMaker) -> None:
    log = logs.open()
    put_in_transaction(log, b"a", b"1", 0)
    append_batch(log, make_marker(log.end_offset, 9, 1, commit=True))
    put(log, (b"a", b"3"))
    log.roll(NOW_MS)
    for now_ms in (NOW_MS, NOW_MS, LATER_MS):
        compact(log, 0, now_ms=now_ms)
    shells = [(header.base_offset, header.producer_epoch, len(found)) for header, found in batches(log)]
    assert shells == [(1, 1, 0), (2, -1, 1)]


# A log that changes while it is cleaned


def test_a_long_output_is_synced_piece_by_piece(logs: LogMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one sync at the end holds up the disk for everything else."""
    monkeypatch.setattr(clean, "WRITE_CHUNK_BYTES", 100)
    monkeypatch.setattr(clean, "SYNC_BYTES", 400)
    log = logs.open()
    for number in range(12):
        put(log, (b"%02d" % number, b"v" * 40))
    log.roll(NOW_MS)
    sizes: list[int] = []
    sync = OsFile.sync

    def noted(file: OsFile) -> None:
        if file.path.name.endswith(".log.cleaned"):
            sizes.append(file.size)
        sync(file)

    monkeypatch.setattr(OsFile, "sync", noted)
    list(Compaction(make_job(log), OsFilesystem(), lambda _: None).run())
    size = log.segment_facts()[0].size_bytes
    batch = size // 12
    # A chunk is one batch, of which the fourth completes what is synced at once.
    assert 100 < batch < 134
    assert sizes == [4 * batch, 8 * batch, 12 * batch, 12 * batch]
