"""The record kernel in plain Python: the reference for the native one, and its stand-in where none was built.

Both walk the *body* of a batch, the bytes after its header once decompressed. A record in it is

    length varint · attributes int8 · timestamp delta varlong · offset delta varint ·
    key length varint, key · value length varint, value · header count varint · headers

with zigzag varints; a negative length is null. The attributes are reserved: like Kafka, nothing looks at them.
Every length is checked against what remains, and `InvalidRecords` says what did not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.wire.record_types import Buffer, InvalidRecords, Record

KERNEL_NAME = "python"

# The smallest record: a length byte and six bytes of empty fields.
RECORD_SIZE_MIN = 7


def _varint(body: memoryview, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most five bytes; returns the value and the position after it."""
    result = shift = 0
    while True:
        if position >= end:
            raise InvalidRecords(f"a number is cut off at byte {position} of the records")
        byte = body[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise InvalidRecords(f"a number before byte {position} of the records is longer than five bytes")
    result &= 0xFFFFFFFF
    return (result >> 1) ^ -(result & 1), position


def _varlong(body: memoryview, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes; returns the value and the position after it."""
    result = shift = 0
    while True:
        if position >= end:
            raise InvalidRecords(f"a number is cut off at byte {position} of the records")
        byte = body[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise InvalidRecords(f"a number before byte {position} of the records is longer than ten bytes")
    result &= 0xFFFFFFFFFFFFFFFF
    return (result >> 1) ^ -(result & 1), position


def _span(body: memoryview, position: int, end: int) -> tuple[int, int]:
    """The length of a field and where its bytes start; they are known to lie before `end`."""
    length, position = _varint(body, position, end)
    if length > end - position:
        raise InvalidRecords(f"a field of {length} bytes at byte {position} of the records runs past its record's end")
    return length, position


def check_count(body_size: int, count: int) -> None:
    """Refuse a record count that the body cannot hold, before anything is sized by it."""
    if count < 0 or count * RECORD_SIZE_MIN > body_size:
        raise InvalidRecords(f"the batch counts {count} records, its {body_size} bytes cannot hold them")


def _append_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _append_field(out: bytearray, field: bytes | None) -> None:
    if field is None:
        out.append(1)
    else:
        _append_varint(out, len(field))
        out += field


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytes:
    """The body of a batch that holds these records, their offsets and timestamps relative to the bases."""
    out = bytearray()
    for offset, timestamp, key, value, headers in records:
        record = bytearray(1)
        _append_varint(record, timestamp - base_timestamp)
        _append_varint(record, offset - base_offset)
        _append_field(record, key)
        _append_field(record, value)
        _append_varint(record, len(headers))
        for header_key, header_value in headers:
            _append_field(record, header_key.encode())
            _append_field(record, header_value)
        _append_varint(out, len(record))
        out += record
    return bytes(out)


def decode_records(
    body: Buffer, count: int, base_offset: int, base_timestamp: int, fixed_timestamp: int | None = None
) -> list[Record]:
    """The records of a body, in order. `fixed_timestamp` is every record's timestamp where the broker set it.

    Offsets may have gaps (compaction leaves them). Header keys that are not UTF-8 are read with U+FFFD in place.
    """
    view = memoryview(body)
    size = len(view)
    check_count(size, count)
    records = []
    position = 0
    for _ in range(count):
        length, position = _span(view, position, size)
        if length < RECORD_SIZE_MIN - 1:
            raise InvalidRecords(f"a record of {length} bytes at byte {position} is too short to be one")
        end = position + length
        timestamp, position = _varlong(view, position + 1, end)
        offset, position = _varint(view, position, end)
        key, position = _field(view, position, end)
        value, position = _field(view, position, end)
        headers, position = _headers(view, position, end)
        if position != end:
            raise InvalidRecords(f"a record has {end - position} bytes after its headers")
        timestamp = base_timestamp + timestamp if fixed_timestamp is None else fixed_timestamp
        records.append(Record(base_offset + offset, timestamp, key, value, headers))
    if position != size:
        raise InvalidRecords(f"the records end at byte {position} of {size}")
    return records


def _field(body: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _span(body, position, end)
    if length < 0:
        return None, position
    return bytes(body[position : position + length]), position + length


def _headers(body: memoryview, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = _varint(body, position, end)
    if count == 0:
        return (), position
    if count < 0 or count * 2 > end - position:
        raise InvalidRecords(f"a record counts {count} headers, {end - position} bytes cannot hold them")
    headers = []
    for _ in range(count):
        key, position = _field(body, position, end)
        if key is None:
            raise InvalidRecords("a header has no key")
        value, position = _field(body, position, end)
        headers.append((key.decode(errors="replace"), value))
    return tuple(headers), position
