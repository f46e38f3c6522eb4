"""Serdes with the schema registry: Avro, JSON Schema and Protobuf, with schemas made from types."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import types
import typing
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec

from penstock.client.application.errors import PenstockError, SerializationFailed
from penstock.client.application.registry import Registry, framed, unframed
from penstock.client.application.serdes import Json, json_schema_of, to_json
from penstock.wire.primitives import unsigned_varint

V = TypeVar("V")

SUBJECT = "{}-value"
AVRO_TYPES = {str: "string", int: "long", float: "double", bool: "boolean", bytes: "bytes", type(None): "null"}
TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros"}


class JsonSchema(Generic[V]):
    r"""JSON of a type whose schema is in the registry.

    >>> serde = JsonSchema(dict, registry="http://localhost:8081")
    >>> serde.decode(b'\x00\x00\x00\x00\x07{"item": "tea"}', "orders")
    {'item': 'tea'}
    """

    def __init__(self, kind: type[V], *, registry: Registry | str | None = None) -> None:
        self._registry = registry if isinstance(registry, Registry) else Registry(registry)
        self._json = Json(kind)
        self._schema = json.dumps(_closed(json_schema_of(kind)))

    def encode(self, value: V, topic: str) -> bytes | None:
        """The value as JSON, with its schema's id in front."""
        payload = self._json.encode(value, topic)
        return framed(self.register(topic), payload or b"")

    def register(self, topic: str) -> int:
        """The id of the schema for a topic's values; registered if it is new."""
        return self._registry.register(SUBJECT.format(topic), self._schema, "JSON")

    def decode(self, data: bytes, topic: str) -> V:
        """The value, checked by its type."""
        return self._json.decode(unframed(data, topic)[1], topic)


class Avro(Generic[V]):
    """Avro of a dataclass, struct or model; or of dicts, with a schema of yours. Needs fastavro.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Order:
    ...     item: str
    >>> serde = Avro(Order, registry="http://localhost:8081")  # for Producer(value=serde), Consumer(value=serde)

    A value is read with the schema it was written with, so writers and readers may change one after the other.
    """

    def __init__(
        self, kind: type[V], *, schema: Mapping[str, object] | None = None, registry: Registry | str | None = None
    ) -> None:
        self._registry = registry if isinstance(registry, Registry) else Registry(registry)
        self._kind = kind
        found = dict(schema) if schema is not None else avro_schema_of(kind)
        self._schema = json.dumps(found)
        self._parsed = _fastavro().parse_schema(found)
        self._writers: dict[int, Any] = {}

    def encode(self, value: V, topic: str) -> bytes | None:
        """The value in Avro, with its schema's id in front."""
        fields = value.model_dump() if hasattr(value, "model_dump") else msgspec.to_builtins(value, builtin_types=KEPT)
        out = io.BytesIO()
        try:
            _fastavro().schemaless_writer(out, self._parsed, fields)
        except (ValueError, TypeError, KeyError) as error:
            raise SerializationFailed(f"a value for {topic} does not fit its Avro schema", str(error)) from error
        return framed(self.register(topic), out.getvalue())

    def register(self, topic: str) -> int:
        """The id of the schema for a topic's values; registered if it is new."""
        return self._registry.register(SUBJECT.format(topic), self._schema, "AVRO")

    def decode(self, data: bytes, topic: str) -> V:
        """The value, from the schema it was written with."""
        number, payload = unframed(data, topic)
        if number not in self._writers:
            self._writers[number] = _fastavro().parse_schema(json.loads(self._registry.schema(number)))
        try:
            fields = _fastavro().schemaless_reader(io.BytesIO(payload), self._writers[number], self._parsed)
            if hasattr(self._kind, "model_validate"):
                return self._kind.model_validate(fields)  # type: ignore[attr-defined,no-any-return]
            return msgspec.convert(fields, self._kind)
        except (ValueError, TypeError, EOFError, IndexError) as error:
            raise SerializationFailed(f"a value of {topic} is no {self._kind.__name__} in Avro", str(error)) from error


class UntypedAvro:
    """Avro as dicts, of any schema in the registry. For reading only."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._writers: dict[int, object] = {}

    def decode(self, data: bytes, topic: str) -> Any:
        """The value, from the schema it was written with."""
        number, payload = unframed(data, topic)
        if number not in self._writers:
            self._writers[number] = _fastavro().parse_schema(json.loads(self._registry.schema(number)))
        try:
            return _fastavro().schemaless_reader(io.BytesIO(payload), self._writers[number], None)
        except (ValueError, TypeError, EOFError, IndexError) as error:
            raise SerializationFailed(f"a value of {topic} is no Avro of its schema", str(error)) from error


class Protobuf(Generic[V]):
    r"""Protobuf of a generated message class. Needs protobuf.

    >>> from google.protobuf.wrappers_pb2 import StringValue
    >>> serde = Protobuf(StringValue, registry="http://localhost:8081")
    >>> serde.decode(b"\x00\x00\x00\x00\x07\x02\x0e\n\x03tea", "orders").value
    'tea'
    """

    def __init__(self, kind: type[V], *, registry: Registry | str | None = None) -> None:
        self._registry = registry if isinstance(registry, Registry) else Registry(registry)
        self._kind = kind
        descriptor: Any = kind.DESCRIPTOR  # type: ignore[attr-defined]
        self._schema = base64.b64encode(descriptor.file.serialized_pb).decode()
        self._indexes = _indexes(descriptor)

    def encode(self, value: V, topic: str) -> bytes | None:
        """The message, with its schema's id and its place in the file in front."""
        if not isinstance(value, self._kind):
            raise SerializationFailed(f"a value for {topic} is no {self._kind.__name__}", type(value).__name__)
        return framed(self.register(topic), self._indexes + value.SerializeToString())  # type: ignore[attr-defined]

    def register(self, topic: str) -> int:
        """The id of the schema for a topic's values; registered if it is new."""
        return self._registry.register(SUBJECT.format(topic), self._schema, "PROTOBUF")

    def decode(self, data: bytes, topic: str) -> V:
        """The message."""
        payload = _after_indexes(unframed(data, topic)[1])
        try:
            found: V = self._kind.FromString(payload)  # type: ignore[attr-defined]
        except Exception as error:
            # Its own DecodeError is the only one, and not to be imported without protobuf.
            raise SerializationFailed(f"a value of {topic} is no {self._kind.__name__}", str(error)) from error
        return found


def _closed(schema: Any) -> object:
    """A JSON Schema whose objects have their properties and no others, unless it allows them.

    A schema that allows others cannot add one later: a writer may have used its name for something else. So registries
    refuse that, and Java's serializer closes its schemas too.
    """
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # Below "properties" and "$defs" are names, not keywords; a default is a value.
    found: dict[str, object] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            found[key] = {name: _closed(each) for name, each in value.items()}
        else:
            found[key] = value if key == "default" else _closed(value)
    if "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


def avro_schema_of(kind: Any) -> dict[str, object]:
    """The Avro schema of a dataclass, struct or model.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Order:
    ...     item: str
    ...     amount: int = 1
    >>> avro_schema_of(Order)["fields"][1]
    {'name': 'amount', 'type': 'long', 'default': 1}
    """
    found = _avro_type(kind, set())
    if not isinstance(found, dict) or found.get("type") != "record":
        raise PenstockError(f"{kind} has no Avro schema of its own", "it has no fields", "give Avro(…, schema=…)")
    return found


KEPT = (bytes, datetime)


def _avro_type(kind: Any, seen: set[str]) -> object:
    if kind in AVRO_TYPES:
        return AVRO_TYPES[kind]
    if kind is datetime:
        return TIMESTAMP
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        # Avro's default is of the first branch, and None is the usual one.
        ordered = sorted(arguments, key=lambda each: each is not type(None))
        return [_avro_type(each, seen) for each in ordered]
    if origin in (list, tuple, set):
        return {"type": "array", "items": _avro_type(arguments[0], seen)}
    if origin is dict:
        return {"type": "map", "values": _avro_type(arguments[1], seen)}
    hints = typing.get_type_hints(kind) if isinstance(kind, type) else {}
    if not hints:
        raise PenstockError(f"{kind} cannot be written in Avro", "", "use plain types, or give Avro(…, schema=…)")
    if kind.__name__ in seen:
        return kind.__name__
    seen.add(kind.__name__)
    defaults = _defaults(kind)
    fields = []
    for name, hint in hints.items():
        field: dict[str, object] = {"name": name, "type": _avro_type(hint, seen)}
        if name in defaults:
            field["default"] = json.loads(to_json(defaults[name], name))
        fields.append(field)
    return {"type": "record", "name": kind.__name__, "fields": fields}


def _defaults(kind: Any) -> dict[str, object]:
    if dataclasses.is_dataclass(kind):
        return {each.name: each.default for each in dataclasses.fields(kind) if each.default is not dataclasses.MISSING}
    if hasattr(kind, "__struct_fields__"):
        return {
            each.name: each.default for each in msgspec.structs.fields(kind) if each.default is not msgspec.NODEFAULT
        }
    if hasattr(kind, "model_fields"):
        return {name: each.default for name, each in kind.model_fields.items() if not each.is_required()}
    return {}


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise PenstockError("Avro needs fastavro", str(error), "pip install 'penstock[schemas]'") from error
    return fastavro


def _indexes(descriptor: Any) -> bytes:
    """Where a message stands in its file: one zero for the first, else how deep, and the place at each depth."""
    places: list[int] = []
    inner = descriptor
    while inner is not None:
        outer = inner.containing_type
        siblings = outer.nested_types if outer is not None else inner.file.message_types_by_name.values()
        places.insert(0, [each.full_name for each in siblings].index(inner.full_name))
        inner = outer
    return b"\0" if places == [0] else b"".join(unsigned_varint(number << 1) for number in (len(places), *places))


def _after_indexes(payload: bytes) -> bytes:
    count, at = _read_zigzag(payload, 0)
    for _ in range(count):
        _, at = _read_zigzag(payload, at)
    return payload[at:]


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            break
    return value >> 1, at
