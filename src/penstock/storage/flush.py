"""A sync in progress: taken from a log, run where blocking is allowed, and handed back."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.storage.files import File, StorageError
from penstock.storage.partition_files import PartitionFiles


class FlushTicket:
    """What must become durable for the log to be safe up to `end_offset`.

    `run` may be called in any thread: it only touches open files and one checkpoint whose content was fixed when the
    ticket was created. The log may be appended to, rolled, or deleted meanwhile.
    """

    __slots__ = (
        "_directory_changed",
        "_epochs",
        "_files",
        "_home",
        "delay",
        "directory_missing",
        "end_offset",
        "epochs_unsaved",
        "generation",
    )

    def __init__(
        self,
        home: PartitionFiles,
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
        self.epochs_unsaved = False
        # Why the directory is not synced, where only descriptors were missing for it: all else is durable.
        self.delay: StorageError | None = None

    @property
    def only_file(self) -> File | None:
        """The file whose sync is all that `run` does; None if it does more."""
        if len(self._files) == 1 and self._epochs is None and not self._directory_changed:
            return self._files[0]
        return None

    def run(self) -> None:
        """Block until all of it is durable. Raises StorageError; the log must then be failed, never synced again."""
        assert not self.directory_missing, "a ticket is run once"
        assert self.delay is None
        for file in self._files:
            file.sync()
        try:
            if self._epochs is not None:
                self._save_epochs(*self._epochs)
            if self._directory_changed:
                self._sync_directory()
        except FileNotFoundError:
            self.directory_missing = True

    def _sync_directory(self) -> None:
        """A directory that could not even be opened was not synced in vain: the next sync has it, too."""
        try:
            self._home.filesystem.sync_directory(self._home.path)
        except StorageError as error:
            if not error.lacks_descriptors:
                raise
            self.delay = error

    def _save_epochs(self, name: str, content: bytes) -> None:
        """A full disk does not make this fail: epochs can be rebuilt from the batches."""
        try:
            self._home.replace(name, content)
        except StorageError as error:
            if not error.is_passing:
                raise
            self.epochs_unsaved = True
