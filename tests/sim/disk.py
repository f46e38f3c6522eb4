"""A disk that forgets what was never synced.

`SimDisk` is the machine's: it outlives processes. Each file and directory has two states, the one programs see and
the one that a power cut leaves for certain; between the two anything may be lost, from the end, and the last block
may be torn. `SimFilesystem` is one process's view of it and dies with the process.

Directories keep their changes in order: after a power cut some number of the first unsynced ones has happened.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from penstock.storage.files import DiskSpace, StorageError, storage_error
from penstock.wire.record_types import Buffer
from sim.scheduler import SimCrash

BLOCK_BYTES = 512
DISK_BYTES = 1 << 30
DATA = "data"
MORE_DATA = "more"
# The keys of segments in object storage.
KEYS_PATH = Path("/keys")


class Inode:
    """A file's bytes: what programs see, and what is certainly on the disk."""

    __slots__ = ("data", "dirty_from", "durable", "is_lossy", "modified_ms", "writes")

    def __init__(self, modified_ms: int = 0) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        # The first byte that may differ between the two; None when they agree.
        self.dirty_from: int | None = None
        # Where each write since the last sync ended.
        self.writes: list[int] = []
        self.modified_ms = modified_ms
        # Whether a failed write to the disk has lost data that programs still see in the page cache.
        self.is_lossy = False

    def dirty(self, position: int) -> None:
        """Something changed from a position on."""
        if self.dirty_from is None or position < self.dirty_from:
            self.dirty_from = position

    def overwrite(self, data: Buffer, position: int) -> None:
        """Write in place. A power failure in the middle of it changes no byte that the disk has already."""
        end, content = position + len(data), bytes(data)
        self.data[position:end] = content
        kept = bytes(self.durable[position:end])
        if kept != content:
            pairs = enumerate(zip(kept, content, strict=False))
            is_longer = content.startswith(kept)
            self.dirty(position + (len(kept) if is_longer else next(at for at, (a, b) in pairs if a != b)))

    def sync(self) -> int:
        """Returns the number of bytes that became durable."""
        start = self.dirty_from
        if start is None:
            return 0
        self.durable[start:] = memoryview(self.data)[start:]
        self.dirty_from = None
        self.writes.clear()
        return len(self.data) - start

    def sync_all(self) -> None:
        """Make all of it durable."""
        self.dirty(0)
        self.sync()

    def fail_sync(self) -> None:
        """Writing back fails: the pages count as clean from now on, and the disk lacks what they have, as on Linux.

        Programs see them until the page cache drops them, which `drop_cache` does.
        """
        if self.dirty_from is not None:
            del self.durable[self.dirty_from :]
            self.durable.extend(bytes(len(self.data) - len(self.durable)))
            self.dirty_from = None
            self.writes.clear()
            self.is_lossy = True

    def drop_cache(self) -> None:
        """Programs see what the disk has, and what was written since."""
        if self.is_lossy:
            start = len(self.durable) if self.dirty_from is None else self.dirty_from
            self.data[:start] = self.durable[:start]
            self.is_lossy = False

    def lose_power(self, random: Random) -> None:
        """Keep what was synced and a random part of what came after it."""
        self.drop_cache()
        start = self.dirty_from
        if start is None:
            return
        kind = random.random()
        if kind < 0.4:
            kept = bytearray(self.durable)
        elif kind < 0.6:
            kept = self.data
        else:
            whole = self.data if len(self.data) > start else self.durable
            cut = self._cut(start, len(whole), random)
            kept = whole[:cut]
            if kind > 0.85:
                # The size arrived, the last blocks did not.
                kept += bytes(min(len(whole) - cut, random.randint(0, 4) * BLOCK_BYTES))
        self.data = bytearray(kept)
        self.durable = bytearray(kept)
        self.dirty_from = None
        self.writes.clear()

    def _cut(self, start: int, end: int, random: Random) -> int:
        """Where the last thing that reached the disk ended: disks write whole blocks, of what programs had written."""
        blocks = range(start - start % BLOCK_BYTES + BLOCK_BYTES, end, BLOCK_BYTES)
        ends = [position for position in self.writes if start <= position <= end]
        choices: list[int] = [min(start, end), *blocks, *ends]
        return random.choice(choices)


class Directory:
    """Names and what they stand for, now and for certain."""

    __slots__ = ("durable", "entries", "unsynced")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        # Changes in order, each as names with what they stand for afterwards.
        self.unsynced: list[dict[str, Inode | Directory | None]] = []

    def change(self, changes: dict[str, Inode | Directory | None]) -> None:
        _apply(self.entries, changes)
        self.unsynced.append(changes)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.unsynced.clear()

    def drop_cache(self) -> None:
        for entry in self.entries.values():
            entry.drop_cache()

    def lose_power(self, random: Random) -> None:
        happened = random.choice((0, len(self.unsynced), random.randint(0, len(self.unsynced))))
        for changes in self.unsynced[:happened]:
            _apply(self.durable, changes)
        self.entries = dict(self.durable)
        self.unsynced.clear()
        for entry in self.entries.values():
            entry.lose_power(random)


@dataclass(slots=True)
class DiskErrors:
    """Errors of operations: after `skipped` operations the next `count` fail, in `directory` or of `topic` if given.

    Which operations count depends on the error: any may meet a failing block, few need space or a descriptor.
    """

    number: int
    skipped: int
    count: int
    directory: str | None = None
    topic: str = ""

    def strikes(self, action: str, path: Path) -> bool:
        """Whether this operation fails."""
        if self.count <= 0 or (self.directory is not None and path.parts[1] != self.directory):
            return False
        if not action.startswith(_STRUCK[self.number]) or not "".join(path.parts[2:3]).startswith(self.topic):
            return False
        if self.skipped > 0:
            self.skipped -= 1
            return False
        self.count -= 1
        return True


_STRUCK: dict[int, tuple[str, ...]] = {
    errno.EIO: ("open", "read", "write", "truncate", "sync", "rename", "delete", "list"),
    errno.ENOSPC: ("write", "rename", "create"),
    errno.EMFILE: ("open", "list", "sync the directory"),
}


def _apply(entries: dict[str, Inode | Directory], changes: dict[str, Inode | Directory | None]) -> None:
    for name, target in changes.items():
        if target is None:
            entries.pop(name, None)
        else:
            entries[name] = target


class SimDisk:
    """One machine's disk."""

    def __init__(self) -> None:
        self.root = Directory()
        # The data directories were made long ago, when the machine was set up.
        self.root.change({DATA: Directory(), MORE_DATA: Directory()})
        self.root.sync()
        self.is_full = False
        self.fails_sync = False
        # Where the name of a data directory is given, nothing works any more. What was unsynced there may be gone once
        # that is noticed: the disks of a machine that is up do not lose anything without a word.
        self.broken: str | None = None
        self.broken_loses_unsynced = False
        self.is_noticed = False
        self.synced_bytes = 0
        self.errors: DiskErrors | None = None
        # Whether a program met an input/output error.
        self.has_failed = False

    def drop_cache(self) -> None:
        """What a failed sync has lost is gone for programs, too."""
        self.root.drop_cache()

    def lose_power(self, random: Random) -> None:
        """What a power cut does to it."""
        self.root.lose_power(random)

    def mend(self, random: Random) -> None:
        """The broken directory works again."""
        if self.broken is not None and self.broken_loses_unsynced and self.is_noticed:
            self.root.entries[self.broken].lose_power(random)
        self.broken, self.is_noticed = None, False


class SimFile:
    """An open file of a simulated disk."""

    __slots__ = ("__weakref__", "_filesystem", "_inode", "_path", "size")

    def __init__(self, filesystem: SimFilesystem, path: Path, inode: Inode) -> None:
        self._filesystem = filesystem
        self._path = path
        self._inode = inode
        self.size = len(inode.data)

    @property
    def path(self) -> Path:
        return self._path

    def append(self, data: Buffer) -> None:
        filesystem, inode = self._filesystem, self._inode
        filesystem.touch("write to", self._path)
        filesystem.check_space("write to", self._path)
        position = self.size
        inode.data[position : position + len(data)] = data
        inode.dirty(position)
        inode.writes.append(position + len(data))
        inode.modified_ms = filesystem.now_ms()
        self.size = position + len(data)

    def overwrite(self, data: Buffer, position: int = 0) -> None:
        assert position + len(data) <= self.size
        self._filesystem.touch("write to", self._path)
        self._inode.overwrite(data, position)
        self._inode.modified_ms = self._filesystem.now_ms()

    def read(self, position: int, size: int) -> bytes:
        self._filesystem.touch("read", self._path)
        return bytes(memoryview(self._inode.data)[position : position + size])

    def truncate(self, size: int) -> None:
        self._filesystem.touch("truncate", self._path)
        data = self._inode.data
        self._inode.dirty(min(size, len(data)))
        if size <= len(data):
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))
        self.size = size

    def reserve(self, size: int) -> None:
        filesystem, data = self._filesystem, self._inode.data
        filesystem.touch("reserve space for", self._path)
        filesystem.check_space("reserve space for", self._path)
        if size > len(data):
            self._inode.dirty(len(data))
            data.extend(bytes(size - len(data)))

    def sync(self) -> None:
        filesystem = self._filesystem
        filesystem.on_sync(self._path)
        filesystem.touch("sync", self._path)
        if filesystem.disk.fails_sync:
            raise storage_error("sync", self._path, OSError(errno.EIO, "Input/output error"))
        filesystem.disk.synced_bytes += self._inode.sync()

    def fileno(self) -> int:
        return -1


class SimFilesystem:
    """One process's way to the disk; once `dead`, every touch of it unwinds the caller."""

    def __init__(self, disk: SimDisk, now_ms: Callable[[], int]) -> None:
        self.disk = disk
        self.now_ms = now_ms
        self.dead = False
        # Counts down to a crash in the middle of whatever the process is doing with its disk.
        self.crash_after: int | None = None
        # And to one when a truncation removes that many segments.
        self.crash_after_removals: int | None = None
        self.on_crash: Callable[[], None] = lambda: None
        self.on_sync: Callable[[Path], None] = lambda _: None
        self._locks: dict[str, weakref.ref[SimFile]] = {}

    def touch(self, action: str, path: Path) -> None:
        """Every operation passes here: dead processes stop, and armed crashes happen."""
        if self.dead:
            raise SimCrash(f"{action} {path}")
        if self.disk.broken is not None and self.disk.broken == path.parts[1]:
            self.disk.is_noticed = self.disk.has_failed = True
            raise storage_error(action, path, OSError(errno.EIO, "Input/output error"))
        errors = self.disk.errors
        if errors is not None and errors.strikes(action, path):
            self.disk.has_failed |= errors.number == errno.EIO
            found = self._find(path)
            if errors.number == errno.EIO and action in ("sync", "write to") and isinstance(found, Inode):
                found.fail_sync()
            raise storage_error(action, path, OSError(errors.number, os.strerror(errors.number)))
        if self.crash_after_removals is not None and action == "delete" and path.suffix == ".log":
            self.crash_after_removals -= 1
            if self.crash_after_removals < 0:
                self.crash_after_removals, self.crash_after = None, 0
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                self.crash_after = None
                self.on_crash()
                raise SimCrash(f"{action} {path}")

    def check_space(self, action: str, path: Path) -> None:
        if self.disk.is_full:
            raise storage_error(action, path, OSError(errno.ENOSPC, "No space left on device"))

    def _find(self, path: Path) -> Inode | Directory | None:
        found: Inode | Directory | None = self.disk.root
        for part in path.parts[1:]:
            if not isinstance(found, Directory):
                return None
            found = found.entries.get(part)
        return found

    def _parent(self, path: Path) -> Directory:
        parent = self._find(path.parent)
        if not isinstance(parent, Directory):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return parent

    def _directory(self, path: Path) -> Directory:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        if not isinstance(found, Directory):
            raise StorageError(f"Cannot list {path}: Not a directory.", errno.ENOTDIR)
        return found

    def _inode(self, path: Path) -> Inode:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        if not isinstance(found, Inode):
            raise StorageError(f"Cannot open {path}: Is a directory.", errno.EISDIR)
        return found

    def open(self, path: Path, *, create: bool = False) -> SimFile:
        self.touch("open", path)
        if create and self._find(path) is None:
            self.check_space("open", path)
            self._parent(path).change({path.name: Inode(self.now_ms())})
        return SimFile(self, path, self._inode(path))

    def read_file(self, path: Path) -> bytes:
        self.touch("read", path)
        return bytes(self._inode(path).data)

    def write_file(self, path: Path, data: Buffer) -> SimFile:
        file = self.open(path, create=True)
        file.truncate(0)
        if len(data):
            file.append(data)
        return file

    def replace_file(self, path: Path, data: Buffer) -> None:
        temporary = path.with_name(path.name + ".tmp")
        self.write_file(temporary, data).sync()
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        self.touch("rename", source)
        found = self._find(source)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(source))
        from_directory, to_directory = self._parent(source), self._parent(target)
        if from_directory is to_directory:
            from_directory.change({source.name: None, target.name: found})
        else:
            to_directory.change({target.name: found})
            from_directory.change({source.name: None})

    def unlink(self, path: Path) -> None:
        self.touch("delete", path)
        parent = self._find(path.parent)
        if isinstance(parent, Directory) and path.name in parent.entries:
            parent.change({path.name: None})

    def list_directory(self, path: Path) -> dict[str, int]:
        self.touch("list", path)
        entries = self._directory(path).entries
        return {name: len(entry.data) if isinstance(entry, Inode) else -1 for name, entry in entries.items()}

    def make_directory(self, path: Path) -> None:
        self.touch("create the directory", path)
        directory = self.disk.root
        for part in path.parts[1:]:
            found = directory.entries.get(part)
            if found is None:
                self.check_space("create the directory", path)
                found = Directory()
                directory.change({part: found})
            if not isinstance(found, Directory):
                raise StorageError(f"Cannot create the directory {path}: File exists.", errno.EEXIST)
            directory = found

    def remove_directory(self, path: Path) -> None:
        for name, size in self.list_directory(path).items():
            if size < 0:
                self.remove_directory(path / name)
            else:
                self.unlink(path / name)
        self.touch("remove the directory", path)
        self._parent(path).change({path.name: None})

    def sync_directory(self, path: Path) -> None:
        self.on_sync(path)
        self.touch("sync the directory", path)
        self._directory(path).sync()

    def exists(self, path: Path) -> bool:
        self.touch("look for", path)
        return self._find(path) is not None

    def modified_ms(self, path: Path) -> int:
        self.touch("look at", path)
        return self._inode(path).modified_ms

    def disk_space(self, path: Path) -> DiskSpace:
        self.touch("ask for the free space of", path)
        return DiskSpace(DISK_BYTES, 0 if self.disk.is_full else DISK_BYTES // 2)

    def lock(self, path: Path) -> SimFile | None:
        held = self._locks.get(str(path))
        if held is not None and held() is not None:
            return None
        file = self.open(path, create=True)
        self._locks[str(path)] = weakref.ref(file)
        return file
