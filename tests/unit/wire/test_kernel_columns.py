"""The buffers that the kernels lay out are Arrow's: pyarrow takes them and reads the records back."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_values import NATIVE, NOW_MS, SAMPLE, SIZE_MAX, each_kernel, needs_native, record_lists

from penstock.wire import _kernel_py
from penstock.wire.columns import read_columns
from penstock.wire.record_types import BatchBody, BinaryColumn, Columns, Record
from penstock.wire.records import (
    BatchHeader,
    Compression,
    ControlType,
    CorruptBatch,
    TimestampType,
    build_batch,
    control_key,
    patch_timestamps,
    read_header,
    read_records,
)


def array(
    kind: pa.DataType, length: int, buffers: list[bytes | None], null_count: int = 0, children: Any = None
) -> Any:
    wrapped = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    made = pa.Array.from_buffers(kind, length, wrapped, null_count, children=children)
    made.validate(full=True)
    return made


def binary(column: BinaryColumn, length: int, kind: pa.DataType | None = None) -> Any:
    buffers: list[bytes | None] = [column.validity, column.offsets, column.data]
    return array(kind or pa.binary(), length, buffers, column.null_count)


def to_records(columns: Columns) -> list[Record]:
    """The records as pyarrow reads them."""
    count = columns.records_count
    offsets = array(pa.int64(), count, [None, columns.offsets]).to_pylist()
    timestamps = array(pa.int64(), count, [None, columns.timestamps]).to_pylist()
    keys, values = (binary(column, count).to_pylist() for column in (columns.keys, columns.values))
    headers = [()] * count
    if columns.headers is not None:
        size = columns.headers.headers_count
        names = binary(columns.headers.keys, size, pa.string())
        entries = pa.StructArray.from_arrays([names, binary(columns.headers.values, size)], ["key", "value"])
        lists = array(pa.list_(entries.type), count, [None, columns.headers.list_offsets], children=[entries])
        headers = [tuple((entry["key"], entry["value"]) for entry in row) for row in lists.to_pylist()]
    return [Record(*row) for row in zip(offsets, timestamps, keys, values, headers, strict=True)]


def without_headers(records: list[Record]) -> list[Record]:
    return [record._replace(headers=()) for record in records]


@each_kernel
def test_columns_hold_the_records(kernel: ModuleType) -> None:
    bodies = []
    expected = []
    for base in (0, 500, 1000):
        records = [record._replace(offset=base + record.offset) for record in SAMPLE]
        body = kernel.encode_records(records, base, NOW_MS)
        bodies.append(BatchBody(memoryview(body), len(records), base, NOW_MS, None))
        expected += records
    assert to_records(kernel.columns(bodies, headers=True)) == expected
    columns = kernel.columns(bodies)
    assert columns.headers is None
    assert to_records(columns) == without_headers(expected)
    assert columns.keys.null_count == 6


@each_kernel
@given(
    batches=st.lists(record_lists(gaps=True, size_max=20), max_size=4),
    start=st.integers(0, 2000),
    size=st.integers(0, 2000),
    fixed=st.none() | st.integers(0, 1 << 40),
)
def test_any_range_of_any_records(
    kernel: ModuleType, batches: list[list[Record]], start: int, size: int, fixed: int | None
) -> None:
    bodies = []
    expected = []
    base = 0
    for batch in batches:
        records = [record._replace(offset=base + record.offset) for record in batch]
        body = kernel.encode_records(records, base, NOW_MS)
        bodies.append(BatchBody(body, len(records), base, NOW_MS, fixed))
        expected += [record if fixed is None else record._replace(timestamp=fixed) for record in records]
        base = records[-1].offset + 1
    chosen = [record for record in expected if start <= record.offset < start + size]
    assert to_records(kernel.columns(bodies, start, start + size, headers=True)) == chosen
    assert to_records(kernel.columns(bodies, start, start + size)) == without_headers(chosen)


@needs_native
@given(records=record_lists(gaps=True), end=st.integers(0, 400), headers=st.booleans())
def test_kernels_make_the_same_bytes(records: list[Record], end: int, headers: bool) -> None:
    assert NATIVE is not None
    bodies = [BatchBody(_kernel_py.encode_records(records, 0, 5), len(records), 0, 5, None)] * 2
    assert NATIVE.columns(bodies, 2, end, headers=headers) == _kernel_py.columns(bodies, 2, end, headers=headers)


@each_kernel
def test_too_much_for_one_array_is_refused_before_it_is_laid_out(kernel: ModuleType) -> None:
    body = bytes(1 << 20)
    with pytest.raises(ValueError, match="at most"):
        kernel.columns([BatchBody(body, 1, 0, 0, None)] * 2049)


def fetched() -> tuple[bytes, list[Record]]:
    """Batches of several codecs with a control batch among them, and the records in them."""
    parts = []
    records: list[Record] = []
    base = 0
    for codec in Compression:
        batch = [record._replace(offset=base + record.offset) for record in SAMPLE]
        parts.append(build_batch(batch, base_offset=base, compression=codec, producer_id=int(codec)))
        records += batch
        base += len(SAMPLE)
        marker = Record(base, NOW_MS, control_key(ControlType.COMMIT), b"")
        parts.append(build_batch([marker], base_offset=base, control=True))
        base += 1
    return b"".join(parts), records


def test_a_fetch_is_read_without_its_control_batches() -> None:
    data, records = fetched()
    columns, next_offset = read_columns(data, 0, 1 << 40, size_max=SIZE_MAX, headers=True)
    assert to_records(columns) == records
    assert next_offset == 7 * len(Compression)


def test_a_fetch_is_read_from_the_middle_of_one_batch_to_the_middle_of_another() -> None:
    data, records = fetched()
    columns, next_offset = read_columns(data, 3, 17, size_max=SIZE_MAX)
    assert to_records(columns) == without_headers([record for record in records if 3 <= record.offset < 17])
    assert next_offset == 17
    assert read_columns(data, 6, 7, size_max=SIZE_MAX)[0].records_count == 0
    assert read_columns(b"", 6, 7, size_max=SIZE_MAX)[1] == 6
    assert read_columns(data, 900, 950, size_max=SIZE_MAX)[1] == 900


def test_aborted_batches_are_the_callers_to_skip() -> None:
    data, records = fetched()

    def is_aborted(header: BatchHeader) -> bool:
        return header.producer_id == Compression.LZ4

    columns, next_offset = read_columns(data, 0, 1 << 40, size_max=SIZE_MAX, skip=is_aborted)
    assert [record.offset for record in to_records(columns)] == [
        record.offset for record in records if record.offset // 7 != Compression.LZ4
    ]
    assert next_offset == 35


def test_a_batch_cut_off_at_the_end_waits_for_the_next_fetch() -> None:
    data, records = fetched()
    first = read_header(data).size_bytes
    for cut in (first, first + 10, first + 70):
        columns, next_offset = read_columns(data[:cut], 0, 1 << 40, size_max=SIZE_MAX)
        assert to_records(columns) == without_headers(records[:6])
        assert next_offset == 6
    with pytest.raises(CorruptBatch):
        read_columns(bytes([*data[:first], *[255] * 80]), 0, 1 << 40, size_max=SIZE_MAX)


def test_log_append_time_is_every_records_time() -> None:
    batch = bytearray(build_batch(SAMPLE))
    patch_timestamps(batch, 0, read_header(batch), NOW_MS + 5, TimestampType.LOG_APPEND)
    columns, _ = read_columns(batch, 0, 100, size_max=SIZE_MAX, headers=True)
    assert to_records(columns) == read_records(batch, SIZE_MAX)
    assert {record.timestamp for record in to_records(columns)} == {NOW_MS + 5}
