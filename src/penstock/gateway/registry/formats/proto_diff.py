"""The changes between two .proto files, field by field, to decide whether one reads data written with the other.

A change whose kind is not in HARMLESS makes the newer file misread or reject old data. The names are those that
Confluent's registry reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor

Change = tuple[str, str]

HARMLESS_NAMES = """
    MESSAGE_ADDED MESSAGE_MOVED ENUM_ADDED ENUM_REMOVED ENUM_CONST_ADDED ENUM_CONST_CHANGED ENUM_CONST_REMOVED
    FIELD_ADDED FIELD_REMOVED FIELD_NAME_CHANGED FIELD_STRING_OR_BYTES_LABEL_CHANGED
    ONEOF_ADDED ONEOF_REMOVED ONEOF_FIELD_ADDED ONEOF_FIELD_MOVED_TO_TOP_LEVEL
"""
HARMLESS = frozenset(HARMLESS_NAMES.split())

# Types of one group are encoded in the same way.
SCALAR_GROUPS = {
    type_number: group
    for group, types in {
        "general": ("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"),
        "signed": ("SINT32", "SINT64"),
        "text": ("STRING", "BYTES"),
        "fixed32": ("FIXED32", "SFIXED32"),
        "fixed64": ("FIXED64", "SFIXED64"),
        "float": ("FLOAT",),
        "double": ("DOUBLE",),
    }.items()
    for type_number in (getattr(FieldDescriptor, f"TYPE_{name}") for name in types)
}


class ProtoComparison:
    """One comparison of two files. Each pair of messages is compared once, which also breaks cycles."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def compare_files(self, old: FileDescriptor, new: FileDescriptor) -> list[Change]:
        """Every change between two files."""
        changes = [("PACKAGE_CHANGED", "/")] if old.package != new.package else []
        changes += self._compare_types(old.message_types_by_name, new.message_types_by_name, "/")
        return changes + _compare_enums(old.enum_types_by_name, new.enum_types_by_name, "/")

    def _compare_types(self, old: Any, new: Any, path: str) -> list[Change]:
        changes: list[Change] = []
        for name in [*old, *(name for name in new if name not in old)]:
            location = f"{path}{name}"
            if name not in new:
                changes += [] if _is_map_entry(old[name]) else [("MESSAGE_REMOVED", location)]
            elif name not in old:
                changes += [] if _is_map_entry(new[name]) else [("MESSAGE_ADDED", location)]
            else:
                changes += self._compare_messages(old[name], new[name], location)
        return changes

    def _compare_messages(self, old: Descriptor, new: Descriptor, path: str) -> list[Change]:
        pair = (old.full_name, new.full_name)
        if pair in self._seen:
            return []
        self._seen.add(pair)
        changes = _compare_oneofs(old, new, path)
        before, after = old.fields_by_number, new.fields_by_number
        deleted = _deleted_oneofs(old, new)
        for number in sorted({*before, *after}):
            if number not in after:
                changes += _removed(before[number], deleted, path)
            elif number not in before:
                changes += _added(after[number], path)
            else:
                changes += self._compare_fields(before[number], after[number], path)
        changes += self._compare_types(old.nested_types_by_name, new.nested_types_by_name, f"{path}.")
        return changes + _compare_enums(old.enum_types_by_name, new.enum_types_by_name, f"{path}.")

    def _compare_fields(self, old: FieldDescriptor, new: FieldDescriptor, path: str) -> list[Change]:
        location = _location(new, path)
        changes = [("FIELD_NAME_CHANGED", location)] if old.name != new.name else []
        if _oneof(old) and not _oneof(new):
            changes.append(("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", location))
        return changes + self._compare_field_types(old, new, location, labels=True)

    def _compare_field_types(
        self, old: FieldDescriptor, new: FieldDescriptor, location: str, *, labels: bool
    ) -> list[Change]:
        kinds = (_kind(old), _kind(new))
        if kinds[0] != kinds[1]:
            return [("FIELD_KIND_CHANGED", location)]
        if old.message_type is None or new.message_type is None:
            return _compare_scalars(old, new, location, labels=labels)
        if kinds[0] == "map":
            before, after = old.message_type.fields_by_number, new.message_type.fields_by_number
            return [
                change
                for number in (1, 2)
                for change in self._compare_field_types(before[number], after[number], location, labels=False)
            ]
        if _local_name(old.message_type) != _local_name(new.message_type):
            return [("FIELD_NAMED_TYPE_CHANGED", location)]
        inner = self._compare_messages(old.message_type, new.message_type, location)
        if any(kind not in HARMLESS for kind, _ in inner):
            inner.append(("FIELD_NAMED_TYPE_CHANGED", location))
        return inner


def _is_map_entry(message: Descriptor) -> bool:
    return bool(message.GetOptions().map_entry)


def _kind(field: FieldDescriptor) -> str:
    if field.message_type is None:
        return "scalar"
    return "map" if _is_map_entry(field.message_type) else "message"


def _oneof(field: FieldDescriptor) -> str:
    """The name of a field's oneof, or empty. proto3's `optional` creates a oneof that does not count."""
    oneof = field.containing_oneof
    if oneof is None or (len(oneof.fields) == 1 and oneof.name.lstrip("X") == f"_{field.name}"):
        return ""
    return str(oneof.name)


def _oneofs(message: Descriptor) -> dict[str, list[FieldDescriptor]]:
    found: dict[str, list[FieldDescriptor]] = {}
    for field in message.fields:
        if _oneof(field):
            found.setdefault(_oneof(field), []).append(field)
    return found


def _location(field: FieldDescriptor, path: str) -> str:
    return "/".join(word for word in (path, _oneof(field), str(field.number)) if word)


def _local_name(message: Descriptor) -> str:
    return str(message.full_name.removeprefix(f"{message.file.package}."))


def _compare_scalars(old: FieldDescriptor, new: FieldDescriptor, location: str, *, labels: bool) -> list[Change]:
    group = SCALAR_GROUPS.get(old.type)
    if group != SCALAR_GROUPS.get(new.type):
        return [("FIELD_SCALAR_KIND_CHANGED", location)]
    if labels and (old.is_repeated, old.is_required) != (new.is_repeated, new.is_required):
        return [("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if group == "text" else "FIELD_NUMERIC_LABEL_CHANGED", location)]
    return []


def _deleted_oneofs(old: Descriptor, new: Descriptor) -> set[str]:
    """Oneofs that were removed with all their fields, which is harmless for readers of old data."""
    kept = _oneofs(new)
    return {
        name
        for name, fields in _oneofs(old).items()
        if name not in kept and not any(field.number in new.fields_by_number for field in fields)
    }


def _removed(field: FieldDescriptor, deleted: set[str], path: str) -> list[Change]:
    if _oneof(field):
        return [] if _oneof(field) in deleted else [("ONEOF_FIELD_REMOVED", _location(field, path))]
    return [("REQUIRED_FIELD_REMOVED" if field.is_required else "FIELD_REMOVED", _location(field, path))]


def _added(field: FieldDescriptor, path: str) -> list[Change]:
    if _oneof(field):
        return [("ONEOF_FIELD_ADDED", _location(field, path))]
    return [("REQUIRED_FIELD_ADDED" if field.is_required else "FIELD_ADDED", _location(field, path))]


def _compare_oneofs(old: Descriptor, new: Descriptor, path: str) -> list[Change]:
    """Oneofs that were added or removed, and fields that now exclude each other although old data may have both."""
    changes: list[Change] = []
    before, after = _oneofs(old), _oneofs(new)
    for name, fields in after.items():
        origins = [old.fields_by_number[field.number] for field in fields if field.number in old.fields_by_number]
        moved = [field for field in origins if not _oneof(field)]
        groups = {_oneof(field) or f"field {field.number}" for field in origins}
        if len(groups) > 1:
            many = len(moved) > 1
            word = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if many else "FIELD_MOVED_TO_EXISTING_ONEOF"
            changes.append((word, f"{path}/{name}"))
    changes += [("ONEOF_REMOVED", f"{path}/{name}") for name in before if name not in after]
    return changes + [("ONEOF_ADDED", f"{path}/{name}") for name in after if name not in before]


def _compare_enums(old: Any, new: Any, path: str) -> list[Change]:
    changes: list[Change] = []
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new or name not in old:
            changes.append(("ENUM_ADDED" if name in new else "ENUM_REMOVED", f"{path}{name}"))
        else:
            changes += _compare_constants(old[name], new[name], f"{path}{name}")
    return changes


def _compare_constants(old: EnumDescriptor, new: EnumDescriptor, path: str) -> Iterable[Change]:
    before, after = old.values_by_number, new.values_by_number
    for number in sorted({*before, *after}):
        location = f"{path}/{number}"
        if number not in after:
            yield "ENUM_CONST_REMOVED", location
        elif number not in before:
            yield "ENUM_CONST_ADDED", location
        elif before[number].name != after[number].name:
            yield "ENUM_CONST_CHANGED", location
