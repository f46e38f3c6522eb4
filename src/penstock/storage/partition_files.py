"""One partition's directory: its files by name, and which of them are not synced yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.storage.files import File, Filesystem
from penstock.wire.record_types import Buffer


class PartitionFiles:
    """Files of one log. What is created, written or renamed here is remembered until it has been synced."""

    __slots__ = ("_changed", "_unsynced", "filesystem", "on_open", "path")

    def __init__(self, filesystem: Filesystem, path: Path) -> None:
        self.filesystem = filesystem
        self.path = path
        # By name; None for one that was closed meanwhile and is opened again for its sync.
        self._unsynced: dict[str, File | None] | None = None
        self._changed = False
        # Called when a file is opened that stays open.
        self.on_open: Callable[[], None] | None = None

    def names(self) -> dict[str, int]:
        return self.filesystem.list_directory(self.path)

    def open(self, name: str) -> File:
        if self.on_open is not None:
            self.on_open()
        return self.filesystem.open(self.path / name)

    def create(self, name: str) -> File:
        """Open an empty file, replacing an existing one."""
        return self.write(name, b"")

    def read(self, name: str) -> bytes:
        return self.filesystem.read_file(self.path / name)

    def write(self, name: str, data: Buffer) -> File:
        if self.on_open is not None:
            self.on_open()
        file = self.filesystem.write_file(self.path / name, data)
        self.await_sync(name, file)
        self._changed = True
        return file

    def replace(self, name: str, data: Buffer) -> None:
        self.filesystem.replace_file(self.path / name, data)

    def rename(self, source: str, target: str) -> bool:
        """Rename a file; False when there is none."""
        try:
            self.filesystem.rename(self.path / source, self.path / target)
        except FileNotFoundError:
            return False
        if self._unsynced is not None and source in self._unsynced:
            self._unsynced[target] = self._unsynced.pop(source)
        self._changed = True
        return True

    def move_to(self, path: Path) -> None:
        """Rename the directory itself; its parent is not synced."""
        self.filesystem.rename(self.path, path)
        self.path = path

    def unlink(self, name: str) -> None:
        self.filesystem.unlink(self.path / name)
        if self._unsynced is not None:
            self._unsynced.pop(name, None)
        self._changed = True

    def await_sync(self, name: str, file: File) -> None:
        """Have the next sync include this file."""
        if self._unsynced is None:
            self._unsynced = {}
        self._unsynced[name] = file

    def let_go(self) -> None:
        """Close the descriptors of files that wait for their sync."""
        if self._unsynced is not None:
            self._unsynced = dict.fromkeys(self._unsynced)

    def await_directory_sync(self) -> None:
        """Have the next sync include the names of all files."""
        self._changed = True

    @property
    def has_unsynced(self) -> bool:
        return self._changed or self._unsynced is not None

    def take_unsynced(self) -> tuple[list[File], bool]:
        """What a sync must cover: files, and whether the directory itself changed. The caller must sync them."""
        waiting = self._unsynced or {}
        files = [file or self.filesystem.open(self.path / name) for name, file in waiting.items()]
        changed = self._changed
        self._unsynced = None
        self._changed = False
        return files, changed
