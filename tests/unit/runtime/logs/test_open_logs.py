"""Logs share the files that a process may open."""

from __future__ import annotations

from pathlib import Path

from penstock.runtime.logs.open_logs import OpenLogs
from penstock.storage.files import OsFilesystem
from penstock.storage.log import Log
from penstock.storage.settings import LogSettings
from penstock.wire.records import Record, build_batch, read_header


def open_log(directory: Path) -> Log:
    return Log.open(OsFilesystem(), directory, LogSettings(), recovery_point=0, clean=False, now_ms=0)


def append(log: Log) -> None:
    data = build_batch([Record(log.end_offset, 0, None, b"x")], base_offset=log.end_offset, leader_epoch=0)
    log.append((read_header(data),), data, 0)


def holds_files(log: Log) -> bool:
    return log._active.is_open


def test_the_log_that_opened_its_files_longest_ago_closes_them(tmp_path: Path) -> None:
    shared = OpenLogs(2)
    logs = [open_log(tmp_path / f"t-{number}") for number in range(4)]
    for log in logs:
        shared.add(log)
    for log in logs:
        append(log)
        assert holds_files(log)
    assert [holds_files(log) for log in logs] == [False, False, True, True]
    for _ in range(3):
        for log in logs:
            append(log)
    assert len(shared) == 2
    for log in logs:
        log.flush()
        assert (log.flushed_offset, len(log.read(0, 1 << 20).read())) == (
            4,
            4 * len(build_batch([Record(0, 0, None, b"x")])),
        )


def test_a_log_that_is_gone_is_not_kept(tmp_path: Path) -> None:
    shared = OpenLogs(2)
    log = open_log(tmp_path / "t-0")
    shared.add(log)
    append(log)
    shared.forget(log)
    assert len(shared) == 0
