"""Avro values as readable JSON text: decimals as numbers, dates and times in ISO 8601 rather than as counts.

Otherwise it is Avro's JSON encoding: union values carry their type, bytes are text with one character per byte.
fastavro resolves logical types, so the Python type of a leaf determines how it is shown.
"""

from __future__ import annotations

import datetime
import json
import math
import struct
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

# Months, days and milliseconds; fastavro leaves them as bytes.
DURATION = struct.Struct("<III")
LEAVES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int, datetime.date, datetime.time),
    "long": (int, datetime.datetime, datetime.time),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes, Decimal),
    "fixed": (bytes, Decimal, uuid.UUID),
    "string": (str, uuid.UUID),
    "enum": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
}


def avro_text(schema: object, named: Mapping[str, Any], value: Any) -> str:
    """The text of a value that fastavro read with this parsed schema and `return_named_type`."""
    return _Writer(named).text(schema, value)


class _Writer:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def text(self, schema: Any, value: Any) -> str:
        if isinstance(schema, list):
            return self._union(schema, value)
        schema = self._resolved(schema)
        kind = schema["type"]
        if kind == "record":
            fields = (
                f"{_json(each['name'])}: {self.text(each['type'], value[each['name']])}" for each in schema["fields"]
            )
            return f"{{{', '.join(fields)}}}"
        if kind == "array":
            return f"[{', '.join(self.text(schema['items'], each) for each in value)}]"
        if kind == "map":
            entries = (f"{_json(key)}: {self.text(schema['values'], each)}" for key, each in value.items())
            return f"{{{', '.join(entries)}}}"
        return _leaf(schema, value)

    def _union(self, branches: list[object], value: Any) -> str:
        if value is None:
            return "null"
        name, value = value if isinstance(value, tuple) else (None, value)
        for branch in branches:
            schema = self._resolved(branch)
            label = schema.get("name", schema["type"])
            if label == name or (name is None and "name" not in schema and _is_leaf_of(schema, value)):
                return f"{{{_json(label)}: {self.text(schema, value)}}}"
        raise ValueError(f"{type(value).__name__} is not in the union")

    def _resolved(self, schema: Any) -> Any:
        if isinstance(schema, str):
            return self._named.get(schema, {"type": schema})
        # fastavro may wrap a type in another one: {"type": {"type": "string"}}.
        return (
            schema if isinstance(schema["type"], str) and schema["type"] in LEAVES else self._resolved(schema["type"])
        )


def _is_leaf_of(schema: Mapping[str, Any], value: Any) -> bool:
    if isinstance(value, bool):
        return bool(schema["type"] == "boolean")
    types = LEAVES.get(schema["type"], ())
    logical = "logicalType" in schema
    return isinstance(value, types) and logical is isinstance(value, (Decimal, uuid.UUID, datetime.date, datetime.time))


def _leaf(schema: Mapping[str, Any], value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, (datetime.datetime, datetime.time)):
        fine = "milliseconds" if value.microsecond and not value.microsecond % 1000 else "auto"
        return _json(value.isoformat(timespec=fine).replace("+00:00", "Z"))
    if isinstance(value, datetime.date):
        return _json(value.isoformat())
    if isinstance(value, uuid.UUID):
        return _json(str(value))
    if isinstance(value, bytes) and schema.get("logicalType") == "duration" and len(value) == DURATION.size:
        months, days, ms = DURATION.unpack(value)
        return _json(f"P{months}M{days}DT{Decimal(ms) / 1000}S")
    if isinstance(value, bytes):
        return _json(value.decode("latin-1"))
    # Avro has numbers that JSON lacks (NaN, Infinity); those are shown by name.
    if isinstance(value, float) and not math.isfinite(value):
        return _json(json.dumps(value))
    return _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
