"""A stretch of whole batches in one segment file, found but not yet read."""

from __future__ import annotations

from penstock.storage.files import File
from penstock.storage.scan import valid_prefix


class LogSlice:
    """`size` bytes at `position` of `file`; stays readable after its segment is closed or deleted.

    `must_verify` says that the bytes have lain on disk unseen: `read` then checks them and hands out only what is
    whole. Send the file's bytes directly only where it is False.
    """

    __slots__ = ("file", "must_verify", "position", "size")

    def __init__(self, file: File | None, position: int, size: int, must_verify: bool) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.must_verify = must_verify

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The batches. Raises CorruptLogError when the first of them is damaged, StorageError when the disk fails."""
        if self.file is None:
            return b""
        data = self.file.read(self.position, self.size)
        return valid_prefix(data, self.file, self.position) if self.must_verify else data


EMPTY_SLICE = LogSlice(None, 0, 0, False)
