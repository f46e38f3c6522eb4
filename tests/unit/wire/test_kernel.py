"""Both kernels: they check and read records alike, and refuse the same bodies in the same words."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_values import NATIVE, NOW_MS, SAMPLE, each_kernel, needs_native, record_lists

from penstock.wire import _kernel_py, kernel
from penstock.wire.record_types import BatchBody, InvalidRecords, Record, RecordFacts
from penstock.wire.records import Compression, build_batch, patch, read_header

PLAIN = [Record(i, NOW_MS + 10 * (i % 3), b"key-%d" % i, b"value") for i in range(6)]


def body_of(records: list[Record], base_timestamp: int = NOW_MS) -> bytes:
    return _kernel_py.encode_records(records, 0, base_timestamp)


def varint(value: int) -> bytes:
    out = bytearray()
    _kernel_py._append_number(out, value)
    return bytes(out)


def framed(content: bytes) -> bytes:
    return varint(len(content)) + content


@each_kernel
def test_valid_records_pass_and_return_their_timestamps(kernel: ModuleType) -> None:
    assert kernel.validate_records(body_of(PLAIN), 6, require_keys=True) == RecordFacts(20, 2, 0)
    assert kernel.validate_records(body_of(SAMPLE), 6) == RecordFacts(9_000_000, 5, -70_000)
    assert kernel.validate_records(b"", 0) == RecordFacts(0, -1, 0)


BAD_BODIES = {
    "a number is cut off": [(body_of(PLAIN[:1]) + b"\x80\x80", 2), (framed(b"\0\0\x80\x80\x80\x80"), 1)],
    "too many bytes": [(b"\x80" * 5 + b"\0" * 9, 1), (framed(b"\0" + b"\x80" * 10 + b"\0" * 6), 1)],
    "a field runs past": [
        (framed(b"\0\0\0" + varint(4) + b"key"), 1),
        (framed(b"\0\0\0\1" + varint(2**31 - 1) + b"x"), 1),
    ],
    "a record runs past": [(body_of(PLAIN)[:-1], 6), (varint(2**31 - 1) + b"\0" * 9, 1)],
    "too short": [(varint(5) + b"\0" * 9, 1), (varint(-1) + b"\0" * 9, 1), (varint(-(2**31)) + b"\0" * 9, 1)],
    "bytes left after its headers": [(framed(b"\0\0\0\1\1\0x"), 1)],
    "fewer headers than it counts": [
        (framed(b"\0\0\0\1\1" + varint(2) + b"\0\0\0"), 1),
        (framed(b"\0\0\0\1\1" + varint(-1)), 1),
        (framed(b"\0\0\0\1\1" + varint(2**31 - 1) + b"\0" * 20), 1),
    ],
    "header has no key": [(framed(b"\0\0\0\1\1" + varint(1) + b"\1\1"), 1)],
    "out of order": [
        (framed(b"\0\0" + varint(-1) + b"\1\1\0"), 1),
        (framed(b"\0\0\0\1\1\0") * 2, 2),
        (framed(b"\0\0\2\1\1\0") + framed(b"\0\0\0\1\1\0"), 2),
    ],
    "after the last record": [(body_of(PLAIN), 5), (body_of(PLAIN) + b"\0", 6), (b"x", 0)],
    "fewer records than it counts": [(body_of(PLAIN), 2**31 - 1), (b"", 1), (b"", -1), (body_of(PLAIN), -(2**31))],
}
CASES = [(reason, *case) for reason, cases in BAD_BODIES.items() for case in cases]


@each_kernel
@pytest.mark.parametrize(("reason", "body", "count"), CASES)
def test_each_flaw_is_named(kernel: ModuleType, reason: str, body: bytes, count: int) -> None:
    whole = BatchBody(body, count, 0, 0, None)
    calls: list[Any] = [
        lambda: kernel.validate_records(body, count),
        lambda: kernel.decode_records(body, count, 0, 0),
        lambda: kernel.walk_keys(body, count),
        lambda: kernel.columns([whole]),
        lambda: kernel.columns([whole], headers=True),
        lambda: kernel.OffsetMap(2400).add(body, count, 0),
        lambda: kernel.OffsetMap(2400).keep(body, count, 0),
    ]
    if 0 <= count < 100:
        calls.append(lambda: kernel.filter_records(body, b"\1" * count))
    for call in calls:
        with pytest.raises(InvalidRecords, match=reason):
            call()


@each_kernel
def test_producers_may_leave_no_gaps_and_compacted_topics_need_keys(kernel: ModuleType) -> None:
    gap = body_of([PLAIN[0], PLAIN[2]])
    assert len(kernel.decode_records(gap, 2, 0, 0)) == 2
    with pytest.raises(InvalidRecords, match="out of order"):
        kernel.validate_records(gap, 2)
    with pytest.raises(InvalidRecords, match="needs one"):
        kernel.validate_records(body_of(SAMPLE), 6, require_keys=True)


@each_kernel
@given(records=record_lists(gaps=True))
def test_records_come_back(kernel: ModuleType, records: list[Record]) -> None:
    body = kernel.encode_records(records, 0, NOW_MS)
    assert body == _kernel_py.encode_records(records, 0, NOW_MS)
    found = kernel.decode_records(body, len(records), 0, NOW_MS)
    assert found == records
    assert all(type(record) is Record for record in found)
    shifted = kernel.decode_records(memoryview(bytearray(body)), len(records), 100, 0, 55)
    assert shifted == [record._replace(offset=100 + record.offset, timestamp=55) for record in records]


@each_kernel
def test_extremes_of_time_wrap_around(kernel: ModuleType) -> None:
    top = (1 << 63) - 1
    body = kernel.encode_records([Record(0, -1, None, None), Record(1, top, None, None)], 0, -1 - top)
    assert [record.timestamp for record in kernel.decode_records(body, 2, 0, -1 - top)] == [-1, top]
    assert kernel.decode_records(body, 2, 0, top)[0].timestamp == -2


@each_kernel
def test_bits_beyond_a_number_s_width_are_dropped(kernel: ModuleType) -> None:
    wide32, wide64 = b"\x82\x80\x80\x80\x70", b"\x84" + b"\x80" * 8 + b"\x7e"
    body = framed(b"\0" + wide64 + wide32 + b"\1\1\0")
    assert kernel.decode_records(body, 1, 0, 0) == [Record(1, 2, None, None)]


@each_kernel
def test_header_keys_that_are_not_text_are_still_read(kernel: ModuleType) -> None:
    body = framed(b"\0\0\0\1\1" + varint(1) + framed(b"\xff\xfek") + framed(b"v"))
    assert kernel.decode_records(body, 1, 0, 0)[0].headers == (("��k", b"v"),)


def outcome(kernel: ModuleType, body: bytes, count: int) -> list[Any]:
    """Everything a kernel returns about a body, errors as their texts."""
    said: list[Any] = []
    for call in (
        lambda: kernel.validate_records(body, count, require_keys=True),
        lambda: kernel.decode_records(body, count, 7, -5),
        lambda: [bytes(part) for part in kernel.walk_keys(body, count)],
        lambda: kernel.filter_records(body, bytes(i % 2 for i in range(count))),
        lambda: kernel.filter_records(body, b"\1" * count, -99_999),
        lambda: kernel.columns([BatchBody(body, count, 7, -5, None)], 8, 10, headers=True),
        lambda: kernel.OffsetMap(2400).keep(body, count, 3),
    ):
        try:
            said.append(call())
        except InvalidRecords as error:
            said.append(str(error))
    return said


@needs_native
@given(body=st.binary(max_size=120), count=st.integers(0, 8))
def test_kernels_agree_on_any_bytes(body: bytes, count: int) -> None:
    assert NATIVE is not None
    assert outcome(NATIVE, body, count) == outcome(_kernel_py, body, count)


@needs_native
@pytest.mark.parametrize("seed", range(4))
def test_kernels_agree_on_damaged_records(seed: int) -> None:
    assert NATIVE is not None
    choices = random.Random(seed)
    sound = [body_of(PLAIN), body_of([record._replace(value=b"v") for record in SAMPLE])]
    for _ in range(250):
        body = bytearray(choices.choice(sound))
        for _ in range(choices.randrange(4)):
            body[choices.randrange(len(body))] = choices.choice([0, 1, 2, 127, 128, 255, choices.randrange(256)])
        cut = bytes(body[: choices.randrange(len(body))] if choices.random() < 0.2 else body)
        assert outcome(NATIVE, cut, 6) == outcome(_kernel_py, cut, 6)


def segment(sizes: list[int], codec: Compression = Compression.NONE) -> tuple[bytearray, list[tuple[int, ...]]]:
    """Batches of so many records one after the other, and what a scan should say about them."""
    data = bytearray()
    expected = []
    offset = 100
    for size in sizes:
        batch = bytearray(build_batch([Record(i, NOW_MS + i, None, b"v" * 20) for i in range(size)], compression=codec))
        patch(batch, 0, offset, 4)
        expected.append((len(data), len(batch), offset, offset + size - 1, NOW_MS + size - 1))
        data += batch
        offset += size + 2
    return data, expected


@each_kernel
def test_scan_finds_every_batch(kernel: ModuleType) -> None:
    data, expected = segment([1, 5, 2])
    for buffer in (bytes(data), data, memoryview(data)):
        assert kernel.scan_batches(buffer, 0, len(data), check_crc=True) == (expected, len(data), None)
    second = expected[1][0]
    assert kernel.scan_batches(data, second, len(data)).batches == expected[1:]
    assert kernel.scan_batches(data, second, expected[2][0]).batches == expected[1:2]
    assert kernel.scan_batches(b"", 0, 0) == ([], 0, None)


@each_kernel
def test_scan_stops_before_a_batch_that_is_cut_off(kernel: ModuleType) -> None:
    data, expected = segment([3, 4])
    last = expected[1][0]
    for end in range(last, len(data)):
        assert kernel.scan_batches(data, 0, end, check_crc=True) == (expected[:1], last, None)


@each_kernel
@pytest.mark.parametrize(
    ("at", "packed", "problem"),
    [
        (16, b"\1", "magic is 1"),
        (16, b"\xff", "magic is -1"),
        (8, struct.pack(">i", 48), "length is 48"),
        (8, struct.pack(">i", -1), "length is -1"),
        (0, struct.pack(">q", 99), "offsets, 99"),
        (0, struct.pack(">q", -5), "offsets, -5"),
        (0, struct.pack(">q", 2**63 - 2), "offsets, 9223372036854775806"),
        (23, struct.pack(">i", -1), "-1 on"),
        (70, b"\x55", "CRC"),
    ],
)
def test_scan_reports_what_is_wrong(kernel: ModuleType, at: int, packed: bytes, problem: str) -> None:
    data, expected = segment([3, 4, 1])
    start = expected[1][0]
    data[start + at : start + at + len(packed)] = packed
    scan = kernel.scan_batches(data, 0, len(data), check_crc=True)
    assert scan.batches == expected[:1]
    assert scan.position == start
    assert problem in scan.problem
    if problem == "CRC":
        assert kernel.scan_batches(data, 0, len(data)).batches == expected


@each_kernel
def test_scan_refuses_bounds_outside_the_buffer(kernel: ModuleType) -> None:
    for position, end in ((-1, 0), (0, 4), (2, 1)):
        with pytest.raises(ValueError, match="outside"):
            kernel.scan_batches(b"abc", position, end)


@needs_native
@given(data=st.data(), sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_kernels_agree_on_damaged_segments(data: st.DataObject, sizes: list[int]) -> None:
    assert NATIVE is not None
    buffer, _ = segment(sizes)
    for _ in range(data.draw(st.integers(0, 3))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    for check in (False, True):
        ours = NATIVE.scan_batches(buffer, 0, len(buffer), check_crc=check)
        assert ours == _kernel_py.scan_batches(buffer, 0, len(buffer), check_crc=check)


def test_the_environment_picks_the_kernel() -> None:
    command = [sys.executable, "-c", "from penstock.wire import kernel; print(kernel.KERNEL_NAME)"]
    pure = subprocess.run(command, env={**os.environ, "PENSTOCK_PURE": "1"}, capture_output=True, text=True, check=True)
    assert pure.stdout.strip() == "python"
    unset = {name: value for name, value in os.environ.items() if name != "PENSTOCK_PURE"}
    native = subprocess.run(command, env=unset, capture_output=True, text=True, check=True)
    assert native.stdout.strip() == ("python" if NATIVE is None else "native")
    assert kernel.KERNEL_NAME in ("python", "native")


@each_kernel
def test_no_buffer_stays_held(kernel: ModuleType) -> None:
    body = bytearray(body_of(PLAIN))
    kernel.validate_records(body, 6)
    kernel.columns([BatchBody(body, 6, 0, 0, None)])
    kernel.walk_keys(body, 6)
    with pytest.raises(InvalidRecords):
        kernel.decode_records(body, 5, 0, 0)
    batch = bytearray(build_batch(PLAIN))
    kernel.scan_batches(batch, 0, len(batch), check_crc=True)
    read_header(batch)
    # A bytearray refuses to grow while anything looks at its memory.
    body += b"x"
    batch += b"x"
