"""Fields of messages in the .proto language: labels, types, maps, groups and options; and reserved numbers."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto

from penstock.gateway.registry.formats.proto_reader import Reader, read_option, read_value
from penstock.gateway.registry.schema import SchemaUnusable

LABELS = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
FIELD_NUMBER_MAX = (1 << 29) - 1
ENUM_NUMBER_MAX = (1 << 31) - 1


def read_field(
    reader: Reader, scope: DescriptorProto, field: FieldDescriptorProto, syntax: str
) -> DescriptorProto | None:
    """Read one field into `field`. For a group its message is returned, whose body comes next; otherwise None."""
    label = reader.token.text if reader.token.text in LABELS and not _is_type(reader) else ""
    if label:
        reader.take()
    elif syntax != "proto3" and not field.HasField("oneof_index") and not reader.ahead("map", "<"):
        raise SchemaUnusable(f"line {reader.token.line}: a proto2 field starts with optional, required or repeated")
    if label == "required" and syntax == "proto3":
        raise SchemaUnusable(f"line {reader.token.line}: proto3 has no required fields")
    field.label = LABELS.get(label, FieldDescriptorProto.LABEL_OPTIONAL)
    if label == "optional" and syntax == "proto3":
        field.proto3_optional = True
    if reader.ahead("group") and reader.following(3)[2].text == "=":
        return _group(reader, scope, field)
    if reader.ahead("map", "<"):
        _map_type(reader, scope, field)
    else:
        _set_type(field, reader.name("a type"))
        field.name = reader.word("the name of a field")
    _number_and_options(reader, field)
    reader.expect(";")
    return None


def _is_type(reader: Reader) -> bool:
    """Whether a label keyword is used as a type name: `optional = 1` can only follow a type of that name."""
    following = reader.following(3)
    return len(following) == 3 and following[1].text == "="


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    if name in SCALARS:
        field.type = SCALARS[name]
    else:
        field.type_name = name


def _number_and_options(reader: Reader, field: FieldDescriptorProto) -> None:
    reader.expect("=")
    field.number = _field_number(reader)
    for _ in reader.bracketed():
        _field_option(reader, field)


def _field_number(reader: Reader) -> int:
    line, number = reader.token.line, reader.integer("the number of a field")
    if not 0 < number <= FIELD_NUMBER_MAX:
        raise SchemaUnusable(f"line {line}: field numbers range from 1 to {FIELD_NUMBER_MAX}, not {number}")
    return number


def _field_option(reader: Reader, field: FieldDescriptorProto) -> None:
    if reader.ahead("default", "="):
        reader.take()
        reader.take()
        value = read_value(reader)
        if isinstance(value, bytes):
            if field.type == FieldDescriptorProto.TYPE_BYTES:
                field.default_value = "".join(
                    chr(byte) if 32 <= byte < 127 and byte not in b"\"'\\" else f"\\{byte:03o}" for byte in value
                )
            else:
                field.default_value = value.decode("utf-8", "replace")
        else:
            field.default_value = str(value)
    elif reader.ahead("json_name", "="):
        reader.take()
        reader.take()
        field.json_name = reader.text()
    else:
        read_option(reader, field.options)


def _map_type(reader: Reader, scope: DescriptorProto, field: FieldDescriptorProto) -> None:
    reader.take()
    reader.expect("<")
    key = reader.name("the type of the keys")
    reader.expect(",")
    value = reader.name("the type of the values")
    reader.expect(">")
    field.name = reader.word("the name of a field")
    entry = scope.nested_type.add(name="".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry")
    entry.options.map_entry = True
    for number, name, type_name in ((1, "key", key), (2, "value", value)):
        part = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        _set_type(part, type_name)
    field.label = FieldDescriptorProto.LABEL_REPEATED
    field.type = FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = entry.name


def _group(reader: Reader, scope: DescriptorProto, field: FieldDescriptorProto) -> DescriptorProto:
    reader.take()
    name = reader.word("the name of a group")
    if not name[:1].isupper():
        raise SchemaUnusable(f"line {reader.token.line}: a group name must start with a capital letter")
    field.name = name.lower()
    field.type = FieldDescriptorProto.TYPE_GROUP
    field.type_name = name
    _number_and_options(reader, field)
    return scope.nested_type.add(name=name)


def _ranges(reader: Reader, maximum: int) -> list[tuple[int, int]]:
    """Numbers and ranges, both ends inclusive."""
    found = []
    for _ in reader.entries():
        first = last = reader.integer()
        if reader.accept("to"):
            last = maximum if reader.accept("max") else reader.integer()
        if not -(1 << 31) <= first <= last <= maximum:
            raise SchemaUnusable(f"line {reader.token.line}: {first} to {last} is not a valid range")
        found.append((first, last))
    return found


def read_reserved(reader: Reader, owner: DescriptorProto | EnumDescriptorProto) -> None:
    """Read the numbers or names after `reserved`."""
    if reader.token.kind == "string":
        for _ in reader.entries():
            owner.reserved_name.append(reader.text())
    elif isinstance(owner, EnumDescriptorProto):
        for first, last in _ranges(reader, ENUM_NUMBER_MAX):
            owner.reserved_range.add(start=first, end=last)
    else:
        for first, last in _ranges(reader, FIELD_NUMBER_MAX):
            owner.reserved_range.add(start=first, end=last + 1)
    reader.expect(";")


def read_extension_ranges(reader: Reader, message: DescriptorProto) -> None:
    """Read the numbers after `extensions`."""
    start = len(message.extension_range)
    for first, last in _ranges(reader, FIELD_NUMBER_MAX):
        message.extension_range.add(start=first, end=last + 1)
    for _ in reader.bracketed():
        read_option(reader, message.extension_range[start].options)
    reader.expect(";")
