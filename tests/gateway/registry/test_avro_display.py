"""Avro values as people read them."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import fastavro.schema
import pytest

from penstock.gateway.rest.values.avro_display import avro_text

MOMENT = datetime(2026, 1, 31, 12, 30, 5, 123_000, tzinfo=UTC)
NAME = UUID("5d3a1b1e-0000-4000-8000-000000000001")
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}


def shown(schema: Any, value: Any) -> str:
    named: dict[str, Any] = {}
    parsed = fastavro.schema.parse_schema(schema, named_schemas=named)
    written = io.BytesIO()
    fastavro.schemaless_writer(written, parsed, value)
    written.seek(0)
    read = fastavro.schemaless_reader(written, parsed, None, return_named_type=True)
    return avro_text(parsed, named, read)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (DECIMAL, Decimal("12.30"), "12.30"),
        (DECIMAL, Decimal("-123456789012345678.90"), "-123456789012345678.90"),
        (
            {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 7},
            Decimal("0.0000001"),
            "0.0000001",
        ),
        ({"type": "int", "logicalType": "date"}, date(2026, 1, 31), '"2026-01-31"'),
        ({"type": "int", "logicalType": "time-millis"}, time(12, 30, 5, 123_000), '"12:30:05.123"'),
        ({"type": "long", "logicalType": "time-micros"}, time(12, 30), '"12:30:00"'),
        ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT, '"2026-01-31T12:30:05.123Z"'),
        ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT, '"2026-01-31T12:30:05.123Z"'),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            MOMENT.replace(tzinfo=None),
            '"2026-01-31T12:30:05.123"',
        ),
        ({"type": "string", "logicalType": "uuid"}, NAME, f'"{NAME}"'),
        (
            {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
            bytes([1, 0, 0, 0, 2, 0, 0, 0, 0xDC, 5, 0, 0]),
            '"P1M2DT1.5S"',
        ),
        ("long", 9223372036854775807, "9223372036854775807"),
        ("double", float("nan"), '"NaN"'),
        ("bytes", b"\xff\x00a", '"ÿ\\u0000a"'),
        (["null", DECIMAL, "string"], Decimal("1.00"), '{"bytes": 1.00}'),
        (["null", DECIMAL, "string"], "text", '{"string": "text"}'),
        (["null", "long", "boolean"], True, '{"boolean": true}'),
        (["null", "long", "boolean"], None, "null"),
        ({"type": "array", "items": {"type": "int", "logicalType": "date"}}, [date(2026, 1, 1)], '["2026-01-01"]'),
        (
            {"type": "map", "values": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {"é": MOMENT},
            '{"é": {"long": "2026-01-31T12:30:05.123Z"}}',
        ),
    ],
)
def test_values_in_readable_form(schema: Any, value: Any, expected: str) -> None:
    assert shown(schema, value) == expected


def test_records_in_unions_and_of_themselves() -> None:
    schema = {
        "type": "record",
        "name": "shop.Node",
        "fields": [
            {"name": "price", "type": DECIMAL},
            {"name": "next", "type": ["null", "shop.Node"]},
            {"name": "colour", "type": ["null", {"type": "enum", "name": "Colour", "symbols": ["RED"]}]},
        ],
    }
    value = {
        "price": Decimal("1.10"),
        "colour": "RED",
        "next": {"price": Decimal("2.20"), "next": None, "colour": None},
    }
    text = shown(schema, value)
    assert text == (
        '{"price": 1.10, "next": {"shop.Node": {"price": 2.20, "next": null, "colour": null}}, '
        '"colour": {"shop.Colour": "RED"}}'
    )
    assert json.loads(text)["price"] == 1.1
