"""The most expensive requests that an API's definition allows: every field at its largest, every array at its longest.

For each array of a request there is one request in which it has as many elements as a request may have, each with a
name of its own, one in which their texts are as long as texts may be, and as many as fit, and one in which all of them
name the same thing, which there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

from penstock.wire import schema
from penstock.wire.apis import APIS, request_class
from penstock.wire.codec import bounded_decoder, definition_of, encode
from penstock.wire.primitives import TooManyEntries

# As long as Kafka allows.
STRING_BYTES_MAX = 32_767
LARGEST: dict[str, Any] = {
    "bool": True,
    "int8": 2**7 - 1,
    "int16": 2**15 - 1,
    "uint16": 2**16 - 1,
    "int32": 2**31 - 1,
    "uint32": 2**32 - 1,
    "int64": 2**63 - 1,
    "float64": 1e300,
    "uuid": b"\xff" * 16,
}
# Values with which a request is taken further than with the largest, or without which it would wait for something.
CHOSEN: dict[str, Any] = {
    "acks": -1,
    "config_operation": 0,
    "coordinator_key_type": 0,
    "isolation_level": 1,
    "key_type": 0,
    "max_wait_ms": 10,
    "member_epoch": 0,
    "min_bytes": 1,
    "operation": 3,
    "pattern_type": 3,
    "pattern_type_filter": 3,
    "permission_type": 3,
    "principal_type": "User",
    "rebalance_timeout_ms": 10_000,
    "replica_id": -1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "session_epoch": 0,
    "session_id": 0,
    "session_timeout_ms": 10_000,
    "timeout_ms": 100,
    "transaction_timeout_ms": 10_000,
    "validate_only": True,
}


class Abuse(NamedTuple):
    """One request, and what is extreme about it."""

    api: str
    version: int
    shape: str
    request: Any


class _Maker:
    """Makes one request."""

    def __init__(
        self,
        definition: schema.Message,
        module: str,
        version: int,
        prefix: str,
        *,
        is_long: bool = False,
        name: str = "",
    ) -> None:
        self._definition = definition
        self._module = import_module(module)
        self._version = version
        self._prefix = prefix
        self._is_long = is_long
        # Of what there is, named by every element.
        self._name = name
        self._made = 0
        self._target: tuple[str, ...] = ()
        self._count = 0

    def make(self, target: tuple[str, ...], count: int) -> Any:
        """The request in which the array at the path `target` has `count` elements, and others have one."""
        self._target, self._count = target, count
        return self._struct(self._definition.struct, ())

    def _struct(self, struct: schema.Struct, path: tuple[str, ...]) -> Any:
        cls = getattr(self._module, struct.name)
        blank = cls()
        values = []
        for field, default in zip(struct.fields, blank, strict=True):
            here = (*path, field.name)
            if self._version not in field.versions:
                values.append(default)
            elif field.array and self._name and self._version in field.nullable and here != self._target[: len(here)]:
                # Everything that there is.
                values.append(None)
            elif field.array:
                values.append([self._value(field, here) for _ in range(self._count if here == self._target else 1)])
            else:
                values.append(self._value(field, here))
        return cls._make(values)

    def _value(self, field: schema.Field, path: tuple[str, ...]) -> Any:
        if field.struct is not None:
            return self._struct(field.struct, path)
        if field.name in CHOSEN and not field.array:
            return CHOSEN[field.name]
        if field.type == "records":
            return b""
        if field.type in ("string", "bytes"):
            if self._name:
                return self._name if field.type == "string" else self._name.encode()
            self._made += 1
            text = f"{self._prefix}{self._made}"
            if self._is_long:
                text += "x" * (STRING_BYTES_MAX - len(text))
            return text if field.type == "string" else text.encode()
        return LARGEST[field.type]


def array_paths(struct: schema.Struct, version: int, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all arrays in a version of a message, the outer ones first."""
    for field in struct.fields:
        if version not in field.versions:
            continue
        here = (*path, field.name)
        if field.array:
            yield here
        if field.struct is not None:
            yield from array_paths(field.struct, version, here)


def entries_of(cls: type[Any], version: int, data: bytes) -> int:
    """How many elements a request has, as a broker counts them."""
    read, entries = bounded_decoder(cls, version), 0
    while True:
        try:
            read(data, 0, entries)
        except TooManyEntries:
            entries += 1
        else:
            return entries


def abuses(
    key: int, version: int, prefix: str, entries_max: int, bytes_max: int, repeated: str = ""
) -> Iterator[Abuse]:
    """The requests for one version of an API, with names that begin with `prefix`.

    With `repeated` also those that name it again and again.
    """
    cls = request_class(key)
    definition = definition_of(cls)
    paths = list(array_paths(definition.struct, version)) or [()]
    for path in paths:
        for is_long, name in ((False, ""), (True, ""), (False, repeated)) if repeated else ((False, ""), (True, "")):
            maker = _Maker(definition, cls.__module__, version, prefix, is_long=is_long, name=name)
            try:
                one, two = (encode(maker.make(path, count), version) for count in (1, 2))
            except ValueError:
                # A text that this version writes with a length of two bytes, or a value that it does not know.
                continue
            entries, per_element = entries_of(cls, version, one), entries_of(cls, version, two)
            per_element -= entries
            count = 1 + min(
                (entries_max - entries) // max(1, per_element),
                (bytes_max - len(one) - 1024) // max(1, len(two) - len(one) + 4),
            )
            count = max(1, count) if path else 1
            texts = ", long texts" if is_long else ", one name" if name else ""
            shape = f"{'.'.join(path) or 'no array'} x {count}{texts}"
            yield Abuse(APIS[key].name, version, shape, maker.make(path, count))
