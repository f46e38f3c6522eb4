"""Values as bytes and back, chosen by type: bytes, text, JSON, dataclasses, msgspec structs, pydantic models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from penstock.client.application.errors import SerializationFailed

V = TypeVar("V")
Encode = Callable[[Any, str], bytes | str | None]
Decode = Callable[[bytes, str], Any]

_PLAIN = (bytes, str)
_json = msgspec.json.Encoder()


class Serde(Protocol[V]):
    """Turns values of one type into bytes and back; `topic` finds the schema where there is one.

    >>> class Upper:
    ...     def encode(self, value: str, topic: str) -> bytes:
    ...         return value.upper().encode()
    ...     def decode(self, data: bytes, topic: str) -> str:
    ...         return data.decode().lower()
    >>> serde_of(Upper()).decode(b"TEA", "orders")
    'tea'
    """

    def encode(self, value: V, topic: str) -> bytes | None:
        """The bytes of a value, None for a tombstone; raises SerializationFailed."""
        ...

    def decode(self, data: bytes, topic: str) -> V:
        """The value of these bytes; raises SerializationFailed."""
        ...


class Bytes:
    """Bytes as they are.

    >>> Bytes().decode(b"tea", "orders")
    b'tea'
    """

    def encode(self, value: bytes, topic: str) -> bytes | None:  # noqa: ARG002
        """The value itself."""
        return value

    def decode(self, data: bytes, topic: str) -> bytes:  # noqa: ARG002
        """The data itself."""
        return data


class Text:
    """Text in UTF-8.

    >>> Text().decode("café".encode(), "orders")
    'café'
    """

    def encode(self, value: str, topic: str) -> bytes | None:  # noqa: ARG002
        """UTF-8."""
        return value.encode()

    def decode(self, data: bytes, topic: str) -> str:
        """The text; raises SerializationFailed for anything but UTF-8."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise SerializationFailed(
                f"a value of {topic} is not text", str(error), "read it with value=bytes"
            ) from error


class Json(Generic[V]):
    """JSON of one type, checked when it is read: dict, list, dataclass, TypedDict, msgspec.Struct, pydantic.BaseModel.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Order:
    ...     item: str
    ...     amount: int = 1
    >>> Json(Order).decode(b'{"item": "tea"}', "orders")
    Order(item='tea', amount=1)
    """

    def __init__(self, kind: type[V]) -> None:
        self.kind = kind
        validate = getattr(kind, "model_validate_json", None)
        self._read: Any = validate or msgspec.json.Decoder(kind).decode

    def encode(self, value: V, topic: str) -> bytes | None:
        """The value as JSON; raises SerializationFailed for a value that is not of the type."""
        if not isinstance(value, _origin(self.kind)):
            why = f"it is of type {type(value).__name__}"
            raise SerializationFailed(f"a value for {topic} is no {_name(self.kind)}", why, "send one of that type")
        return to_json(value, topic)

    def decode(self, data: bytes, topic: str) -> V:
        """The value; raises SerializationFailed with what does not fit."""
        try:
            value: V = self._read(data)
        except ValueError as error:
            why = " ".join(str(error).split())
            raise SerializationFailed(
                f"a value of {topic} is no {_name(self.kind)}", why, "correct the sender; dead letters keep the record"
            ) from error
        return value


def serde_of(kind: Any) -> Serde[Any]:
    """The serde for a type; a serde is returned as it is.

    >>> serde_of(dict).decode(b'{"item": "tea"}', "orders")
    {'item': 'tea'}
    """
    if hasattr(kind, "encode") and hasattr(kind, "decode") and kind not in _PLAIN:
        return kind  # type: ignore[no-any-return]
    if kind is bytes:
        return Bytes()
    if kind is str:
        return Text()
    try:
        return Json(kind)
    except TypeError as error:
        advice = (
            "use bytes, str, dict, a dataclass, msgspec.Struct, pydantic model, or an object with encode and decode"
        )
        raise SerializationFailed(f"{_name(kind)} cannot be a value's type", str(error), advice) from error


def decoder_of(kind: object) -> Decode | None:
    """The decoding half of `serde_of`; None where the bytes are the value."""
    return None if kind is None or kind is bytes else serde_of(kind).decode


def to_json(value: Any, topic: str) -> bytes:
    """Any value as JSON: models by their own rules, dataclasses and structs by their fields.

    >>> to_json({"item": "tea"}, "orders")
    b'{"item":"tea"}'
    """
    try:
        if hasattr(value, "model_dump_json"):
            return value.model_dump_json().encode()  # type: ignore[no-any-return]
        return _json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        advice = "send bytes, str, or what JSON can express, or give the Producer value="
        raise SerializationFailed(f"a {type(value).__name__} for {topic} cannot be sent", str(error), advice) from error


def json_schema_of(kind: Any) -> dict[str, object]:
    """The JSON Schema of a type.

    >>> json_schema_of(str)
    {'type': 'string'}
    """
    if hasattr(kind, "model_json_schema"):
        found: dict[str, object] = kind.model_json_schema()
        return found
    if kind is bytes:
        return {"type": "string", "contentEncoding": "binary"}
    schema = msgspec.json.schema(kind)
    reference = schema.pop("$ref", "")
    definitions = schema.get("$defs", {})
    if reference.startswith("#/$defs/"):
        schema = definitions.pop(reference.removeprefix("#/$defs/")) | ({"$defs": definitions} if definitions else {})
    return schema


def plain_key(key: Any) -> bytes | str | None:
    """A key as librdkafka takes it: text and bytes as they are, anything else as its text.

    >>> plain_key(12), plain_key("alice"), plain_key(None)
    ('12', 'alice', None)
    """
    return key if key is None or isinstance(key, _PLAIN) else str(key)


def is_record_type(kind: Any) -> bool:
    """Whether a type has fields: a dataclass, a struct, a model, a TypedDict."""
    return dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__") or hasattr(kind, "model_fields")


def _origin(kind: Any) -> Any:
    origin = getattr(kind, "__origin__", kind)
    return dict if hasattr(origin, "__total__") else origin if isinstance(origin, type) else object


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)
