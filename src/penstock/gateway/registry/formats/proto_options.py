"""A descriptor's options as text: known ones by field, extensions verbatim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import UninterpretedOption
from google.protobuf.message import Message


def quoted(value: bytes) -> str:
    """A string literal of the .proto language."""
    text = value.decode("utf-8", "backslashreplace")
    for sign, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        text = text.replace(sign, escape)
    return f'"{text}"'


def option_texts(options: Message, *, normalize: bool) -> Iterator[str]:
    """`name = value` for each option that is set; sorted by name with `normalize`."""
    texts = []
    for field, value in options.ListFields():
        if field.name == "uninterpreted_option":
            texts += [_uninterpreted(option) for option in value]
        elif field.name not in ("map_entry", "features"):
            name = f"({field.full_name})" if field.is_extension else field.name
            values = value if field.is_repeated else [value]
            texts += [f"{name} = {_value(field, each)}" for each in values]
    return iter(sorted(texts) if normalize else texts)


def _value(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Message):
        return "{ " + " ".join(f"{inner.name}: {_value(inner, each)}" for inner, each in value.ListFields()) + " }"
    if isinstance(value, str | bytes):
        return quoted(value.encode() if isinstance(value, str) else value)
    return str(value)


def _uninterpreted(option: UninterpretedOption) -> str:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    if option.HasField("aggregate_value"):
        return f"{name} = {{ {option.aggregate_value} }}"
    if option.HasField("string_value"):
        return f"{name} = {quoted(option.string_value)}"
    for kind in ("identifier_value", "negative_int_value", "positive_int_value"):
        if option.HasField(kind):
            return f"{name} = {getattr(option, kind)}"
    return f"{name} = {option.double_value!r}"
