"""What starts a segment, what is remembered of one, and which files a sync must cover."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from unittest.mock import Mock

import pytest
from log_support import NOW_MS, LogMaker, append, headers_of, make_batch, read_all

from penstock.storage.files import CorruptLogError, OsFilesystem, StorageError
from penstock.storage.partition_files import PartitionFiles
from penstock.storage.segment import HINTS_MAX
from penstock.storage.settings import LogSettings
from penstock.storage.slices import limit_before
from penstock.wire.records import read_header


def test_an_empty_segment_takes_a_batch_that_is_larger_than_segments_are(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_bytes=500)
    log = logs.open()
    # A follower's copy of a compacted log may have gaps.
    data = make_batch(50, [b"x" * 1_000])
    log.append([read_header(data)], data, NOW_MS)
    assert (log.segment_count, log.end_offset) == (1, 51)
    append(log, b"y")
    assert (log.segment_count, log.end_offset) == (2, 52)
    log.close()


def test_batches_too_far_apart_for_one_segment_change_nothing(logs: LogMaker) -> None:
    logs.settings = LogSettings(index_interval_bytes=0)
    log = logs.open()
    append(log, b"first")
    size = log.size_bytes
    data = b"".join(make_batch(offset, [b"x" * 100]) for offset in (2**40, 2**40 + 10, 2**40 + 2**33))
    with pytest.raises(ValueError, match="one segment"):
        log.append(headers_of(data), data, NOW_MS)
    assert (log.segment_count, log.end_offset, log.size_bytes) == (1, 1, size)
    append(log, b"second")
    assert [one.value for one in read_all(log)] == [b"first", b"second"]
    log.close()
    again = logs.open()
    assert again.end_offset == 2
    again.close()


def test_readers_at_many_places_leave_a_bounded_number_of_hints(logs: LogMaker) -> None:
    logs.settings = LogSettings(segment_bytes=1 << 20, index_interval_bytes=200)
    log = logs.open()
    for _ in range(4 * HINTS_MAX):
        append(log, b"x" * 50)
    log.roll(NOW_MS)
    append(log, b"newest")
    for offset in range(4 * HINTS_MAX):
        assert read_header(log.read(offset, 400).read()).base_offset == offset
    hints = log._segments[0]._hints
    assert hints is not None
    assert 0 < len(hints) <= HINTS_MAX
    log.close()


def test_a_sync_covers_what_was_written_and_the_directory_if_names_changed(tmp_path: Path) -> None:
    home = PartitionFiles(OsFilesystem(), tmp_path)
    assert (home.has_unsynced, home.take_unsynced()) == (False, ([], False))
    created = home.write("a", b"1")
    assert home.has_unsynced
    assert home.take_unsynced() == ([created], True)
    assert (home.has_unsynced, home.take_unsynced()) == (False, ([], False))
    home.await_sync("a", created)
    assert home.take_unsynced() == ([created], False), "no name has changed"
    empty = home.create("b")
    assert home.rename("b", "c")
    assert home.take_unsynced() == ([empty], True), "a file is synced whatever its name is now"
    assert home.rename("c", "d")
    assert home.take_unsynced() == ([], True)
    assert not home.rename("missing", "e")
    assert not home.has_unsynced
    home.write("d", b"2")
    home.unlink("d")
    assert home.take_unsynced() == ([], True)


def test_files_that_were_closed_are_opened_again_for_their_sync(tmp_path: Path) -> None:
    home = PartitionFiles(OsFilesystem(), tmp_path)
    home.write("a", b"1")
    home.let_go()
    assert home.has_unsynced
    (file,), changed = home.take_unsynced()
    assert (file.path, changed) == (tmp_path / "a", True)


def test_a_log_whose_directory_has_disappeared_accepts_nothing_more(logs: LogMaker) -> None:
    log = logs.open()
    append(log, b"a")
    ticket = log.begin_flush()
    assert ticket is not None
    rmtree(logs.directory)
    ticket.run()
    with pytest.raises(StorageError, match="has disappeared"):
        log.finish_flush(ticket)
    assert log.is_failed
    with pytest.raises(StorageError, match="has disappeared"):
        append(log, b"b")


def test_what_lies_before_damage_can_be_read_and_damage_at_the_start_is_an_error() -> None:
    error = CorruptLogError(Path("segment"), 100, "damaged")
    segment = Mock(position_of=Mock(side_effect=error))
    assert limit_before(segment, 5, 99) == 100
    for start in (100, 101):
        with pytest.raises(CorruptLogError):
            limit_before(segment, 5, start)
