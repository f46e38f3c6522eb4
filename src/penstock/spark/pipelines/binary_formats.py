"""Avro and Protobuf schemas as Spark schemas, and their values as JSON text for Spark's parser."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from penstock.spark.pipelines.registry import schema_by_id

MAGIC = 0
PREFIX_BYTES = 5

_PRIMITIVES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
    "enum": "STRING",
    "fixed": "BINARY",
}
_LOGICAL = {
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
    "uuid": "STRING",
}


def spark_fields(schema_text: str) -> str:
    """The columns of an Avro record as a Spark DDL schema; raises ValueError if it is not a record."""
    schema = json.loads(schema_text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("the Avro schema is not a record")
    return ", ".join(f"`{field['name']}` {_type(field['type'])}" for field in schema["fields"])


def _type(kind: Any) -> str:
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        if len(others) != 1:
            raise ValueError(f"a union of {len(others)} types is not supported: use a union with null only")
        return _type(others[0])
    if isinstance(kind, str):
        if kind not in _PRIMITIVES:
            raise ValueError(f"the Avro type {kind} is unknown; define named types inline where they are used")
        return _PRIMITIVES[kind]
    logical = kind.get("logicalType")
    if logical == "decimal":
        return f"DECIMAL({kind['precision']}, {kind.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind["type"] == "record":
        return "STRUCT<" + ", ".join(f"`{each['name']}`: {_type(each['type'])}" for each in kind["fields"]) + ">"
    if kind["type"] == "array":
        return f"ARRAY<{_type(kind['items'])}>"
    if kind["type"] == "map":
        return f"MAP<STRING, {_type(kind['values'])}>"
    return _type(kind["type"])


def avro_decoder(schema_text: str, registry: str | None) -> Callable[[bytes], str]:
    """A function from a value's bytes to JSON text.

    With a registry, values start with the id of their writer schema, and are resolved to the latest schema.
    """
    from fastavro import parse_schema, schemaless_reader

    reader = parse_schema(json.loads(schema_text))

    @lru_cache(maxsize=1024)
    def writer(schema_id: int) -> Any:
        return parse_schema(json.loads(schema_by_id(registry or "", schema_id)))

    def decode(value: bytes) -> str:
        if registry is None:
            return _json(schemaless_reader(io.BytesIO(value), reader, reader))
        if len(value) < PREFIX_BYTES or value[0] != MAGIC:
            raise ValueError("the value does not start with a schema id")
        schema_id = int.from_bytes(value[1:PREFIX_BYTES], "big")
        return _json(schemaless_reader(io.BytesIO(value[PREFIX_BYTES:]), writer(schema_id), reader))

    return decode


def protobuf_message(descriptors: bytes, message: str) -> Any:
    """A message class from the output of `protoc --descriptor_set_out --include_imports`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except KeyError:
        raise ValueError(f"the descriptors have no message {message}") from None


def protobuf_fields(message: Any) -> str:
    """The columns of a Protobuf message as a Spark DDL schema."""
    return ", ".join(f"`{field.name}` {_protobuf_type(field)}" for field in message.DESCRIPTOR.fields)


def _protobuf_type(field: Any) -> str:
    kinds = {
        field.CPPTYPE_INT32: "INT",
        field.CPPTYPE_INT64: "BIGINT",
        field.CPPTYPE_UINT32: "BIGINT",
        field.CPPTYPE_UINT64: "DECIMAL(20, 0)",
        field.CPPTYPE_DOUBLE: "DOUBLE",
        field.CPPTYPE_FLOAT: "FLOAT",
        field.CPPTYPE_BOOL: "BOOLEAN",
        field.CPPTYPE_ENUM: "STRING",
        field.CPPTYPE_STRING: "BINARY" if field.type == field.TYPE_BYTES else "STRING",
    }
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        return f"MAP<{_protobuf_type(key)}, {_protobuf_type(value)}>"
    if field.message_type is not None:
        inside = ", ".join(f"`{each.name}`: {_protobuf_type(each)}" for each in field.message_type.fields)
        kind = f"STRUCT<{inside}>"
    else:
        kind = kinds[field.cpp_type]
    return f"ARRAY<{kind}>" if field.is_repeated else kind


def protobuf_decoder(descriptors: bytes, message: str) -> Callable[[bytes], str]:
    """A function from a value's bytes to JSON text."""
    kind = protobuf_message(descriptors, message)

    def decode(value: bytes) -> str:
        return _json(_message(kind.FromString(value)))

    return decode


def _message(message: Any) -> dict[str, object]:
    """A message's fields. Protobuf's own JSON writes 64-bit numbers as strings, which Spark cannot read as numbers."""
    fields: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            fields[field.name] = None
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            fields[field.name] = {str(key): _field(inner, value[key]) for key in value}
        elif field.is_repeated:
            fields[field.name] = [_field(field, each) for each in value]
        else:
            fields[field.name] = _field(field, value)
    return fields


def _field(field: Any, value: Any) -> object:
    if field.message_type is not None:
        return _message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return value


def _json(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return str(value)
