"""Disks that fill up, tear writes and fail: nothing is acknowledged that is not there, nothing torn is left behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from faulty_filesystem import FaultyFile, FaultyFilesystem
from log_support import NOW_MS, LogMaker, append, make_marker, read_all

from penstock.model.errors import ErrorCode
from penstock.storage.files import OsFile, StorageError, storage_error
from penstock.storage.log import Log
from penstock.wire.records import read_header


@pytest.fixture
def disk() -> FaultyFilesystem:
    return FaultyFilesystem()


@pytest.fixture
def logs(tmp_path: Path, disk: FaultyFilesystem) -> LogMaker:
    return LogMaker(tmp_path, disk)


@pytest.mark.parametrize("torn_bytes", [0, 1, 40, 70])
def test_a_full_disk_refuses_and_takes_again(logs: LogMaker, disk: FaultyFilesystem, torn_bytes: int) -> None:
    log = logs.open()
    append(log, b"before")
    size = log.size_bytes
    disk.write_error, disk.torn_bytes = errno.ENOSPC, torn_bytes
    for _ in range(3):
        with pytest.raises(StorageError) as caught:
            append(log, b"lost")
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "Free space" in caught.value.message
        assert (log.end_offset, log.size_bytes) == (1, size)
        assert (logs.directory / log._active.name).stat().st_size == size
    assert len(read_all(log)) == 1
    disk.heal()
    assert append(log, b"after") == 1
    assert [record.value for record in read_all(logs.crash(log))] == [b"before", b"after"]


def test_torn_bytes_are_cut_off_also_if_a_reader_opens_the_file_first(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    append(log, b"before")
    disk.write_error, disk.torn_bytes, disk.refuse_truncation = errno.ENOSPC, 400, True
    with pytest.raises(StorageError):
        append(log, b"lost" * 200)
    disk.heal()
    log.close_files()
    assert len(read_all(log)) == 1
    append(log, b"after")
    assert [record.value for record in read_all(log)] == [b"before", b"after"]
    assert [record.value for record in read_all(logs.crash(log))] == [b"before", b"after"]


def test_torn_bytes_that_cannot_be_cut_off_are_gone_before_the_next_append(
    logs: LogMaker, disk: FaultyFilesystem
) -> None:
    log = logs.open()
    append(log, b"before")
    disk.write_error, disk.torn_bytes, disk.refuse_truncation = errno.ENOSPC, 400, True
    with pytest.raises(StorageError):
        append(log, b"lost" * 200)
    disk.heal()
    append(log, b"a")
    assert (logs.directory / log._active.name).stat().st_size == log.size_bytes
    assert [record.value for record in read_all(logs.crash(log))] == [b"before", b"a"]


@pytest.mark.parametrize("end", ["crash", "stop"])
@pytest.mark.parametrize("rolls", [True, False])
def test_torn_bytes_do_not_stay_behind_a_segment_that_is_finished(
    logs: LogMaker, disk: FaultyFilesystem, end: str, *, rolls: bool
) -> None:
    """Everything behind them was cut off by a start, or the log did not open."""
    log = logs.open()
    append(log, b"before")
    disk.write_error, disk.torn_bytes, disk.refuse_truncation = errno.ENOSPC, 40, True
    with pytest.raises(StorageError):
        append(log, b"lost")
    disk.heal()
    expected = [b"before"]
    if rolls:
        log.roll(NOW_MS)
        append(log, b"after")
        expected.append(b"after")
    log = logs.crash(log) if end == "crash" else logs.restart(log)
    assert [record.value for record in read_all(log)] == expected
    assert log.recovery.damaged == []
    assert sum((logs.directory / name).stat().st_size for name in logs.files(".log")) == log.size_bytes


def test_a_short_write_is_finished(logs: LogMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, memoryview(data)[:7], at))
    log = logs.open()
    append(log, b"in pieces of seven bytes")
    assert [record.value for record in read_all(log)] == [b"in pieces of seven bytes"]


def test_a_disk_full_while_rolling_leaves_the_log_as_it_was(logs: LogMaker, disk: FaultyFilesystem) -> None:
    """Each step of a roll fails once; the log goes on growing as soon as there is space."""
    log = logs.open()
    values = []
    for number in range(60):
        value = b"%03d" % number + b"." * 200
        disk.write_error, disk.suffixes = errno.ENOSPC, ((".index",), (".timeindex",), (".snapshot",))[number % 3]
        try:
            append(log, value)
        except StorageError:
            disk.heal()
            append(log, value)
        disk.heal()
        values.append(value)
    assert log.segment_count > 5
    assert [record.value for record in read_all(log)] == values
    assert [record.value for record in read_all(logs.crash(log))] == values


def test_a_lack_of_descriptors_while_rolling_leaves_the_log_as_it_was(logs: LogMaker) -> None:
    """Each file that a roll opens is refused once; the log accepts the same records afterwards."""
    log = logs.open()
    values, refused = [], 0
    right = FaultyFilesystem._open
    for number in range(60):
        value = b"%03d" % number + b"." * 200
        allowed = iter(range(number % 4))

        def scarce(filesystem: FaultyFilesystem, path: Path, flags: int, allowed: Iterator[int] = allowed) -> OsFile:
            if next(allowed, None) is None:
                raise storage_error("open", path, OSError(errno.EMFILE, "Too many open files"))
            return right(filesystem, path, flags)

        try:
            with patch.object(FaultyFilesystem, "_open", scarce):
                append(log, value)
        except StorageError:
            refused += 1
            append(log, value)
        values.append(value)
    assert refused
    assert not log.is_failed
    assert [record.value for record in read_all(log)] == values
    assert [record.value for record in read_all(logs.crash(log))] == values


def test_a_roll_without_room_for_reserved_space_leaves_no_segment_behind(logs: LogMaker) -> None:
    """The next start took it for the newest one: the log ended there, before records that were written since."""
    logs.settings = replace(logs.settings, preallocate=True)
    log = logs.open()
    append(log, b"." * 1500)
    full = storage_error("reserve space for", logs.directory, OSError(errno.ENOSPC, "No space left on device"))
    with patch.object(FaultyFile, "reserve", side_effect=full), pytest.raises(StorageError):
        append(log, b"too large" * 100)
    append(log, b"fits")
    assert len(read_all(log)) == 2
    assert len(read_all(logs.restart(log))) == 2


@pytest.mark.parametrize("position", [0, 1])
def test_a_log_is_not_what_it_was_once_a_truncation_failed_half_way(logs: LogMaker, position: int) -> None:
    """The end of the file was gone, and the log counted it still: the next append left a hole."""
    log = logs.open()
    for number in range(4):
        append(log, b"%d" % number * 30)
    generation = log.generation
    truncated = FaultyFile.truncate
    broken = storage_error("read", logs.directory, OSError(errno.EIO, "Input/output error"))

    def fail(file: FaultyFile, size: int) -> None:
        if position:
            truncated(file, size)
        raise broken

    with patch.object(FaultyFile, "truncate", fail), pytest.raises(StorageError):
        log.truncate_to(2)
    assert log.generation != generation
    assert log.end_offset == 2


@pytest.mark.parametrize("is_first", [True, False])
def test_a_marker_without_a_descriptor_for_its_index_is_not_appended(logs: LogMaker, is_first: bool) -> None:
    """It was, and took the data directory offline."""
    log = logs.open()
    for producer_id in range(1 if is_first else 0, 2):
        append(log, b"aborted", producer_id=producer_id, producer_epoch=0, sequence=0, transactional=True)
    if not is_first:
        append_marker(log, 0)
    end_offset = log.end_offset
    opened = FaultyFilesystem._open

    def scarce(filesystem: FaultyFilesystem, path: Path, flags: int) -> OsFile:
        if path.suffix == ".txnindex":
            raise storage_error("open", path, OSError(errno.EMFILE, "Too many open files"))
        return opened(filesystem, path, flags)

    with patch.object(FaultyFilesystem, "_open", scarce), pytest.raises(StorageError):
        append_marker(log, 1)
    assert (log.end_offset, log.is_failed) == (end_offset, False)
    append_marker(log, 1)
    assert len(log.aborted) == (1 if is_first else 2)
    assert len(logs.restart(log).aborted) == (1 if is_first else 2)


def append_marker(log: Log, producer_id: int) -> None:
    marker = make_marker(log.end_offset, producer_id, 0, commit=False)
    log.append([read_header(marker)], marker, NOW_MS)


def test_a_log_is_truncated_behind_a_damaged_batch(logs: LogMaker) -> None:
    """The end of the file was gone when the damage was met, and the log counted it still."""
    log = logs.open()
    for number in range(12):
        append(log, b"%d" % number * 30, timestamp=NOW_MS)
    path = logs.directory / log._active.name
    second = log.read(0, 1).size
    data = bytearray(path.read_bytes())
    # The upper byte of its length.
    data[second + 8] = 0x7F
    path.write_bytes(data)
    log._active.release()
    log.truncate_to(10)
    assert log.end_offset == 10
    append(log, b"more", timestamp=NOW_MS)
    assert [record.value for record in read_all(log, 9)] == [b"9" * 30, b"more"]


def test_an_io_error_fails_the_log_for_good_but_not_its_readers(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    append(log, b"before")
    disk.write_error = errno.EIO
    with pytest.raises(StorageError):
        append(log, b"lost")
    disk.heal()
    assert log.is_failed
    with pytest.raises(StorageError, match="accepts no more writes since"):
        append(log, b"refused")
    with pytest.raises(StorageError):
        log.begin_flush()
    assert [record.value for record in read_all(log)] == [b"before"]


def test_a_failed_sync_is_never_followed_by_a_successful_one(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    append(log, b"in doubt")
    disk.sync_error = errno.EIO
    with pytest.raises(StorageError):
        log.flush()
    disk.heal()
    assert log.flushed_offset == 0
    with pytest.raises(StorageError):
        log.flush()
    with pytest.raises(StorageError):
        append(log, b"refused")
    log.close()
    assert log.flushed_offset == 0


@pytest.mark.parametrize("known_before", [False, True])
def test_no_room_for_the_epoch_checkpoint_does_not_fail_a_sync(
    logs: LogMaker, disk: FaultyFilesystem, known_before: bool
) -> None:
    log = logs.open()
    for epoch in range(4):
        append(log, b"x" * 900, epoch=epoch)
        if epoch == 0 and known_before:
            log.flush()
    disk.allowed_bytes = 0
    log.flush()
    assert log.flushed_offset == 4
    disk.heal()
    entries = log.epochs.entries
    assert len(entries) == 4
    # The node dies before there is space again: the epochs are found in the batches.
    log = logs.crash(log)
    assert log.epochs.entries == entries


def test_the_epoch_checkpoint_is_written_when_there_is_room_again(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    append(log, b"x", epoch=3)
    disk.allowed_bytes = 0
    log.flush()
    disk.heal()
    log.flush()
    assert (logs.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"


def test_a_stop_that_cannot_be_clean_is_reported(logs: LogMaker, disk: FaultyFilesystem) -> None:
    log = logs.open()
    append(log, b"a")
    disk.sync_error = errno.EIO
    with pytest.raises(StorageError):
        log.close()


def test_a_missing_directory_is_made_and_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "events-0").write_text("not a directory")
    with pytest.raises(StorageError, match="events-0"):
        LogMaker(tmp_path).open()
