"""What the record modules and the kernel share: a record, and the ways in which a batch can be bad.

Every error here is a `BatchError`: the peer (or the disk) gave bytes that are not a sound batch. None of them
means a bug of ours.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.errors import ApiError, ErrorCode

# Anything that gives contiguous bytes without a copy.
Buffer = bytes | bytearray | memoryview


class BatchError(ApiError):
    """A batch that cannot be taken; the subclasses say why."""


class CorruptBatch(BatchError):
    """Bytes that are no whole, undamaged batch: cut short, lengths that don't fit, a wrong CRC, broken compression."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, reason)


class UnsupportedMagic(BatchError):
    """A message set of the formats that Kafka retired in 4.0 (magic 0 and 1)."""

    def __init__(self, magic: int) -> None:
        super().__init__(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"the records have message format v{magic} (magic {magic}), only v2 is supported: "
            "upgrade the client to one that speaks Kafka 0.11 or later",
        )


class InvalidRecords(BatchError, ValueError):
    """A whole batch whose records break the format, or a rule of the topic."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, reason)


class DecompressionTooLarge(InvalidRecords):
    """Compressed records that would unfold past the limit; unfolding stopped there."""

    def __init__(self, size_bytes_max: int) -> None:
        super().__init__(
            f"the records decompress to more than {size_bytes_max} bytes, the most that is unfolded for one batch: "
            "send smaller batches"
        )


class BatchTooLarge(BatchError):
    """A batch above the topic's `max.message.bytes`."""

    def __init__(self, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size_bytes} bytes, the topic takes at most {size_bytes_max}: "
            "send smaller batches or raise max.message.bytes",
        )


class Record(NamedTuple):
    """One record as an application sees it; `offset` and `timestamp` are absolute."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
