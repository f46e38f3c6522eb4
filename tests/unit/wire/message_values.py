"""Messages for tests: every class, Hypothesis strategies made from the definitions, and projection onto a version."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from penstock.wire import schema

INTEGER_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
# One long value of each, so that lengths of two varint bytes occur.
TEXTS = st.one_of(st.text(max_size=6), st.just("ß" * 100))
BLOBS = st.one_of(st.binary(max_size=6), st.just(bytes(range(200))))
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": TEXTS,
    "bytes": BLOBS,
    "records": BLOBS,
    **{name: st.integers(*bounds) for name, bounds in INTEGER_RANGES.items()},
}


class MessageClass(NamedTuple):
    """A generated class and its definition."""

    module: str
    cls: type[Any]
    definition: schema.Message

    @property
    def versions(self) -> range:
        return range(self.definition.versions.first, self.definition.versions.last + 1)


def definition_stems() -> list[str]:
    return sorted(path.stem for path in (Path(schema.__file__).parent / "definitions").glob("*.txt"))


@cache
def all_messages() -> dict[str, MessageClass]:
    """Every message by its name."""
    found = {}
    for stem in definition_stems():
        module = import_module(f"penstock.wire.messages.{stem}")
        for message in schema.load(stem).messages:
            name = message.struct.name
            found[name] = MessageClass(stem, getattr(module, name), message)
    return found


def class_named(message: MessageClass, name: str) -> type[Any]:
    found: type[Any] = getattr(import_module(message.cls.__module__), name)
    return found


# Fields with such tags are our own.
OWN_TAGS_FROM = 10_000

SpecialCases = Callable[[schema.Field], "st.SearchStrategy[Any] | None"]


def is_our_own(field: schema.Field) -> bool:
    """Whether a field is none of Kafka's."""
    return field.tag is not None and field.tag >= OWN_TAGS_FROM


def unset(field: schema.Field) -> st.SearchStrategy[Any]:
    """The value of a field that is not set."""
    return st.just(() if field.array else field.default)


def no_special_cases(_: schema.Field) -> None:
    """Every value that the type allows."""
    return


def messages(message: MessageClass, special: SpecialCases = no_special_cases) -> st.SearchStrategy[Any]:
    """Instances with every field set, regardless of version; `special` narrows the values of some fields."""
    return _struct(message, message.definition.struct, special)


def _struct(message: MessageClass, struct: schema.Struct, special: SpecialCases) -> st.SearchStrategy[Any]:
    cls = class_named(message, struct.name)
    return st.tuples(*(_field(message, field, special) for field in struct.fields)).map(cls._make)


def _field(message: MessageClass, field: schema.Field, special: SpecialCases) -> st.SearchStrategy[Any]:
    value = special(field)
    if value is not None and is_our_own(field):
        return value
    if value is None:
        value = PLAIN[field.type] if field.struct is None else _struct(message, field.struct, special)
    if field.array:
        value = st.lists(value, max_size=2).map(tuple)
    nullable = field.null_by_default or field.nullable.last >= field.nullable.first
    return st.one_of(st.none(), value) if nullable else value


def project(message: MessageClass, value: Any, version: int) -> Any:
    """What is left of a message in a version: fields it lacks at their defaults, null only where it may be."""
    return _project(message.definition.struct, value, version)


def _project(struct: schema.Struct, value: Any, version: int) -> Any:
    blank = type(value)()
    kept = []
    for field, item, default in zip(struct.fields, value, blank, strict=True):
        if version not in field.versions:
            kept.append(default)
        elif item is None:
            kept.append(None if version in field.nullable else _not_null(field, default))
        elif field.struct is None:
            kept.append(item)
        elif field.array:
            kept.append(tuple(_project(field.struct, element, version) for element in item))
        else:
            kept.append(_project(field.struct, item, version))
    return type(value)._make(kept)


def _not_null(field: schema.Field, default: Any) -> Any:
    if default is not None:
        return default
    if field.array:
        return ()
    return {"string": "", "bytes": b"", "records": b""}[field.type]
