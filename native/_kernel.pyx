# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The record kernel, compiled. Its twin in Python documents what each function promises; both pass the same tests.

A walk reads one record after the other into a `Fields`. Nothing is read before it is known to lie inside the
body, and nothing is sized by a number from the body before the body is known to be able to hold it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from crc32c import crc32c

from penstock.wire._kernel_py import BASE_OFFSET_MAX as _BASE_OFFSET_MAX
from penstock.wire._kernel_py import BODY_SIZE_MAX as _BODY_SIZE_MAX
from penstock.wire._kernel_py import REASONS
from penstock.wire.record_types import (
    BinaryColumn,
    Columns,
    HeaderColumns,
    InvalidRecords,
    Keys,
    Record,
    RecordFacts,
    Scan,
)

cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size) except NULL
    char* bytes_data "PyBytes_AS_STRING"(PyObject* value)
    int _PyBytes_Resize(PyObject** value, Py_ssize_t size) except -1

KERNEL_NAME = "native"

include "walk.pxi"


def validate_records(body, int64_t count, *, bint require_keys=False):
    cdef Body source = Body(body)
    cdef Cursor* at = &source.at
    cdef Fields record
    cdef int problem
    cdef int64_t index, highest = 0, lowest = 0, highest_at = -1
    check(check_count(at, count), at)
    record.offset_delta = -1
    for index in range(count):
        problem = read_record(at, record.offset_delta, &record)
        if problem == SOUND and (record.offset_delta != index or (require_keys and record.key_length < 0)):
            problem = OFFSET_ORDER if record.offset_delta != index else KEY_MISSING
            at.position = record.start
        check(problem, at)
        if index == 0 or record.timestamp_delta > highest:
            highest = record.timestamp_delta
            highest_at = index
        if index == 0 or record.timestamp_delta < lowest:
            lowest = record.timestamp_delta
    check(check_end(at), at)
    return RecordFacts(highest, highest_at, lowest)


cdef inline Py_ssize_t varint_size(int64_t number) noexcept nogil:
    cdef uint64_t value = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    cdef Py_ssize_t size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


cdef inline char* put_varint(char* out, int64_t number) noexcept nogil:
    cdef uint64_t value = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    while value > 0x7F:
        out[0] = <char>((value & 0x7F) | 0x80)
        out += 1
        value >>= 7
    out[0] = <char>value
    return out + 1


cdef inline Py_ssize_t field_size(field) except -1:
    if field is None:
        return 1
    return varint_size(PyBytes_GET_SIZE(field)) + PyBytes_GET_SIZE(field)


cdef inline char* put_field(char* out, field):
    if field is None:
        out[0] = 1
        return out + 1
    cdef Py_ssize_t size = PyBytes_GET_SIZE(field)
    out = put_varint(out, size)
    memcpy(out, PyBytes_AS_STRING(field), size)
    return out + size


cdef inline as_bytes(field):
    return field if field is None or type(field) is bytes else bytes(field)


def encode_records(records, int64_t base_offset, int64_t base_timestamp):
    cdef list parts = []
    cdef int64_t offset_delta, previous_delta = -1, timestamp_delta
    cdef Py_ssize_t size
    cdef Out out
    cdef char* end
    for offset, timestamp, key, value, headers in records:
        offset_delta = offset - base_offset
        if not previous_delta < offset_delta <= BODY_SIZE_MAX:
            raise ValueError(f"offset {offset} does not follow in a batch that starts at {base_offset}")
        previous_delta = offset_delta
        timestamp_delta = <int64_t>(<uint64_t><int64_t>timestamp - <uint64_t>base_timestamp)
        key = as_bytes(key)
        value = as_bytes(value)
        fields = [as_bytes(field) for name, content in headers for field in (name.encode(), content)] if headers else ()
        size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + field_size(key) + field_size(value)
        size += varint_size(len(headers))
        for field in fields:
            size += field_size(field)
        out = Out(size + varint_size(size))
        end = put_varint(out.data, size)
        end[0] = 0
        end = put_varint(end + 1, timestamp_delta)
        end = put_varint(end, offset_delta)
        end = put_field(end, key)
        end = put_field(end, value)
        end = put_varint(end, len(headers))
        for field in fields:
            end = put_field(end, field)
        parts.append(out.finish(end - out.data))
    return b"".join(parts)


cdef inline slice_bytes(const Cursor* at, Py_ssize_t start, int32_t length):
    return None if length < 0 else (<const char*>at.data)[start : start + length]


cdef tuple decode_headers(const Cursor* at, const Fields* record):
    cdef Cursor inner = at[0]
    cdef Header header
    cdef int32_t index
    cdef list headers = []
    inner.position = record.headers_start
    for index in range(record.header_count):
        check(read_header(&inner, record.end, &header), &inner)
        key = PyUnicode_DecodeUTF8(<char*>at.data + header.key_start, header.key_length, "replace")
        headers.append((key, slice_bytes(at, header.value_start, header.value_length)))
    return tuple(headers)


cdef object _new_tuple = tuple.__new__


def decode_records(body, int64_t count, int64_t base_offset, int64_t base_timestamp, fixed_timestamp=None):
    cdef Body source = Body(body)
    cdef Cursor* at = &source.at
    cdef Fields record
    cdef int64_t index
    cdef list records = []
    check(check_count(at, count), at)
    record.offset_delta = -1
    for index in range(count):
        check(read_record(at, record.offset_delta, &record), at)
        fields = (
            add(base_offset, record.offset_delta),
            add(base_timestamp, record.timestamp_delta) if fixed_timestamp is None else fixed_timestamp,
            slice_bytes(at, record.key_start, record.key_length),
            slice_bytes(at, record.value_start, record.value_length),
            decode_headers(at, &record) if record.header_count else (),
        )
        records.append(_new_tuple(Record, fields))
    check(check_end(at), at)
    return records


def walk_keys(body, int64_t count):
    cdef Body source = Body(body)
    cdef Cursor* at = &source.at
    cdef Fields record
    cdef int64_t index
    check(check_count(at, count), at)
    cdef Out offset_deltas = Out(count * 4), timestamp_deltas = Out(count * 8), tombstones = Out(count)
    cdef Out starts = Out(count * 4), ends = Out(count * 4), key_starts = Out(count * 4), key_ends = Out(count * 4)
    record.offset_delta = -1
    for index in range(count):
        check(read_record(at, record.offset_delta, &record), at)
        (<int32_t*>offset_deltas.data)[index] = record.offset_delta
        (<int64_t*>timestamp_deltas.data)[index] = record.timestamp_delta
        (<int32_t*>starts.data)[index] = <int32_t>record.start
        (<int32_t*>ends.data)[index] = <int32_t>record.end
        (<int32_t*>key_starts.data)[index] = <int32_t>record.key_start if record.key_length >= 0 else -1
        (<int32_t*>key_ends.data)[index] = <int32_t>(record.key_start + record.key_length)
        tombstones.data[index] = record.value_length < 0
    check(check_end(at), at)
    return Keys(
        memoryview(offset_deltas.finish(count * 4)).cast("i"),
        memoryview(timestamp_deltas.finish(count * 8)).cast("q"),
        memoryview(starts.finish(count * 4)).cast("i"),
        memoryview(ends.finish(count * 4)).cast("i"),
        memoryview(key_starts.finish(count * 4)).cast("i"),
        memoryview(key_ends.finish(count * 4)).cast("i"),
        tombstones.finish(count),
    )


cdef inline char* put_moved(char* out, const Cursor* at, const Fields* record, int64_t shift) noexcept nogil:
    cdef int64_t delta = add(record.timestamp_delta, shift)
    cdef Py_ssize_t rest = record.end - record.timestamp_end
    out = put_varint(out, 1 + varint_size(delta) + rest)
    out[0] = <char>at.data[record.length_end]
    out = put_varint(out + 1, delta)
    memcpy(out, at.data + record.timestamp_end, rest)
    return out + rest


def filter_records(body, keep, int64_t timestamp_shift=0):
    cdef Body source = Body(body)
    cdef Body mask = Body(keep)
    cdef Cursor* at = &source.at
    cdef Fields record
    cdef Py_ssize_t index, count = mask.at.size
    check(check_count(at, count), at)
    # A shifted timestamp is at most nine bytes longer, and so may be the record's length by one.
    cdef Out out = Out(at.size + (10 * count if timestamp_shift else 0))
    cdef char* end = out.data
    record.offset_delta = -1
    for index in range(count):
        check(read_record(at, record.offset_delta, &record), at)
        if mask.at.data[index]:
            if timestamp_shift:
                end = put_moved(end, at, &record, timestamp_shift)
            else:
                memcpy(end, at.data + record.start, record.end - record.start)
                end += record.end - record.start
    check(check_end(at), at)
    return out.finish(end - out.data)


cdef inline uint64_t big_endian(const uint8_t* data, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int index
    for index in range(size):
        value = value << 8 | data[index]
    return value


cdef enum:
    HEADER_SIZE = 61
    LENGTH_MIN = 49


def scan_batches(buffer, Py_ssize_t position, Py_ssize_t end, *, bint check_crc=False):
    cdef Py_buffer raw
    view = memoryview(buffer)
    if not 0 <= position <= end <= len(view):
        raise ValueError(f"bytes {position} to {end} lie outside a buffer of {len(view)}")
    PyObject_GetBuffer(view, &raw, PyBUF_SIMPLE)
    try:
        return scan(view, <const uint8_t*>raw.buf, position, end, check_crc)
    finally:
        PyBuffer_Release(&raw)


cdef scan(view, const uint8_t* data, Py_ssize_t position, Py_ssize_t end, bint check_crc):
    cdef list batches = []
    cdef const uint8_t* header
    cdef int64_t base_offset, next_offset = -1
    cdef int32_t length, last_delta
    cdef Py_ssize_t size
    problem = None
    while end - position >= HEADER_SIZE:
        header = data + position
        base_offset = <int64_t>big_endian(header, 8)
        length = <int32_t>big_endian(header + 8, 4)
        last_delta = <int32_t>big_endian(header + 23, 4)
        size = <Py_ssize_t>length + 12
        if header[16] != 2:
            problem = f"its magic is {<signed char>header[16]}, not 2"
        elif length < LENGTH_MIN:
            problem = f"its length is {length}, less than a header's"
        elif last_delta < 0 or base_offset < next_offset or not 0 <= base_offset <= BASE_OFFSET_MAX:
            problem = f"its offsets, {base_offset} and {last_delta} on, don't follow {next_offset - 1}"
        elif size <= end - position and check_crc:
            if <uint32_t>crc32c(view[position + 21 : position + size]) != <uint32_t>big_endian(header + 17, 4):
                problem = "its CRC does not fit its bytes"
        if problem is not None or size > end - position:
            break
        next_offset = base_offset + last_delta + 1
        batches.append((position, size, base_offset, next_offset - 1, <int64_t>big_endian(header + 35, 8)))
        position += size
    return Scan(batches, position, problem)


def murmur2(data):
    cdef Body source = Body(data)
    cdef const uint8_t* bytes = source.at.data
    cdef Py_ssize_t size = source.at.size, position = 0
    cdef uint32_t multiplier = 0x5BD1E995, word, tail = 0
    cdef uint32_t result = <uint32_t>0x9747B28C ^ <uint32_t>size
    while size - position >= 4:
        word = (
            bytes[position]
            | <uint32_t>bytes[position + 1] << 8
            | <uint32_t>bytes[position + 2] << 16
            | <uint32_t>bytes[position + 3] << 24
        )
        word *= multiplier
        word ^= word >> 24
        result = result * multiplier ^ word * multiplier
        position += 4
    if position < size:
        while size > position:
            size -= 1
            tail = tail << 8 | bytes[size]
        result = (result ^ tail) * multiplier
    result ^= result >> 13
    result *= multiplier
    result ^= result >> 15
    return <int32_t>result


include "offset_map.pxi"
include "columns.pxi"
