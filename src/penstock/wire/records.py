"""RecordBatch v2: what a broker does with a batch without looking at its records.

    base offset int64 · length int32 · partition leader epoch int32 · magic int8 · crc uint32 ·
    attributes int16 · last offset delta int32 · base timestamp int64 · max timestamp int64 ·
    producer id int64 · producer epoch int16 · base sequence int32 · record count int32 · records

`length` counts what follows it. The CRC-32C covers everything from the attributes on, so base offset and leader
epoch are assigned in place without touching it. The records are compressed as one piece; the kernel walks them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from penstock.wire import kernel
from penstock.wire.compression import Compression, compress, decompress
from penstock.wire.record_types import (
    BatchError,
    BatchTooLarge,
    Buffer,
    CorruptBatch,
    DecompressionTooLarge,
    InvalidRecords,
    Record,
    UnsupportedMagic,
)

__all__ = [
    "HEADER_SIZE",
    "BatchError",
    "BatchHeader",
    "BatchTooLarge",
    "Buffer",
    "Compression",
    "ControlType",
    "CorruptBatch",
    "DecompressionTooLarge",
    "InvalidRecords",
    "Record",
    "TimestampType",
    "UnsupportedMagic",
    "build_batch",
    "check_crc",
    "check_produced",
    "control_key",
    "control_type",
    "patch",
    "patch_timestamps",
    "read_body",
    "read_header",
    "read_records",
    "recompress",
    "split_batches",
]

HEADER_SIZE = 61
# The bytes before `length` counts: base offset and the length itself.
LENGTH_OVERHEAD = 12
MAGIC = 2
NO_TIMESTAMP = -1
NO_SEQUENCE = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_CONTROL_KEY = struct.Struct(">hh")

_LENGTH_MIN = HEADER_SIZE - LENGTH_OVERHEAD
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35

_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40
_INT32_MAX = 0x7FFFFFFF
_CODECS = tuple(Compression)


class TimestampType(IntEnum):
    """Who set the records' timestamps: the producer, or the broker as it appended them."""

    CREATE = 0
    LOG_APPEND = 1


class ControlType(IntEnum):
    """What a record of a control batch means."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class BatchHeader(NamedTuple):
    """The header's fields in their order on the wire."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec; CorruptBatch for a number that stands for none."""
        codec = self.attributes & _COMPRESSION_MASK
        if codec > Compression.ZSTD:
            raise CorruptBatch(f"compression codec {codec} is unknown")
        return _CODECS[codec]

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND if self.attributes & _LOG_APPEND_TIME else TimestampType.CREATE

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def delete_horizon(self) -> int | None:
        """When compaction may drop the batch's tombstones; it takes the base timestamp's place."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """The last record's sequence; sequences continue from 0 after the largest int32."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _INT32_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Raises UnsupportedMagic for formats 0 and 1, CorruptBatch for what is no header.

    The records may still be cut off: compare `size_bytes` with what there is.
    """
    if len(buffer) - position < HEADER_SIZE:
        _refuse_magic(buffer, position)
        raise CorruptBatch(f"a batch has a header of {HEADER_SIZE} bytes, only {len(buffer) - position} are left")
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    if header[3] != MAGIC:
        _refuse_magic(buffer, position)
    if header[1] < _LENGTH_MIN:
        raise CorruptBatch(f"a batch gives its length as {header[1]}, less than its header's")
    return header


def _refuse_magic(buffer: Buffer, position: int) -> None:
    """All formats keep their magic in the same place, so that old ones are told from garbage."""
    if len(buffer) - position <= _MAGIC_AT:
        return
    magic = buffer[position + _MAGIC_AT]
    if magic in (0, 1):
        raise UnsupportedMagic(magic)
    if magic != MAGIC:
        raise CorruptBatch(f"magic {magic} is no known record format")


def split_batches(buffer: Buffer, size_max: int) -> list[tuple[int, BatchHeader]]:
    """Every batch of a payload with its position. All are whole and together they are the buffer, or it raises.

    `size_max` limits each batch (BatchTooLarge). Neither the CRC nor the records are looked at.
    """
    batches = []
    position = 0
    size = len(buffer)
    while position < size:
        header = read_header(buffer, position)
        batch_size = header[1] + LENGTH_OVERHEAD
        if batch_size > size_max:
            raise BatchTooLarge(batch_size, size_max)
        if batch_size > size - position:
            raise CorruptBatch(f"a batch of {batch_size} bytes is cut short, only {size - position} are left")
        batches.append((position, header))
        position += batch_size
    return batches


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptBatch unless the batch's bytes are the ones its producer summed."""
    end = position + header[1] + LENGTH_OVERHEAD
    if end > len(buffer):
        raise CorruptBatch(f"a batch of {header.size_bytes} bytes is cut short, only {len(buffer) - position} are left")
    crc = crc32c(memoryview(buffer)[position + _ATTRIBUTES_AT : end])
    if crc != header[4]:
        raise CorruptBatch(
            f"the batch's CRC is {header[4]:#010x}, its bytes give {crc:#010x}: it was damaged on the way"
        )


def check_produced(header: BatchHeader) -> None:
    """The rules for a batch that a client sends, as far as its header tells; raises InvalidRecords."""
    count = header.records_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise InvalidRecords(f"the batch counts {count} records, its last offset delta is {header.last_offset_delta}")
    if header.attributes & _CONTROL:
        raise InvalidRecords("clients may not write control batches")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecords(f"a batch of producer {header.producer_id} needs a sequence and an epoch")
    if header.attributes & _TRANSACTIONAL and header.producer_id < 0:
        raise InvalidRecords("a transactional batch needs a producer id")


def patch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Assign offset and leader epoch in place; the CRC does not cover them."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def patch_timestamps(
    buffer: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    max_timestamp: int,
    timestamp_type: TimestampType = TimestampType.LOG_APPEND,
) -> BatchHeader:
    """Set the batch's largest timestamp and who set it, in place with a new CRC; returns the header as it is now.

    With LOG_APPEND every record's timestamp is `max_timestamp`, whatever the records themselves say.
    """
    attributes = header.attributes & ~_LOG_APPEND_TIME
    if timestamp_type is TimestampType.LOG_APPEND:
        attributes |= _LOG_APPEND_TIME
    _INT16.pack_into(buffer, position + _ATTRIBUTES_AT, attributes)
    _INT64.pack_into(buffer, position + _MAX_TIMESTAMP_AT, max_timestamp)
    crc = crc32c(memoryview(buffer)[position + _ATTRIBUTES_AT : position + header.size_bytes])
    _UINT32.pack_into(buffer, position + _CRC_AT, crc)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)


def read_body(buffer: Buffer, position: int, header: BatchHeader, size_max: int) -> Buffer:
    """The batch's records as bytes, decompressed to at most `size_max`; a view of `buffer` where they are plain."""
    end = position + header[1] + LENGTH_OVERHEAD
    if end > len(buffer):
        raise CorruptBatch(f"a batch of {header.size_bytes} bytes is cut short, only {len(buffer) - position} are left")
    body = memoryview(buffer)[position + HEADER_SIZE : end]
    if not header[5] & _COMPRESSION_MASK:
        return body
    return decompress(header.compression, body, size_max)


def read_records(buffer: Buffer, size_max: int, position: int = 0) -> list[Record]:
    """The records of the batch at `position`, decompressed to at most `size_max` bytes. The CRC is not checked."""
    header = read_header(buffer, position)
    body = read_body(buffer, position, header, size_max)
    fixed_timestamp = header.max_timestamp if header.attributes & _LOG_APPEND_TIME else None
    return kernel.decode_records(body, header.records_count, header.base_offset, header.base_timestamp, fixed_timestamp)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    compression: int = Compression.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE,
    delete_horizon: int | None = None,
) -> bytes:
    """One batch of these records, whose offsets rise from `base_offset` on.

    A batch that compaction thinned out keeps its range with `last_offset_delta`; it may even be empty.
    """
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    attributes = compression | (_LOG_APPEND_TIME if timestamp_type else 0)
    if delete_horizon is not None:
        base_timestamp = delete_horizon
        attributes |= _DELETE_HORIZON
    attributes |= (_TRANSACTIONAL if transactional else 0) | (_CONTROL if control else 0)
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base_offset if records else 0
    body = kernel.encode_records(records, base_offset, base_timestamp)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max((record.timestamp for record in records), default=NO_TIMESTAMP),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return assemble(header, compress(compression, body, level) if compression else body)


def assemble(header: BatchHeader, body: Buffer) -> bytes:
    """Header and (compressed) body as one batch; length and CRC are worked out here, the other fields kept."""
    batch = bytearray(_HEADER.pack(*header))
    batch += body
    _INT32.pack_into(batch, 8, len(batch) - LENGTH_OVERHEAD)
    _UINT32.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
    return bytes(batch)


def recompress(batch: Buffer, header: BatchHeader, codec: int, level: int | None, size_max: int) -> bytes:
    """The same batch with its records compressed by `codec`; every field but length, codec and CRC is kept."""
    body = read_body(batch, 0, header, size_max)
    attributes = header.attributes & ~_COMPRESSION_MASK | codec
    return assemble(header._replace(attributes=attributes), compress(codec, body, level))


def control_key(control_type: ControlType, version: int = 0) -> bytes:
    """The key of a control record."""
    return _CONTROL_KEY.pack(version, control_type)


def control_type(key: bytes | None) -> ControlType | None:
    """The type of the control record with this key; None for types of a later Kafka. Raises InvalidRecords."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise InvalidRecords("a control record's key is shorter than four bytes")
    value = _CONTROL_KEY.unpack_from(key)[1]
    return ControlType(value) if value in _CONTROL_TYPES else None


_CONTROL_TYPES = frozenset(ControlType)
