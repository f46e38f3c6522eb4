"""A sync on its way: taken from a log, run where blocking is allowed, and handed back."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.storage.files import File
from penstock.storage.log_directory import LogDirectory


class FlushTicket:
    """What must become durable for the log to be safe up to `end_offset`.

    `run` may be called in any thread: it touches nothing of the log but open files and one checkpoint whose content
    was fixed when the ticket was drawn. The log may go on, roll, or be deleted meanwhile.
    """

    __slots__ = ("_directory_changed", "_epochs", "_files", "_home", "directory_missing", "end_offset", "generation")

    def __init__(
        self,
        home: LogDirectory,
        files: Sequence[File],
        directory_changed: bool,
        epochs: tuple[str, bytes] | None,
        end_offset: int,
        generation: int,
    ) -> None:
        self._home = home
        self._files = files
        self._directory_changed = directory_changed
        self._epochs = epochs
        self.end_offset = end_offset
        self.generation = generation
        self.directory_missing = False

    def run(self) -> None:
        """Block until all of it is durable. Raises StorageError; the log must then be failed, never synced again."""
        for file in self._files:
            file.sync()
        try:
            if self._epochs is not None:
                self._home.replace(*self._epochs)
            if self._directory_changed:
                self._home.filesystem.sync_directory(self._home.path)
        except FileNotFoundError:
            self.directory_missing = True
