"""Values with schemas: JSON that callers send becomes bytes with a schema's id in front, and back."""

from __future__ import annotations

import io
import json
import struct
from functools import lru_cache
from typing import Any

import fastavro
import fastavro.schema
from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError

from penstock.gateway.registry.decisions import Decision, register
from penstock.gateway.registry.formats.proto_format import ProtobufSchema
from penstock.gateway.registry.lookup import dependencies, parse_stored
from penstock.gateway.registry.schema import AVRO, JSON, PROTOBUF, Source, StoredSchema
from penstock.gateway.registry.service import Registry
from penstock.gateway.registry.state import RegistryState
from penstock.gateway.registry.subjects import DEFAULT_CONTEXT, context_of
from penstock.gateway.rest.json_check import JsonChecks
from penstock.gateway.web.problem import Problem

MAGIC = 0
PREFIX = struct.Struct(">bI")
CONVERSION = 42203
PARSED_MAX = 1000


class SchemaCodec:
    """Writes and reads values with the schemas of the registry in this process."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._checks = JsonChecks()

    async def schema(self, subject: str, schema_type: str, text: str | None, schema_id: int | None) -> StoredSchema:
        """The schema to write with: the one with an id, or a text, which is registered under the subject."""
        if schema_id is not None:
            found = self._registry.state.with_id(DEFAULT_CONTEXT, schema_id)
            if not found or found[0].schema_type != schema_type:
                raise Problem(
                    422, 42205, f"there is no {schema_type} schema with id {schema_id}", "register it, or send its text"
                )
            return found[0]
        if text is None:
            latest = self._registry.state.live_versions(subject)
            if not latest:
                raise Problem(
                    422, 42202, f"no schema is given, and subject {subject} has none", "send a schema or its id"
                )
            return latest[-1]
        source = Source(schema_type, text)

        def decide(state: RegistryState) -> Decision:
            return register(state, subject, source)

        stored: StoredSchema = await self._registry.write(decide)
        return stored

    async def encode(self, schema: StoredSchema, value: Any) -> bytes:
        """The bytes of a JSON value, with magic byte and id; a Problem where it does not fit the schema."""
        prefix = PREFIX.pack(MAGIC, schema.id)
        try:
            if schema.schema_type == AVRO:
                return prefix + self._encode_avro(schema, value)
            if schema.schema_type == JSON:
                why = await self._checks.misfit(schema.text, self._dependencies(schema), value)
                if why is not None:
                    raise _unfit(why)
                return prefix + json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
            message = json_format.ParseDict(value, self._message_class(schema, [0])())
            return prefix + b"\0" + bytes(message.SerializeToString())
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, json_format.ParseError) as error:
            raise _unfit(error) from None

    def decode(self, data: bytes | None) -> Any:
        """The JSON value of bytes that have a schema's id in front; a Problem where they have none."""
        if data is None:
            return None
        if len(data) < PREFIX.size or data[0] != MAGIC:
            raise Problem(422, 42206, "a record has no schema's id in front", "read it with the format binary")
        _, schema_id = PREFIX.unpack_from(data)
        found = self._registry.state.with_id(DEFAULT_CONTEXT, schema_id)
        if not found:
            raise Problem(422, 42206, f"a record has schema id {schema_id}, which is not there", "register the schema")
        schema, payload = found[0], data[PREFIX.size :]
        try:
            if schema.schema_type == AVRO:
                return self._decode_avro(schema, payload)
            if schema.schema_type == JSON:
                return json.loads(payload)
            return self._decode_protobuf(schema, payload)
        except (ValueError, TypeError, KeyError, IndexError, EOFError, DecodeError, struct.error) as error:
            raise Problem(422, 42206, f"a record does not fit its schema: {error}", "read it as binary") from None

    def _dependencies(self, schema: StoredSchema) -> tuple[tuple[str, str], ...]:
        return dependencies(self._registry.state, context_of(schema.subject), schema.references)

    def _avro(self, schema: StoredSchema) -> Any:
        return _parsed_avro(schema.text, tuple(text for _, text in self._dependencies(schema)))

    def _encode_avro(self, schema: StoredSchema, value: Any) -> bytes:
        parsed = self._avro(schema)
        [converted] = fastavro.json_reader(io.StringIO(json.dumps(value)), parsed)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, converted)
        return out.getvalue()

    def _decode_avro(self, schema: StoredSchema, payload: bytes) -> Any:
        parsed = self._avro(schema)
        value = fastavro.schemaless_reader(io.BytesIO(payload), parsed, None, return_record_name=True)
        out = io.StringIO()
        fastavro.json_writer(out, parsed, [value])
        return json.loads(out.getvalue())

    def _message_class(self, schema: StoredSchema, indexes: list[int]) -> Any:
        parsed = parse_stored(self._registry.state, schema)
        assert isinstance(parsed, ProtobufSchema)
        scope = list(parsed.descriptor.message_types_by_name.values())
        descriptor = scope[indexes[0]]
        for index in indexes[1:]:
            descriptor = descriptor.nested_types[index]
        return message_factory.GetMessageClass(descriptor)

    def _decode_protobuf(self, schema: StoredSchema, payload: bytes) -> Any:
        count, place = _varint(payload, 0)
        indexes = [] if count else [0]
        for _ in range(count):
            index, place = _varint(payload, place)
            indexes.append(index)
        message = self._message_class(schema, indexes).FromString(payload[place:])
        # Confluent's proxy shows fields that have their default value too.
        return json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )


TYPE_OF_FORMAT = {"avro": AVRO, "jsonschema": JSON, "protobuf": PROTOBUF}


@lru_cache(PARSED_MAX)
def _parsed_avro(text: str, needed: tuple[str, ...]) -> Any:
    named: dict[str, Any] = {}
    for dependency in needed:
        fastavro.schema.parse_schema(json.loads(dependency), named_schemas=named)
    return fastavro.schema.parse_schema(json.loads(text), named_schemas=named)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A zigzag number, as the indexes in front of Protobuf messages are written."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), place
        shift += 7
        if shift > 35:
            raise ValueError("an index is too long")


def _unfit(reason: object) -> Problem:
    return Problem(422, CONVERSION, f"the value does not fit the schema: {str(reason)[:300]}", "send what it describes")
