"""A disk that fails on demand, wrapped around the real one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import patch

from penstock.storage.files import OsFile, OsFilesystem, storage_error
from penstock.wire.record_types import Buffer

os_pwrite = os.pwrite
os_ftruncate = os.ftruncate


class FaultyFilesystem(OsFilesystem):
    """The real file system, except that writes and syncs of matching files fail while told to.

    `write_error` and `sync_error` are errno values. With `torn_bytes` a failing write leaves that many bytes behind.
    `allowed_bytes` is how much may still be written before the disk is full.
    """

    def __init__(self) -> None:
        self.write_error = 0
        self.sync_error = 0
        self.torn_bytes = 0
        self.allowed_bytes: int | None = None
        self.suffixes: tuple[str, ...] = ("",)
        self.refuse_truncation = False
        self.synced: list[str] = []

    def heal(self) -> None:
        self.write_error = self.sync_error = self.torn_bytes = 0
        self.allowed_bytes = None
        self.refuse_truncation = False

    def _open(self, path: Path, flags: int) -> OsFile:
        file = super()._open(path, flags)
        return FaultyFile(path, os.dup(file.fileno()), file.size, self)

    def sync_directory(self, path: Path) -> None:
        self.synced.append(f"{path.name}/")
        super().sync_directory(path)


class FaultyFile(OsFile):
    __slots__ = ("disk",)

    def __init__(self, path: Path, descriptor: int, size: int, disk: FaultyFilesystem) -> None:
        super().__init__(path, descriptor, size)
        self.disk = disk

    def append(self, data: Buffer) -> None:
        disk = self.disk
        fails = disk.write_error and self.path.name.endswith(disk.suffixes)
        if disk.allowed_bytes is not None:
            if len(data) > disk.allowed_bytes:
                raise storage_error("write to", self.path, OSError(errno.ENOSPC, "No space left on device"))
            disk.allowed_bytes -= len(data)
        if not fails:
            super().append(data)
            return
        failing = _FailingWrites(disk)
        with patch.object(os, "pwrite", failing.pwrite), patch.object(os, "ftruncate", failing.ftruncate):
            super().append(data)

    def sync(self) -> None:
        if self.disk.sync_error and self.path.name.endswith(self.disk.suffixes):
            raise storage_error("sync", self.path, OSError(self.disk.sync_error, os.strerror(self.disk.sync_error)))
        self.disk.synced.append(self.path.name)
        super().sync()


class _FailingWrites:
    """A write that is torn after some bytes, and truncation that may fail too."""

    def __init__(self, disk: FaultyFilesystem) -> None:
        self.disk = disk
        self.calls = 0

    def pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        self.calls += 1
        if self.calls == 1 and self.disk.torn_bytes:
            return os_pwrite(descriptor, memoryview(data)[: self.disk.torn_bytes], position)
        raise OSError(self.disk.write_error, os.strerror(self.disk.write_error))

    def ftruncate(self, descriptor: int, size: int) -> None:
        if self.disk.refuse_truncation:
            raise OSError(errno.EIO, "Input/output error")
        os_ftruncate(descriptor, size)
