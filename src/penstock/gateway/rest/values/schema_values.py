"""Converts one value with a schema between bytes and JSON. Runs in workers, because schemas and data are untrusted."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import fastavro
import fastavro.schema
from google.protobuf import json_format, message_factory

from penstock.gateway.registry.formats.proto_format import ProtobufSchema
from penstock.gateway.registry.parsing import parse
from penstock.gateway.registry.schema import AVRO, JSON, SchemaText
from penstock.gateway.rest.values.avro_budget import OverBudget, SizeCheck
from penstock.gateway.rest.values.json_schema_check import check
from penstock.gateway.rest.values.json_text import is_json, json_bytes
from penstock.gateway.web.problem import Problem
from penstock.gateway.work.budgets import Budgets

MAGIC = 0
PREFIX = struct.Struct(">bI")
PARSED_KEPT_MAX = 100
REASON_MAX = 300


class SchemaMismatch(Exception):
    """Bytes or a value that do not match their schema, or cost too much; the message has the reason."""


def decode(schema: SchemaText, payload: bytes, budgets: Budgets) -> str:
    """The bytes after the schema id as JSON. Data that is JSON already stays verbatim."""
    with mismatches():
        if schema.schema_type == JSON:
            text = payload.decode()
            if not is_json(text):
                raise SchemaMismatch("it is not JSON")
            return text
        if schema.schema_type == AVRO:
            return json.dumps(_decode_avro(schema, payload, budgets), ensure_ascii=False)
        return json.dumps(_decode_protobuf(schema, payload), ensure_ascii=False)


@contextmanager
def mismatches() -> Iterator[None]:
    """Turns any error while bytes are decoded into SchemaMismatch."""
    try:
        yield
    except RecursionError:
        raise SchemaMismatch("it is nested too deeply") from None
    except OverBudget as error:
        raise SchemaMismatch(str(error)) from None
    except (SchemaMismatch, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - on invalid bytes the libraries raise all kinds of exceptions.
        raise SchemaMismatch(f"it does not match its schema: {_message(error)}") from None


def encode_values(schemas: list[SchemaText], values: list[tuple[int, object]]) -> list[bytes | str]:
    """The encoded values, each with the index of its schema in the list; for one that does not match, why not."""
    encoded: list[bytes | str] = []
    for index, value in values:
        try:
            encoded.append(encode(schemas[index], value))
        except SchemaMismatch as error:
            encoded.append(str(error))
    return encoded


def encode(schema: SchemaText, value: Any) -> bytes:
    """The bytes of a JSON value, without the schema id in front."""
    try:
        if schema.schema_type == AVRO:
            return _encode_avro(schema, value)
        if schema.schema_type == JSON:
            why = check(schema.text, schema.dependencies, value)
            if why is not None:
                raise SchemaMismatch(why[:REASON_MAX])
            return json_bytes(value)
        message = json_format.ParseDict(value, _message_class(schema, [0])())
        return b"\0" + bytes(message.SerializeToString())
    except (SchemaMismatch, MemoryError):
        raise
    except (RecursionError, Problem):
        raise SchemaMismatch("it is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - on invalid values the libraries raise all kinds of exceptions.
        raise SchemaMismatch(_message(error)) from None


def _message(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:REASON_MAX]


def _encode_avro(schema: SchemaText, value: object) -> bytes:
    parsed, _ = parsed_avro(schema)
    [converted] = fastavro.json_reader(io.StringIO(json.dumps(value)), parsed)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, converted)
    return out.getvalue()


def _decode_avro(schema: SchemaText, payload: bytes, budgets: Budgets) -> object:
    parsed, named = parsed_avro(schema)
    SizeCheck(named, budgets).check(parsed, payload)
    value = fastavro.schemaless_reader(io.BytesIO(payload), parsed, None, return_record_name=True)
    out = io.StringIO()
    fastavro.json_writer(out, parsed, [value])
    # Avro has numbers that JSON lacks (NaN, Infinity); those are shown by name.
    return json.loads(out.getvalue(), parse_constant=str)


@lru_cache(PARSED_KEPT_MAX)
def parsed_avro(schema: SchemaText) -> tuple[Any, dict[str, object]]:
    """The schema in fastavro's form, and its named types."""
    named: dict[str, Any] = {}
    for _, dependency in schema.dependencies:
        fastavro.schema.parse_schema(json.loads(dependency), named_schemas=named)
    return fastavro.schema.parse_schema(json.loads(schema.text), named_schemas=named), named


def _message_class(schema: SchemaText, indexes: list[int]) -> Any:
    parsed = parse(schema.schema_type, schema.text, schema.dependencies)
    assert isinstance(parsed, ProtobufSchema)
    if min(indexes) < 0:
        raise ValueError("a message's index is negative")
    descriptor = list(parsed.descriptor.message_types_by_name.values())[indexes[0]]
    for index in indexes[1:]:
        descriptor = descriptor.nested_types[index]
    return message_factory.GetMessageClass(descriptor)


def _decode_protobuf(schema: SchemaText, payload: bytes) -> object:
    count, position = _varint(payload, 0)
    indexes = [] if count else [0]
    for _ in range(count):
        index, position = _varint(payload, position)
        indexes.append(index)
    message = _message_class(schema, indexes).FromString(payload[position:])
    # Confluent's proxy shows fields that have their default value too.
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, as in the message indexes in front of Protobuf messages."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 35:
            raise ValueError("an index is too long")
