"""The record kernel in plain Python: the reference for the native one, and its stand-in where none was built.

Both walk the *body* of a batch, the bytes after its header once decompressed. A record in it is

    length varint · attributes int8 · timestamp delta varlong · offset delta varint ·
    key length varint, key · value length varint, value · header count varint · headers

with zigzag varints; a negative length is null. The attributes are reserved: like Kafka, nothing looks at them.
Every function checks every length against what remains, that offset deltas rise, and that the records fill the
body; `InvalidRecords` contains what did not hold, in the same words from both kernels.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from penstock.wire.record_types import (
    BatchBody,
    BinaryColumn,
    Buffer,
    Columns,
    HeaderColumns,
    InvalidRecords,
    Keys,
    Record,
    RecordFacts,
    Scan,
)

KERNEL_NAME = "python"

# The smallest record: a length byte and six bytes of empty fields.
RECORD_SIZE_MIN = 7
BODY_SIZE_MAX = 0x7FFFFFFF
# Above it, a batch's last offset might not fit into an int64.
BASE_OFFSET_MAX = (1 << 63) - (1 << 32)

(
    NUMBER_CUT,
    NUMBER_LONG,
    FIELD_PAST_END,
    RECORD_PAST_END,
    RECORD_SHORT,
    RECORD_LONG,
    HEADER_COUNT,
    HEADER_KEY,
    OFFSET_ORDER,
    KEY_MISSING,
    BYTES_LEFT,
    RECORD_COUNT,
) = range(12)

REASONS = (
    "a number is cut off",
    "a number has too many bytes",
    "a field runs past the end of its record",
    "a record runs past the end of the batch",
    "a record is too short to be one",
    "a record has bytes left after its headers",
    "a record has fewer headers than it counts",
    "a header has no key",
    "the records' offsets are out of order",
    "a record has no key, and a compacted topic needs one",
    "bytes are left after the last record",
    "the batch holds fewer records than it counts",
)


class _Fields(NamedTuple):
    """Where the parts of one record lie; lengths of null fields are negative."""

    start: int
    timestamp_delta: int
    offset_delta: int
    key_start: int
    key_length: int
    value_start: int
    value_length: int
    header_count: int
    headers_start: int
    end: int


def _fail(reason: int, position: int) -> NoReturn:
    raise InvalidRecords(f"{REASONS[reason]} (byte {position} of the records)")


def _number(body: memoryview, position: int, end: int, bits: int) -> tuple[int, int]:
    """A zigzag varint of 32 or 64 bits; returns the value and the position after it."""
    result = shift = 0
    while True:
        if position >= end:
            _fail(NUMBER_CUT, position)
        byte = body[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            _fail(NUMBER_LONG, position)
    result &= (1 << bits) - 1
    return (result >> 1) ^ -(result & 1), position


def _field(body: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """A field's start, its length (negative for null) and the position after it."""
    length, start = _number(body, position, end, 32)
    if length > end - start:
        _fail(FIELD_PAST_END, start)
    return start, length, start + max(length, 0)


def _record(body: memoryview, start: int, previous_delta: int) -> _Fields:
    size = len(body)
    length, position = _number(body, start, size, 32)
    if length > size - position:
        _fail(RECORD_PAST_END, position)
    if length < RECORD_SIZE_MIN - 1:
        _fail(RECORD_SHORT, position)
    end = position + length
    timestamp_delta, position = _number(body, position + 1, end, 64)
    offset_delta, position = _number(body, position, end, 32)
    if offset_delta <= previous_delta:
        _fail(OFFSET_ORDER, position)
    key_start, key_length, position = _field(body, position, end)
    value_start, value_length, position = _field(body, position, end)
    header_count, headers_start = _number(body, position, end, 32)
    position = headers_start
    if header_count < 0 or header_count * 2 > end - position:
        _fail(HEADER_COUNT, position)
    for _ in range(header_count):
        _, header_key_length, position = _field(body, position, end)
        if header_key_length < 0:
            _fail(HEADER_KEY, position)
        position = _field(body, position, end)[2]
    if position != end:
        _fail(RECORD_LONG, position)
    return _Fields(
        start,
        timestamp_delta,
        offset_delta,
        key_start,
        key_length,
        value_start,
        value_length,
        header_count,
        headers_start,
        end,
    )


def _walk(body: memoryview, count: int) -> Iterator[_Fields]:
    if count < 0 or count * RECORD_SIZE_MIN > len(body):
        _fail(RECORD_COUNT, 0)
    position = 0
    offset_delta = -1
    for _ in range(count):
        record = _record(body, position, offset_delta)
        yield record
        position = record.end
        offset_delta = record.offset_delta
    if position != len(body):
        _fail(BYTES_LEFT, position)


def _view(body: Buffer) -> memoryview:
    view = memoryview(body)
    if len(view) > BODY_SIZE_MAX:
        raise InvalidRecords(f"a batch holds at most {BODY_SIZE_MAX} bytes of records")
    return view


def _int64(value: int) -> int:
    """Sums wrap around like Kafka's."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def validate_records(body: Buffer, count: int, *, require_keys: bool = False) -> RecordFacts:
    """Check a producer's records: sound, exactly `count`, offset deltas 0, 1, 2 …, keys where they are required."""
    facts = RecordFacts(0, -1, 0)
    view = _view(body)
    for index, record in enumerate(_walk(view, count)):
        if record.offset_delta != index:
            _fail(OFFSET_ORDER, record.start)
        if require_keys and record.key_length < 0:
            _fail(KEY_MISSING, record.start)
        delta = record.timestamp_delta
        if index == 0:
            facts = RecordFacts(delta, 0, delta)
        elif delta > facts.max_timestamp_delta:
            facts = RecordFacts(delta, index, facts.min_timestamp_delta)
        elif delta < facts.min_timestamp_delta:
            facts = facts._replace(min_timestamp_delta=delta)
    return facts


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytes:
    """The body of a batch that holds these records, their offsets and timestamps relative to the bases."""
    out = bytearray()
    previous_delta = -1
    for offset, timestamp, key, value, headers in records:
        offset_delta = offset - base_offset
        if not previous_delta < offset_delta <= BODY_SIZE_MAX:
            raise ValueError(f"offset {offset} does not follow in a batch that starts at {base_offset}")
        previous_delta = offset_delta
        record = bytearray(1)
        _append_number(record, _int64(timestamp - base_timestamp))
        _append_number(record, offset_delta)
        _append_field(record, key)
        _append_field(record, value)
        _append_number(record, len(headers))
        for header_key, header_value in headers:
            _append_field(record, header_key.encode())
            _append_field(record, header_value)
        _append_number(out, len(record))
        out += record
    return bytes(out)


def _append_number(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _append_field(out: bytearray, field: bytes | None) -> None:
    if field is None:
        out.append(1)
    else:
        _append_number(out, len(field))
        out += field


def decode_records(
    body: Buffer, count: int, base_offset: int, base_timestamp: int, fixed_timestamp: int | None = None
) -> list[Record]:
    """The records of a body, in order. `fixed_timestamp` is every record's timestamp where the broker set it.

    Offsets may have gaps (compaction leaves them). Header keys that are not UTF-8 are read with U+FFFD in place.
    """
    view = _view(body)
    records = []
    for record in _walk(view, count):
        timestamp = _int64(base_timestamp + record.timestamp_delta) if fixed_timestamp is None else fixed_timestamp
        records.append(
            Record(
                _int64(base_offset + record.offset_delta),
                timestamp,
                _bytes(view, record.key_start, record.key_length),
                _bytes(view, record.value_start, record.value_length),
                tuple(
                    (str(view[key_start : key_start + key_length], "utf-8", "replace"), _bytes(view, start, length))
                    for key_start, key_length, start, length in _headers(view, record)
                ),
            )
        )
    return records


def _bytes(body: memoryview, start: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(body[start : start + length])


def _headers(body: memoryview, record: _Fields) -> list[tuple[int, int, int, int]]:
    """Start and length of key and value, for each header of a record that was walked."""
    headers = []
    position = record.headers_start
    for _ in range(record.header_count):
        key_start, key_length, position = _field(body, position, record.end)
        value_start, value_length, position = _field(body, position, record.end)
        headers.append((key_start, key_length, value_start, value_length))
    return headers


def walk_keys(body: Buffer, count: int) -> Keys:
    """Where each record and its key lie."""
    records = list(_walk(_view(body), count))
    return Keys(
        memoryview(array("i", [record.offset_delta for record in records])),
        memoryview(array("q", [record.timestamp_delta for record in records])),
        memoryview(array("i", [record.start for record in records])),
        memoryview(array("i", [record.end for record in records])),
        memoryview(array("i", [record.key_start if record.key_length >= 0 else -1 for record in records])),
        memoryview(array("i", [record.key_start + record.key_length for record in records])),
        bytes(record.value_length < 0 for record in records),
    )


def filter_records(body: Buffer, keep: Buffer, timestamp_shift: int = 0) -> bytes:
    """The body with only those records whose byte in `keep`, one a record, is not 0; their offset deltas stay.

    `timestamp_shift` is added to every timestamp delta, for a batch whose base timestamp moves.
    """
    view = _view(body)
    out = bytearray()
    for record, kept in zip(_walk(view, len(keep)), keep, strict=True):
        if not kept:
            continue
        if timestamp_shift == 0:
            out += view[record.start : record.end]
            continue
        position = _number(view, record.start, record.end, 32)[1]
        rest = _number(view, position + 1, record.end, 64)[1]
        moved = bytearray(view[position : position + 1])
        _append_number(moved, _int64(record.timestamp_delta + timestamp_shift))
        _append_number(out, len(moved) + record.end - rest)
        out += moved
        out += view[rest : record.end]
    return bytes(out)


class OffsetMap:
    """The latest offset of every key, for compaction, in a bounded piece of memory.

    The native map keeps a keyed 128-bit hash in place of each key (24 bytes a slot, three quarters of them used), so
    `seed` should be sixteen bytes that strangers cannot guess. This one keeps the keys, to the same number.
    """

    def __init__(self, memory_bytes: int, seed: bytes = bytes(16)) -> None:
        if len(seed) != 16:
            raise ValueError("the seed has sixteen bytes")
        self.capacity = memory_bytes // 24 * 3 // 4
        if self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes are too few to hold a key")
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def get(self, key: Buffer) -> int:
        """The latest offset of a key, -1 if it has none."""
        return self._offsets.get(bytes(key), -1)

    def add(self, body: Buffer, count: int, base_offset: int) -> bool:
        """Take in a batch's keys. False, and nothing taken, if the map might not have room for all of them."""
        _check_base_offset(base_offset)
        view = _view(body)
        records = list(_walk(view, count))
        if len(self._offsets) + count > self.capacity:
            return False
        for record in records:
            key = _bytes(view, record.key_start, record.key_length)
            if key is not None:
                offset = base_offset + record.offset_delta
                self._offsets[key] = max(offset, self._offsets.get(key, -1))
        return True

    def keep(self, body: Buffer, count: int, base_offset: int, *, drop_tombstones: bool = False) -> bytes:
        """A mask for `filter_records`: 1 for each record that is its key's latest, or whose key the map lacks.

        Records without a key are never kept, those without a value only while `drop_tombstones` is false.
        """
        _check_base_offset(base_offset)
        view = _view(body)
        mask = bytearray()
        for record in _walk(view, count):
            key = _bytes(view, record.key_start, record.key_length)
            dropped = key is None or (drop_tombstones and record.value_length < 0)
            mask.append(not dropped and base_offset + record.offset_delta >= self._offsets.get(key or b"", -1))
        return bytes(mask)


def _check_base_offset(base_offset: int) -> None:
    if not 0 <= base_offset <= BASE_OFFSET_MAX:
        raise ValueError(f"{base_offset} is no offset that a batch can start at")


_HEADER = struct.Struct(">qiibIhiqq")
_HEADER_SIZE = 61
_LENGTH_MIN = 49


def scan_batches(buffer: Buffer, position: int, end: int, *, check_crc: bool = False) -> Scan:
    """Walk the batches between `position` and `end` of a piece of a segment, up to the first that is not sound.

    Sound means: magic 2, a length that holds a header, offsets that rise from batch to batch, and the right CRC if
    `check_crc` is set. The records are not looked at.
    """
    view = memoryview(buffer)
    if not 0 <= position <= end <= len(view):
        raise ValueError(f"bytes {position} to {end} lie outside a buffer of {len(view)}")
    batches: list[tuple[int, int, int, int, int]] = []
    next_offset = -1
    problem = None
    while end - position >= _HEADER_SIZE:
        base_offset, length, _, magic, crc, _, last_delta, _, max_timestamp = _HEADER.unpack_from(view, position)
        size = length + 12
        if magic != 2:
            problem = f"its magic is {magic}, not 2"
        elif length < _LENGTH_MIN:
            problem = f"its length is {length}, less than a header's"
        elif last_delta < 0 or base_offset < next_offset or not 0 <= base_offset <= BASE_OFFSET_MAX:
            problem = f"its offsets, {base_offset} and {last_delta} on, don't follow {next_offset - 1}"
        elif size <= end - position and check_crc and crc32c(view[position + 21 : position + size]) != crc:
            problem = "its CRC does not fit its bytes"
        if problem is not None or size > end - position:
            break
        next_offset = base_offset + last_delta + 1
        batches.append((position, size, base_offset, next_offset - 1, max_timestamp))
        position += size
    return Scan(batches, position, problem)


class _BinaryBuilder:
    """Grows the buffers of a binary column."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.offsets = array("i", [0])
        self.validity = bytearray()

    def append(self, body: memoryview, start: int, length: int) -> None:
        index = len(self.offsets) - 1
        if index % 8 == 0:
            self.validity.append(0)
        if length >= 0:
            self.validity[-1] |= 1 << index % 8
            self.data += body[start : start + length]
        self.offsets.append(len(self.data))

    def build(self) -> BinaryColumn:
        null_count = len(self.offsets) - 1 - sum(byte.bit_count() for byte in self.validity)
        return BinaryColumn(null_count, bytes(self.validity), self.offsets.tobytes(), bytes(self.data))


def columns(
    bodies: Sequence[BatchBody], start_offset: int = 0, end_offset: int = (1 << 63) - 1, *, headers: bool = False
) -> Columns:
    """Lay out the records of these bodies with start_offset <= offset < end_offset as Arrow buffers.

    Raises ValueError if the bodies have more bytes than one array's int32 offsets can count.
    """
    if sum(len(body.body) for body in bodies) > BODY_SIZE_MAX:
        raise ValueError(f"one call lays out at most {BODY_SIZE_MAX} bytes of records")
    offsets, timestamps = array("q"), array("q")
    keys, values = _BinaryBuilder(), _BinaryBuilder()
    header_offsets = array("i", [0])
    header_keys, header_values = _BinaryBuilder(), _BinaryBuilder()
    for body, count, base_offset, base_timestamp, fixed_timestamp in bodies:
        view = _view(body)
        for record in _walk(view, count):
            offset = _int64(base_offset + record.offset_delta)
            if not start_offset <= offset < end_offset:
                continue
            offsets.append(offset)
            timestamps.append(
                _int64(base_timestamp + record.timestamp_delta) if fixed_timestamp is None else fixed_timestamp
            )
            keys.append(view, record.key_start, record.key_length)
            values.append(view, record.value_start, record.value_length)
            if headers:
                for key_start, key_length, start, length in _headers(view, record):
                    header_keys.append(view, key_start, key_length)
                    header_values.append(view, start, length)
                header_offsets.append(len(header_keys.offsets) - 1)
    header_columns = None
    if headers:
        header_columns = HeaderColumns(
            header_offsets[-1], header_offsets.tobytes(), header_keys.build(), header_values.build()
        )
    return Columns(len(offsets), offsets.tobytes(), timestamps.tobytes(), keys.build(), values.build(), header_columns)


def murmur2(data: Buffer) -> int:
    """The 32-bit MurmurHash2 that Kafka's clients partition by, as the signed number that Java gives."""
    view = memoryview(data)
    length = len(view)
    multiplier = 0x5BD1E995
    result = 0x9747B28C ^ length
    for (word,) in struct.iter_unpack("<I", view[: length & ~3]):
        word = word * multiplier & 0xFFFFFFFF
        word = (word ^ word >> 24) * multiplier & 0xFFFFFFFF
        result = result * multiplier & 0xFFFFFFFF ^ word
    if length & 3:
        result = (result ^ int.from_bytes(view[length & ~3 :], "little")) * multiplier & 0xFFFFFFFF
    result = (result ^ result >> 13) * multiplier & 0xFFFFFFFF
    result ^= result >> 15
    return result - (1 << 32) if result & 0x80000000 else result
