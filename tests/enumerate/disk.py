"""A disk that numbers the operations of a process, and does one of them wrong.

The disk itself is the simulator's: it knows what programs see and what a power cut leaves for certain. Here every
operation is numbered from the moment that recording starts, and one of them may fail, be cut short, or take long.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.storage.files import File, Filesystem, StorageError, storage_error
from penstock.wire.record_types import Buffer
from sim.disk import Directory, Inode, SimDisk, SimFile, SimFilesystem
from sim.scheduler import SimCrash

READS = frozenset(("open", "read", "list", "look for", "look at", "ask for the free space of"))
TAKES_SPACE = frozenset(("write to", "create", "create the directory", "reserve space for", "rename", "sync"))
TAKES_DESCRIPTOR = frozenset(("open", "create", "read whole", "list", "sync the directory"))
SYNCS = frozenset(("sync", "sync the directory"))

# Every operation from the faulty one on fails: the disk is broken, or full.
LASTING = {"broken": errno.EIO, "full": errno.ENOSPC}
PASSING = {"eio": errno.EIO, "enospc": errno.ENOSPC, "emfile": errno.EMFILE}
# A write that stops half-way. The writer then cuts the file back, which may fail as well.
SHORT = {"enospc": errno.ENOSPC, "eio": errno.EIO, "eio-uncut": errno.EIO}
STALLS_MS = (10, 1_000, 10_000)


class Operation(NamedTuple):
    """One operation on the disk."""

    index: int
    action: str
    path: Path
    size: int
    # Whether the event loop waited for it.
    is_on_loop: bool

    @property
    def changes(self) -> bool:
        """Whether the disk may look different after it."""
        return self.action not in READS and self.action != "read whole"

    def __str__(self) -> str:
        size = f" ({self.size} bytes)" if self.size else ""
        return f"{self.action} {self.path}{size}{' on the event loop' if self.is_on_loop else ''}"


class Trouble(NamedTuple):
    """What goes wrong, at which operation."""

    fault: str
    index: int
    variant: str = ""


class StepFile(SimFile):
    """An open file whose failed writes leave what `OsFile` leaves: torn bytes, cut off now or before the next write."""

    __slots__ = ("_torn",)

    _filesystem: StepFilesystem

    def __init__(self, filesystem: StepFilesystem, path: Path, inode: Inode) -> None:
        super().__init__(filesystem, path, inode)
        self._torn = False

    def append(self, data: Buffer) -> None:
        if self._torn:
            self.truncate(self.size)
            self._torn = False
        try:
            kept = self._filesystem.write(self._path, data, self.size)
            if kept is None:
                self._put(data)
                self.size += len(data)
                return
            self._put(memoryview(data)[: len(data) // 2])
            raise storage_error("write to", self._path, OSError(kept, os.strerror(kept)))
        except StorageError:
            self._torn = True
            self._cut_back()
            raise

    def _put(self, data: Buffer) -> None:
        inode, position = self._inode, self.size
        inode.data[position : position + len(data)] = data
        inode.dirty(position)
        inode.writes.append(position + len(data))
        inode.modified_ms = self._filesystem.now_ms()

    def _cut_back(self) -> None:
        try:
            self.truncate(self.size)
        except StorageError:
            # The next append tries it again, and the caller needs the write's own error.
            return
        self._torn = False

    def overwrite(self, data: Buffer, position: int = 0) -> None:
        assert position + len(data) <= self.size
        self._filesystem.write(self._path, data, position, in_place=True)
        self._inode.overwrite(data, position)

    def sync(self) -> None:
        inode = self._inode
        try:
            self._filesystem.step("sync", self._path)
        except StorageError:
            # The kernel has dropped the pages: a later sync has nothing to write, and reports success.
            inode.dirty_from = None
            inode.writes.clear()
            raise
        start = inode.dirty_from
        if start is not None and start > len(inode.durable):
            inode.durable.extend(bytes(start - len(inode.durable)))
        inode.sync()


class StepFilesystem(SimFilesystem):
    """One process's disk. `operations` lists what was done since `record`."""

    def __init__(self, disk: SimDisk, now_ms: Callable[[], int]) -> None:
        super().__init__(disk, now_ms)
        self.operations: list[Operation] = []
        self.is_recording = False
        self.trouble: Trouble | None = None
        # The operation at which it came, once it has.
        self.struck: Operation | None = None
        self.lasting = 0
        self.is_on_loop: Callable[[], bool] = lambda: True
        self.stall: Callable[[int], None] = lambda _: None
        # Called before an operation changes the disk, with the bytes and the position if it is a write.
        self.on_change: Callable[[Operation, bytes, int], None] = lambda *_: None

    def record(self, trouble: Trouble | None = None) -> None:
        """Number operations from here on."""
        self.is_recording, self.trouble, self.operations = True, trouble, []

    def stop_recording(self) -> None:
        """What comes now does not count, and works."""
        self.is_recording, self.lasting = False, 0

    @contextmanager
    def unnumbered(self) -> Iterator[None]:
        """What is only looked at by a script is no operation of the process."""
        before, self.is_recording = self.is_recording, False
        yield
        self.is_recording = before

    def touch(self, action: str, path: Path) -> None:
        self.step(action, path)

    def check_space(self, action: str, path: Path) -> None:
        """Space runs out in `step`."""

    def step(self, action: str, path: Path, data: Buffer = b"", position: int = 0) -> None:
        """Number an operation, and have it fail if it is the one."""
        if self.dead:
            raise SimCrash(f"{action} {path}")
        if not self.is_recording:
            return
        operation = Operation(len(self.operations), action, path, len(data), self.is_on_loop())
        self.operations.append(operation)
        if operation.changes:
            self.on_change(operation, bytes(data), position)
        self._strike(operation)

    def _strike(self, operation: Operation) -> None:
        trouble = self.trouble
        if trouble is not None and operation.index == trouble.index:
            self.struck = operation
            self.lasting = LASTING.get(trouble.fault, 0)
            if trouble.fault == "stall":
                self.stall(int(trouble.variant))
            elif trouble.fault in PASSING:
                self._fail(operation, PASSING[trouble.fault])
        if self.lasting and (self.lasting != errno.ENOSPC or operation.action in TAKES_SPACE):
            assert self.struck is not None
            if operation.path.parts[1] == self.struck.path.parts[1]:
                self._fail(operation, self.lasting)
        is_cut_back = trouble is not None and self.struck is not None and operation.index == trouble.index + 1
        if is_cut_back and trouble is not None and trouble.variant == "eio-uncut" and operation.action == "truncate":
            self._fail(operation, errno.EIO)

    @staticmethod
    def _fail(operation: Operation, number: int) -> None:
        raise storage_error(operation.action, operation.path, OSError(number, os.strerror(number)))

    def write(self, path: Path, data: Buffer, position: int, *, in_place: bool = False) -> int | None:
        """Number a write; returns the error with which it stops half-way, if it does."""
        self.step("overwrite" if in_place else "write to", path, data, position)
        trouble = self.trouble
        if trouble is not None and trouble.fault == "short" and self.struck is self.operations[-1]:
            return SHORT[trouble.variant]
        return None

    def open(self, path: Path, *, create: bool = False) -> StepFile:
        is_new = create and self._find(path) is None
        self.step("create" if is_new else "open", path)
        if is_new:
            self._parent(path).change({path.name: Inode(self.now_ms())})
        return StepFile(self, path, self._inode(path))

    def read_file(self, path: Path) -> bytes:
        self.step("read whole", path)
        return bytes(self._inode(path).data)


def check_protocols(filesystem: StepFilesystem) -> tuple[Filesystem, type[File]]:
    """For the type checker: both are what storage expects."""
    return filesystem, StepFile


def copy_disk(disk: SimDisk) -> SimDisk:
    """The same disk, which can go another way."""
    copies: dict[int, Inode | Directory] = {}
    copy = SimDisk()
    root = _copy(disk.root, copies)
    assert isinstance(root, Directory)
    copy.root = root
    return copy


def _copy(node: Inode | Directory, copies: dict[int, Inode | Directory]) -> Inode | Directory:
    known = copies.get(id(node))
    if known is not None:
        return known
    if isinstance(node, Inode):
        inode = copies[id(node)] = Inode()
        inode.data, inode.durable = bytearray(node.data), bytearray(node.durable)
        inode.dirty_from, inode.writes, inode.modified_ms = node.dirty_from, list(node.writes), node.modified_ms
        return inode
    directory = copies[id(node)] = Directory()
    directory.entries = {name: _copy(entry, copies) for name, entry in node.entries.items()}
    directory.durable = {name: _copy(entry, copies) for name, entry in node.durable.items()}
    directory.unsynced = [
        {name: None if entry is None else _copy(entry, copies) for name, entry in change.items()}
        for change in node.unsynced
    ]
    return directory


def inode_at(disk: SimDisk, path: Path) -> Inode | None:
    """The file at a path."""
    found: Inode | Directory | None = disk.root
    for part in path.parts[1:]:
        found = found.entries.get(part) if isinstance(found, Directory) else None
    return found if isinstance(found, Inode) else None
