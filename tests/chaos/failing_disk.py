"""A disk that fails where a test sets, and fills up when a test wants."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from penstock.storage.files import DiskSpace, OsFile, OsFilesystem, storage_error
from penstock.wire.record_types import Buffer


def nowhere(_: Path) -> bool:
    """No file is meant."""
    return False


class FailingDisk(OsFilesystem):
    """The real disk, except that syncs fail where `sync_fails` holds and appends find no space where `is_full` does.

    Where `is_broken` holds, nothing works any more.
    """

    def __init__(self) -> None:
        self.is_broken: Callable[[Path], bool] = nowhere
        self.sync_fails: Callable[[Path], bool] = nowhere
        self.is_full: Callable[[Path], bool] = nowhere
        self.used_fraction = 0.5

    def heal(self) -> None:
        self.sync_fails = self.is_full = self.is_broken = nowhere
        self.used_fraction = 0.5

    def check(self, path: Path) -> None:
        if self.is_broken(path):
            raise storage_error("use", path, OSError(errno.EIO, "Input/output error"))

    def make_directory(self, path: Path) -> None:
        self.check(path)
        super().make_directory(path)

    def list_directory(self, path: Path) -> dict[str, int]:
        self.check(path)
        return super().list_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self.check(source)
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self.check(path)
        super().sync_directory(path)

    def _open(self, path: Path, flags: int) -> OsFile:
        self.check(path)
        if flags & os.O_CREAT and self.is_full(path) and not path.exists():
            raise storage_error("open", path, OSError(errno.ENOSPC, "No space left on device"))
        file = super()._open(path, flags)
        return FailingFile(path, os.dup(file.fileno()), file.size, self)

    def disk_space(self, path: Path) -> DiskSpace:
        self.check(path)
        total = 10**9
        return DiskSpace(total, int(total * (1 - self.used_fraction)))


class FailingFile(OsFile):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, descriptor: int, size: int, disk: FailingDisk) -> None:
        super().__init__(path, descriptor, size)
        self._disk = disk

    def append(self, data: Buffer) -> None:
        self._disk.check(self.path)
        if self._disk.is_full(self.path):
            raise storage_error("write to", self.path, OSError(errno.ENOSPC, "No space left on device"))
        super().append(data)

    def sync(self) -> None:
        self._disk.check(self.path)
        if self._disk.sync_fails(self.path):
            raise storage_error("sync", self.path, OSError(errno.EIO, "Input/output error"))
        super().sync()
