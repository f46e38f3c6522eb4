"""All access to the disk, behind two small protocols.

`OsFilesystem` is the real one. The simulator passes another that loses unsynced data, tears writes, fills up, or fails.
Code above this module therefore never opens a path by itself.

Errors: a path that does not exist raises `FileNotFoundError`; everything else that the operating system refuses
(no space, input/output error, no permission) raises `StorageError`, which clients see as KAFKA_STORAGE_ERROR.

A file is closed when its last user releases it, not before: a reader or a sync running in a worker keeps its own
reference, so a segment may be closed or deleted meanwhile without the descriptor being reused by another file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.record_types import Buffer

# An exclusive lock on a whole file. Locks of this kind are held by an open file, not by a process, and exclude those
# that Apache Kafka's process takes.
_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


DISK_FAILURES = (errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE)


class StorageError(ApiError):
    """The disk refused; nothing that raised it may be acknowledged.

    `errno` is the operating system's, or 0, and `path` what it refused, if that is known.
    """

    def __init__(
        self,
        message: str,
        number: int = 0,
        code: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR,
        path: Path | None = None,
    ) -> None:
        super().__init__(code, message)
        self.errno = number
        self.path = path

    @property
    def is_disk_full(self) -> bool:
        """True when freeing space cures it, False when the disk itself is suspect."""
        return self.errno in (errno.ENOSPC, errno.EDQUOT)

    @property
    def is_passing(self) -> bool:
        """True when a retry may succeed, the disk itself being fine."""
        return self.is_disk_full or self.lacks_descriptors

    @property
    def lacks_descriptors(self) -> bool:
        """True when nothing was tried yet: the file or directory could not be opened."""
        return self.errno in (errno.EMFILE, errno.ENFILE)

    @property
    def is_disk_failure(self) -> bool:
        """True when the disk is gone or broken: not a full one, and not damaged records on a sound one."""
        return self.errno in DISK_FAILURES


class CorruptLogError(StorageError):
    """Stored bytes fail their checksum or structure; clients see CORRUPT_MESSAGE."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {reason}", code=ErrorCode.CORRUPT_MESSAGE, path=path)
        self.position = position


class DiskSpace(NamedTuple):
    """Size of the disk under a path, and what is left for us on it."""

    total_bytes: int
    free_bytes: int

    @property
    def used_fraction(self) -> float:
        return 1.0 - self.free_bytes / self.total_bytes if self.total_bytes else 1.0


class File(Protocol):
    """An open file. Reads may happen from any thread; writes and truncation come from one."""

    @property
    def path(self) -> Path: ...

    @property
    def size(self) -> int:
        """Bytes known to be valid; the next append goes after them."""
        ...

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end, or leave the file as it was and raise `StorageError`."""
        ...

    def overwrite(self, data: Buffer, position: int = 0) -> None:
        """Write over bytes that the file has already: that needs no space, and works on a full disk."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Claim disk space up to `size` bytes; the bytes past `File.size` read as zeros until they are written."""
        ...

    def sync(self) -> None:
        """Return once everything appended before the call would survive a power failure."""
        ...

    def fileno(self) -> int:
        """The descriptor, for zero-copy sends; -1 when there is none behind this file."""
        ...


class Filesystem(Protocol):
    """What storage needs from a disk."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and appending."""
        ...

    def read_file(self, path: Path) -> bytes: ...

    def write_file(self, path: Path, data: Buffer) -> File:
        """Write a whole new file and return it, not yet synced."""
        ...

    def replace_file(self, path: Path, data: Buffer) -> None:
        """Durably give `path` this content: after a crash it has either the old or the new one."""
        ...

    def rename(self, source: Path, target: Path) -> None: ...

    def unlink(self, path: Path) -> None:
        """Remove a file; one that is already gone is no error."""
        ...

    def list_directory(self, path: Path) -> dict[str, int]:
        """Names in a directory with their sizes; -1 stands for a directory."""
        ...

    def make_directory(self, path: Path) -> None:
        """Create a directory and its parents; an existing one is no error."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove a directory with its contents."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Make creations, renames and removals in a directory durable."""
        ...

    def exists(self, path: Path) -> bool: ...

    def modified_ms(self, path: Path) -> int:
        """When a file was last written, in milliseconds since 1970."""
        ...

    def disk_space(self, path: Path) -> DiskSpace: ...

    def lock(self, path: Path) -> File | None:
        """Lock the file at `path` until the returned file is released; None if it is locked already."""
        ...


def storage_error(action: str, path: Path, error: OSError) -> StorageError:
    """The error for a failed operation, with advice where there is some."""
    number = error.errno or 0
    advice = ""
    if number in (errno.ENOSPC, errno.EDQUOT):
        advice = " Free space on this disk, or lower retention."
    elif number in (errno.EMFILE, errno.ENFILE):
        advice = " Raise the limit of open files (ulimit -n)."
    return StorageError(f"Cannot {action} {path}: {error.strerror or error}.{advice}", number, path=path)


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_path", "_torn", "size")

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._torn = False
        self.size = size

    def __del__(self) -> None:
        os.close(self._descriptor)

    @property
    def path(self) -> Path:
        return self._path

    def append(self, data: Buffer) -> None:
        if self._torn:
            self._repair()
        size = self.size
        try:
            written = os.pwrite(self._descriptor, data, size)
            if written != len(data):
                self._write_rest(memoryview(data), written)
        except OSError as error:
            self._torn = True
            self._repair_quietly()
            raise storage_error("write to", self._path, error) from error
        self.size = size + len(data)

    def overwrite(self, data: Buffer, position: int = 0) -> None:
        assert position + len(data) <= self.size
        try:
            written = os.pwrite(self._descriptor, data, position)
        except OSError as error:
            raise storage_error("write to", self._path, error) from error
        if written != len(data):
            raise StorageError(f"Cannot write to {self._path}: only {written} of {len(data)} bytes were taken.")

    def _write_rest(self, data: memoryview, written: int) -> None:
        """Finish a short write: the next call either continues or reports why the first one stopped."""
        while written < len(data):
            assert 0 <= written < len(data)
            count = os.pwrite(self._descriptor, data[written:], self.size + written)
            if count == 0:
                raise OSError(errno.EIO, "the disk accepts no more bytes")
            written += count

    def _repair(self) -> None:
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError as error:
            raise storage_error("cut a torn write off", self._path, error) from error
        self._torn = False

    def _repair_quietly(self) -> None:
        try:
            self._repair()
        except StorageError:
            # The caller must get the write's own error; the next append tries this again first.
            return

    def read(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, position)
            if len(data) == size:
                return data
            return self._read_rest(data, position, size)
        except OSError as error:
            raise storage_error("read", self._path, error) from error

    def _read_rest(self, data: bytes, position: int, size: int) -> bytes:
        parts = [data]
        have = len(data)
        while data and have < size:
            data = os.pread(self._descriptor, size - have, position + have)
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise storage_error("truncate", self._path, error) from error
        self.size = size

    def reserve(self, size: int) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            raise storage_error("reserve space for", self._path, error) from error

    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise storage_error("sync", self._path, error) from error

    def fileno(self) -> int:
        return self._descriptor


def _size_of(entry: os.DirEntry[str]) -> int | None:
    """The size of a listed file, -1 for a directory; None for one that was removed meanwhile."""
    try:
        return -1 if entry.is_dir() else entry.stat().st_size
    except FileNotFoundError:
        return None


class OsFilesystem:
    """The real disk."""

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return self._open(path, flags)

    def _open(self, path: Path, flags: int) -> OsFile:
        try:
            descriptor = os.open(path, flags, 0o644)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error("open", path, error) from error
        return OsFile(path, descriptor, os.fstat(descriptor).st_size)

    def read_file(self, path: Path) -> bytes:
        file = self._open(path, os.O_RDONLY | os.O_CLOEXEC)
        return file.read(0, file.size)

    def write_file(self, path: Path, data: Buffer) -> OsFile:
        file = self._open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_TRUNC)
        if len(data):
            file.append(data)
        return file

    def replace_file(self, path: Path, data: Buffer) -> None:
        temporary = path.with_name(path.name + ".tmp")
        self.write_file(temporary, data).sync()
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        try:
            os.replace(source, target)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error("rename", source, error) from error

    def unlink(self, path: Path) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("delete", path, error) from error

    def list_directory(self, path: Path) -> dict[str, int]:
        try:
            with os.scandir(path) as entries:
                sizes = [(entry.name, _size_of(entry)) for entry in entries]
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error("list", path, error) from error
        return {name: size for name, size in sizes if size is not None}

    def make_directory(self, path: Path) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise storage_error("create the directory", path, error) from error

    def remove_directory(self, path: Path) -> None:
        for name, size in self.list_directory(path).items():
            if size < 0:
                self.remove_directory(path / name)
            else:
                self.unlink(path / name)
        try:
            os.rmdir(path)
        except OSError as error:
            raise storage_error("remove the directory", path, error) from error

    def sync_directory(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error("open the directory", path, error) from error
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise storage_error("sync the directory", path, error) from error
        finally:
            os.close(descriptor)

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def modified_ms(self, path: Path) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error("look at", path, error) from error

    def disk_space(self, path: Path) -> DiskSpace:
        try:
            facts = os.statvfs(path)
        except OSError as error:
            raise storage_error("ask for the free space of", path, error) from error
        return DiskSpace(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)

    def lock(self, path: Path) -> OsFile | None:
        file = self.open(path, create=True)
        try:
            fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except BlockingIOError:
            return None
        except OSError as error:
            raise storage_error("lock", path, error) from error
        return file
