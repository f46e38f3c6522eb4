"""The columns of Spark's Kafka connector, as Arrow arrays over the buffers that the record kernel fills."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as compute

from penstock.wire.record_types import BinaryColumn, Columns, HeaderColumns
from penstock.wire.records import TimestampType

SCHEMA_DDL = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)
HEADERS_DDL = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))
_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
SCHEMA = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", _HEADERS)])


def record_batch(columns: Columns, topic: str, partition: int, timestamp_type: TimestampType) -> object:
    """A `pyarrow.RecordBatch` of these records; the keys' and values' bytes are not copied."""
    count = columns.records_count
    milliseconds = pa.Array.from_buffers(
        pa.timestamp("ms", tz="UTC"), count, [None, pa.py_buffer(columns.timestamps)], 0
    )
    arrays = [
        _binary(columns.keys, count, pa.binary()),
        _binary(columns.values, count, pa.binary()),
        pa.repeat(topic, count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)], 0),
        # Times that microseconds cannot express wrap around, as they do in Spark's own connector.
        milliseconds.cast(_TIMESTAMP, safe=False),
        pa.repeat(pa.scalar(int(timestamp_type), pa.int32()), count),
    ]
    if columns.headers is None:
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return pa.RecordBatch.from_arrays([*arrays, _header_lists(columns.headers, count)], schema=SCHEMA_WITH_HEADERS)


def _binary(column: BinaryColumn, count: int, kind: Any) -> object:
    validity = pa.py_buffer(column.validity) if column.null_count else None
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, count, buffers, column.null_count)


def _header_lists(headers: HeaderColumns, count: int) -> object:
    """Records without headers have null there, as in Spark's own connector, rather than an empty list."""
    entries = pa.StructArray.from_arrays(
        [
            _binary(headers.keys, headers.headers_count, pa.string()),
            _binary(headers.values, headers.headers_count, pa.binary()),
        ],
        fields=list(_HEADER),
    )
    offsets = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(headers.list_offsets)], 0)
    lengths = compute.subtract(offsets[1:], offsets[:-1])
    validity = compute.greater(lengths, 0)
    missing = count - (validity.true_count if count else 0)
    buffers = [validity.buffers()[1] if missing else None, pa.py_buffer(headers.list_offsets)]
    return pa.Array.from_buffers(_HEADERS, count, buffers, missing, children=[entries])
