"""A directory is chosen for a new replica: an error that shows a broken disk is not passed over."""

from __future__ import annotations

import errno
from collections import deque
from pathlib import Path
from typing import Any

from penstock.runtime.logs.directories import NEW_MS, choose_home
from penstock.storage.files import DiskSpace, StorageError


class Directory:
    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.failure = None
        self.created_ms: deque[int] = deque()
        self.partitions: set[str] = set()
        self.is_cordoned = self.is_full = False


class Disks:
    """An Env with disks of one size, one of which is broken."""

    def __init__(self) -> None:
        self.filesystem = self
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def disk_space(self, path: Path) -> DiskSpace:
        if path == Path("/broken"):
            raise StorageError("Input/output error", errno.EIO, path=path)
        return DiskSpace(100, 50)


def test_a_broken_disk_is_reported_when_a_replica_is_placed() -> None:
    directories: Any = [Directory("/whole"), Directory("/broken")]
    reported: list[StorageError] = []
    env: Any = Disks()
    assert choose_home(env, directories, reported.append) is directories[0]
    assert [error.path for error in reported] == [Path("/broken")]


def test_replicas_that_were_placed_lately_count_before_they_are_there() -> None:
    directories: Any = [Directory("/one"), Directory("/two")]
    directories[0].partitions = {"a"}
    env: Any = Disks()
    chosen = [choose_home(env, directories, lambda _: None).path.name for _ in range(4)]
    assert chosen == ["two", "one", "two", "one"]
    env.now_ms = NEW_MS
    assert choose_home(env, directories, lambda _: None).path.name == "two"
    env.now_ms += 1
    # Those of the beginning are no longer new, and the last one is.
    assert choose_home(env, directories, lambda _: None).path.name == "one"
