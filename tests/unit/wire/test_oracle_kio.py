"""kio, an independent implementation, reads what we write and writes what we write, message by message.

kio turns some numbers into richer types, so the values are kept to those it can hold: known error codes, and times
within the calendar.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import re
import uuid
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from message_values import MessageClass, all_messages, is_our_own, messages, project, unset

from penstock.wire import schema
from penstock.wire.codec import decode, encode

ENTITY_TYPES: dict[str, Any] = {
    "request": EntityType.request,
    "response": EntityType.response,
    "header": EntityType.header,
    "data": EntityType.data,
}
MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
ERROR_CODES = st.sampled_from([code.value for code in ErrorCode])
TIMES_MS = st.integers(0, 2**40)


def kio_name(message: MessageClass) -> str:
    name = re.sub(r"(Request|Response)$", "", message.definition.struct.name)
    if message.definition.kind in ("header", "data"):
        name = message.definition.struct.name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def shared_versions(message: MessageClass) -> list[int]:
    """The versions that both know."""
    kind = ENTITY_TYPES.get(message.definition.kind)
    theirs = schema_name_map.get(kio_name(message), {})
    return [version for version in message.versions if kind in theirs.get(version, {})]


SHARED = sorted(name for name, message in all_messages().items() if shared_versions(message))


def values_kio_can_hold(field: schema.Field) -> st.SearchStrategy[Any] | None:
    if is_our_own(field):
        # kio does not skip what it does not know.
        return unset(field)
    if field.type == "int16" and field.name.endswith("error_code"):
        return ERROR_CODES
    if field.type == "int64" and re.search(r"_ms$|timestamp|_time\b", field.name):
        return TIMES_MS
    return None


@cache
def kio_entity(name: str, version: int) -> Any:
    message = all_messages()[name]
    return load_entity_schema(kio_name(message), version, ENTITY_TYPES[message.definition.kind])


def plain(value: Any) -> Any:
    """What kio made of a field, as the wire has it."""
    match value:
        case enum.Enum():
            return value.value
        case datetime.timedelta():
            return value // MILLISECOND
        case datetime.datetime():
            return (value - EPOCH) // MILLISECOND
        case uuid.UUID():
            return value.bytes
        case tuple():
            return tuple(plain(item) for item in value)
    if dataclasses.is_dataclass(value):
        return tuple(plain(getattr(value, field.name)) for field in dataclasses.fields(value))
    return value


def comparable(struct: schema.Struct, value: Any, version: int) -> Any:
    """Our message as nested tuples of the fields that the version has, in the form `plain` gives kio's."""
    if value is None:
        return None
    kept = []
    for field, item in zip(struct.fields, value, strict=True):
        if version not in field.versions or is_our_own(field):
            continue
        if field.struct is None:
            kept.append(None if item == bytes(16) and field.type == "uuid" else item)
        elif field.array:
            kept.append(item and tuple(comparable(field.struct, element, version) for element in item))
        else:
            kept.append(comparable(field.struct, item, version))
    return tuple(kept)


@pytest.mark.parametrize("name", SHARED)
@settings(max_examples=2, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_kio_agrees_in_both_directions(name: str, data: st.DataObject) -> None:
    message = all_messages()[name]
    value = data.draw(messages(message, values_kio_can_hold))
    for version in shared_versions(message):
        ours = project(message, value, version)
        written = encode(ours, version)
        theirs, size = entity_reader(kio_entity(name, version))(written, 0)
        assert size == len(written)
        assert plain(theirs) == comparable(message.definition.struct, ours, version)
        rewritten = io.BytesIO()
        entity_writer(kio_entity(name, version))(rewritten, theirs)
        assert decode(message.cls, version, rewritten.getvalue()) == ours
        assert rewritten.getvalue() == written
