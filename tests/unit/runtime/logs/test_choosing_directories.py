"""A directory is chosen for a new replica: an error that shows a broken disk is not passed over."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

from penstock.runtime.logs.directories import choose_home
from penstock.storage.files import DiskSpace, StorageError


class Directory:
    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.failure = None
        self.created_ms: Any = []
        self.partitions: set[str] = set()
        self.is_cordoned = self.is_full = False


class BrokenDisk:
    """An Env one of whose disks is broken."""

    def __init__(self) -> None:
        self.filesystem = self

    def monotonic_ms(self) -> int:
        return 0

    def disk_space(self, path: Path) -> DiskSpace:
        if path == Path("/broken"):
            raise StorageError("Input/output error", errno.EIO, path=path)
        return DiskSpace(100, 50)


def test_a_broken_disk_is_reported_when_a_replica_is_placed() -> None:
    directories: Any = [Directory("/whole"), Directory("/broken")]
    reported: list[StorageError] = []
    env: Any = BrokenDisk()
    assert choose_home(env, directories, reported.append) is directories[0]
    assert [error.path for error in reported] == [Path("/broken")]
