"""What the record modules and the kernel share: a record, and the ways in which a batch can be bad.

Every error here is a `BatchError`: the peer (or the disk) gave bytes that are not a sound batch. None of them
means a bug of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class RefusedRecords(BatchError):
    """Sound records that a rule of their topic refuses; `refused` has the place in the batch and the reason of each."""

    def __init__(self, code: ErrorCode, message: str, refused: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.refused = refused


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


class RecordFacts(NamedTuple):
    """What checking a batch's records tells about their timestamps, relative to the batch's base.

    The offset delta is the first record's that has the largest timestamp.
    """

    max_timestamp_delta: int
    offset_delta_of_max_timestamp: int
    min_timestamp_delta: int


class Keys(NamedTuple):
    """Where a batch's records and their keys lie: parallel int arrays, one entry a record.

    `starts` to `ends` is a whole record, `key_starts` to `key_ends` its key within the body; a missing key starts
    at -1. `tombstones` has 1 for records without a value.
    """

    offset_deltas: memoryview
    timestamp_deltas: memoryview
    starts: memoryview
    ends: memoryview
    key_starts: memoryview
    key_ends: memoryview
    tombstones: bytes


class Scan(NamedTuple):
    """The whole batches of a stretch of a segment, and where the walk ended.

    Each batch is (position, size, base offset, last offset, max timestamp). `position` is where the first byte lies
    that belongs to none of them. `problem` is None if only more bytes are needed there (or nothing is left), else
    it is what is wrong with the batch that starts there.
    """

    batches: list[tuple[int, int, int, int, int]]
    position: int
    problem: str | None


class BatchBody(NamedTuple):
    """A batch's decompressed records, and what turns their deltas into offsets and timestamps."""

    body: Buffer
    records_count: int
    base_offset: int
    base_timestamp: int
    fixed_timestamp: int | None


class BinaryColumn(NamedTuple):
    """The buffers of an Arrow binary array: validity bits, int32 offsets, bytes."""

    null_count: int
    validity: bytes
    offsets: bytes
    data: bytes


class HeaderColumns(NamedTuple):
    """The buffers of an Arrow list<struct<key, value>> array: int32 list offsets, then the entries of all lists."""

    headers_count: int
    list_offsets: bytes
    keys: BinaryColumn
    values: BinaryColumn


class Columns(NamedTuple):
    """Records as Arrow buffers: int64 offsets and timestamps, binary keys and values, headers if requested."""

    records_count: int
    offsets: bytes
    timestamps: bytes
    keys: BinaryColumn
    values: BinaryColumn
    headers: HeaderColumns | None
