"""kafka-python reads what we write, and we read what it writes, for every API and version that both know."""

from __future__ import annotations

import importlib
import pkgutil
import uuid
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from message_values import MessageClass, SpecialCases, all_messages, is_our_own, messages, project, unset

from penstock.wire import schema
from penstock.wire.codec import decode, encode

with warnings.catch_warnings():
    # It loads its own data files in a way that Python is about to give up.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol  # type: ignore[import-untyped]
    from kafka.protocol.api_data import ApiData  # type: ignore[import-untyped]
    from kafka.protocol.api_message import ApiMessage  # type: ignore[import-untyped]


def kafka_python_classes() -> dict[str, Any]:
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        # The old classes have no versions beyond what the new ones have; the generator is a script.
        if ".old" not in module.name and not module.name.endswith("generate_stubs"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                importlib.import_module(module.name)
    classes = ApiMessage.__subclasses__() + ApiData.__subclasses__()
    return {cls.__name__: cls for cls in classes if cls.__name__ in all_messages()}


THEIRS = kafka_python_classes()


def shared_versions(message: MessageClass) -> list[int]:
    first, last = THEIRS[message.definition.struct.name].valid_versions
    return [version for version in message.versions if first <= version <= last]


def their_field(container: Any, field: schema.Field) -> Any:
    """kafka-python's counterpart of a field: underscores go elsewhere, and authorized operations have one name."""
    wanted = field.name.replace("_", "")
    if is_bit_set(field):
        wanted = "authorizedoperations"
    return next(found for found in container.fields.values() if found.name.replace("_", "") == wanted)


def is_bit_set(field: schema.Field) -> bool:
    """kafka-python shows the allowed operations as a set of numbers."""
    return field.type == "int32" and field.name.endswith("authorized_operations")


def to_theirs(field: schema.Field, item: Any) -> Any:
    if is_bit_set(field):
        return {bit for bit in range(32) if item >> bit & 1}
    if field.type != "uuid":
        return list(item) if field.array and item is not None else item
    return [uuid.UUID(bytes=element) for element in item] if field.array else uuid.UUID(bytes=item)


def from_theirs(field: schema.Field, item: Any) -> Any:
    if is_bit_set(field):
        bits = sum(1 << bit for bit in item) if item is not None else 1 << 31
        return bits - (1 << 32) if bits >> 31 else bits
    if field.array and item is not None:
        return tuple(getattr(element, "bytes", element) for element in item)
    return getattr(item, "bytes", item)


def build(theirs: Any, struct: schema.Struct, value: Any, version: int) -> Any:
    """kafka-python's object with our values."""
    arguments = {}
    for field, item, default in zip(struct.fields, value, type(value)(), strict=True):
        if version not in field.versions or is_our_own(field) or (field.tag is not None and item == default):
            continue
        counterpart = their_field(theirs, field)
        if field.struct is None or item is None:
            converted = to_theirs(field, item)
        elif field.array:
            converted = [build(counterpart.data_class, field.struct, element, version) for element in item]
        else:
            converted = build(counterpart.data_class, field.struct, item, version)
        arguments[counterpart.name] = converted
    return theirs(version=version, **arguments)


def plain(theirs: Any, struct: schema.Struct, blank: Any, version: int) -> Any:
    """Our message with kafka-python's values."""
    values = []
    for field, default in zip(struct.fields, blank(), strict=True):
        if version not in field.versions or is_our_own(field):
            values.append(default)
            continue
        item = getattr(theirs, their_field(theirs, field).name)
        if item is None and field.tag is not None:
            values.append(default)
        elif field.struct is None or item is None:
            values.append(from_theirs(field, item))
        else:
            inner = getattr(importlib.import_module(blank.__module__), field.struct.name)
            if field.array:
                values.append(tuple(plain(element, field.struct, inner, version) for element in item))
            else:
                values.append(plain(item, field.struct, inner, version))
    return blank(*values)


def values_without_quirks(name: str) -> SpecialCases:
    """None of our own fields, and no errors of ApiVersions, which kafka-python reads as version 0 then."""

    def special(field: schema.Field) -> st.SearchStrategy[Any] | None:
        if is_our_own(field):
            return unset(field)
        return st.just(0) if name == "ApiVersionsResponse" and field.name == "error_code" else None

    return special


@pytest.mark.parametrize("name", sorted(THEIRS))
@settings(max_examples=2, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_kafka_python_agrees_in_both_directions(name: str, data: st.DataObject) -> None:
    message = all_messages()[name]
    value = data.draw(messages(message, values_without_quirks(name)))
    # Embedded data comes with its version before it unless told otherwise.
    options = {"header": False} if message.definition.kind == "data" else {}
    for version in shared_versions(message):
        ours = project(message, value, version)
        struct = message.definition.struct
        theirs = build(THEIRS[name], struct, ours, version)
        assert decode(message.cls, version, theirs.encode(version=version, **options)) == ours
        read = THEIRS[name].decode(encode(ours, version), version=version, **options)
        assert plain(read, struct, message.cls, version) == ours
