"""After a sync that failed: what a log keeps is written again, as the kernel takes the dropped pages for written."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_support import NOW_MS, append, read_all

from penstock.storage.log import Log
from penstock.storage.settings import LogSettings
from sim.disk import SimDisk, SimFilesystem

DIRECTORY = Path("/data/events-0")


def reopen(disk: SimDisk, recovery_point: int, *, rewrites: bool) -> Log:
    return Log.open(
        SimFilesystem(disk, lambda: NOW_MS),
        DIRECTORY,
        LogSettings(segment_bytes=600),
        recovery_point=recovery_point,
        clean=False,
        now_ms=NOW_MS,
        lost_power=True,
        rewrites_from=recovery_point if rewrites else None,
    )


def after_power_failure(disk: SimDisk) -> SimDisk:
    """Only what was synced is left."""
    for name in list(SimFilesystem(disk, lambda: 0).list_directory(DIRECTORY)):
        inode = SimFilesystem(disk, lambda: 0)._inode(DIRECTORY / name)
        inode.data, inode.dirty_from = bytearray(inode.durable), None
    return disk


@pytest.mark.parametrize("rewrites", [False, True])
@pytest.mark.parametrize("recovery_point", [0, 5])
def test_dropped_pages_are_written_again(recovery_point: int, rewrites: bool) -> None:
    disk = SimDisk()
    filesystem = SimFilesystem(disk, lambda: NOW_MS)
    filesystem.make_directory(DIRECTORY.parent)
    log = reopen(disk, 0, rewrites=False)
    for number in range(recovery_point):
        append(log, b"%d" % number + b"." * 150)
    log.flush()
    for number in range(recovery_point, 12):
        append(log, b"%d" % number + b"." * 150)
    log.close(clean=False)
    for name in filesystem.list_directory(DIRECTORY):
        # A sync failed: the kernel writes none of it any more, and programs still see all of it.
        filesystem._inode(DIRECTORY / name).dirty_from = None
    log = reopen(disk, recovery_point, rewrites=rewrites)
    assert log.end_offset == 12
    log.flush()
    assert log.flushed_offset == 12
    log = reopen(after_power_failure(disk), 12, rewrites=False)
    assert (log.end_offset == 12 and len(read_all(log)) == 12) is rewrites
