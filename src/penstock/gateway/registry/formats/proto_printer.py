"""Prints a descriptor as .proto text: the same text for the same descriptor, without comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from penstock.gateway.registry.formats.proto_fields import ENUM_NUMBER_MAX, FIELD_NUMBER_MAX, SCALARS
from penstock.gateway.registry.formats.proto_options import option_texts, quoted

SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
LABEL_NAMES = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
    FieldDescriptorProto.LABEL_REQUIRED: "required ",
    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}


def print_proto(file: FileDescriptorProto, *, normalize: bool = False) -> str:
    """The text of a descriptor with resolved type names; with `normalize`, whatever has no defined order is sorted."""
    return "\n".join(_Printer(file, normalize).lines()) + "\n"


class _Level(NamedTuple):
    """A message whose body is printed: what its fields refer to by name, looked up once and not for each of them."""

    message: DescriptorProto
    nested: dict[str, DescriptorProto]
    # Of the messages and enums declared in it.
    names: frozenset[str]
    # The fields of each oneof.
    oneofs: dict[int, list[FieldDescriptorProto]]


Scope = tuple[_Level, ...]


def _level(message: DescriptorProto) -> _Level:
    nested: dict[str, DescriptorProto] = {}
    for each in message.nested_type:
        nested.setdefault(each.name, each)
    oneofs: dict[int, list[FieldDescriptorProto]] = {}
    for field in message.field:
        if field.HasField("oneof_index"):
            oneofs.setdefault(field.oneof_index, []).append(field)
    return _Level(message, nested, frozenset((*nested, *(enum.name for enum in message.enum_type))), oneofs)


class _Printer:
    def __init__(self, file: FileDescriptorProto, normalize: bool) -> None:
        self._file = file
        self._normalize = normalize
        self._proto3 = file.syntax == "proto3"

    def lines(self) -> Iterator[str]:
        file = self._file
        yield f'syntax = "{"proto3" if self._proto3 else "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        imports = []
        public, weak = frozenset(file.public_dependency), frozenset(file.weak_dependency)
        for index, name in enumerate(file.dependency):
            kind = "public " if index in public else "weak " if index in weak else ""
            imports.append(f"import {kind}{quoted(name.encode())};")
        if imports:
            yield ""
            yield from sorted(imports) if self._normalize else imports
        options = [f"option {text};" for text in option_texts(file.options, normalize=self._normalize)]
        if options:
            yield ""
            yield from options
        for message in file.message_type:
            yield ""
            yield from self._message(message, ())
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum, "")
        yield from self._extensions(file.extension, (), "")
        for service in file.service:
            yield ""
            yield from self._service(service)

    def _message(self, message: DescriptorProto, scope: Scope) -> Iterator[str]:
        yield f"{'  ' * len(scope)}message {message.name} {{"
        yield from self._message_body((*scope, _level(message)))
        yield f"{'  ' * len(scope)}}}"

    def _message_body(self, scope: Scope) -> Iterator[str]:
        """The body of the message that the scope ends with."""
        message = scope[-1].message
        indent = "  " * len(scope)
        for text in option_texts(message.options, normalize=self._normalize):
            yield f"{indent}option {text};"
        yield from _reserved(message, indent, FIELD_NUMBER_MAX, 1)
        for span in message.extension_range:
            yield f"{indent}extensions {_span(span.start, span.end - 1, FIELD_NUMBER_MAX)};"
        entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        groups = {field.type_name.rpartition(".")[2] for field in message.field if field.type == field.TYPE_GROUP}
        written: set[int] = set()
        fields = sorted(message.field, key=lambda field: field.number) if self._normalize else message.field
        for field in fields:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, entries, scope, indent)
            elif field.oneof_index not in written:
                written.add(field.oneof_index)
                yield from self._oneof(field.oneof_index, entries, scope)
        for nested in message.nested_type:
            if nested.name not in entries and nested.name not in groups:
                yield from self._message(nested, scope)
        for enum in message.enum_type:
            yield from self._enum(enum, indent)
        yield from self._extensions(message.extension, scope, indent)

    def _oneof(self, index: int, entries: dict[str, DescriptorProto], scope: Scope) -> Iterator[str]:
        indent = "  " * len(scope)
        oneof = scope[-1].message.oneof_decl[index]
        yield f"{indent}oneof {oneof.name} {{"
        for text in option_texts(oneof.options, normalize=self._normalize):
            yield f"{indent}  option {text};"
        for field in scope[-1].oneofs[index]:
            yield from self._field(field, entries, scope, indent + "  ")
        yield f"{indent}}}"

    def _field(
        self, field: FieldDescriptorProto, entries: dict[str, DescriptorProto], scope: Scope, indent: str
    ) -> Iterator[str]:
        entry = entries.get(field.type_name.rpartition(".")[2]) if field.type == field.TYPE_MESSAGE else None
        options = self._field_options(field)
        tail = f" = {field.number}" + (f" [{', '.join(options)}]" if options else "")
        if entry is not None:
            key, value = (self._type(part, scope) for part in entry.field)
            yield f"{indent}map<{key}, {value}> {field.name}{tail};"
            return
        label = self._label(field)
        if field.type == field.TYPE_GROUP:
            name = field.type_name.rpartition(".")[2]
            yield f"{indent}{label}group {name}{tail} {{"
            body = scope[-1].nested.get(name) if scope else None
            if body is not None:
                yield from self._message_body((*scope, _level(body)))
            yield f"{indent}}}"
            return
        yield f"{indent}{label}{self._type(field, scope)} {field.name}{tail};"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.HasField("oneof_index") and not field.proto3_optional:
            return ""
        if self._proto3 and field.label == field.LABEL_OPTIONAL and not field.proto3_optional:
            return ""
        return LABEL_NAMES[field.label]

    def _field_options(self, field: FieldDescriptorProto) -> list[str]:
        options = []
        if field.HasField("default_value"):
            literal = field.type in (field.TYPE_STRING, field.TYPE_BYTES)
            raw = field.default_value
            text = f'"{raw}"' if field.type == field.TYPE_BYTES else quoted(raw.encode())
            options.append(f"default = {text if literal else raw}")
        if field.HasField("json_name") and field.json_name != default_json_name(field.name):
            options.append(f"json_name = {quoted(field.json_name.encode())}")
        return options + list(option_texts(field.options, normalize=self._normalize))

    def _type(self, field: FieldDescriptorProto, scope: Scope) -> str:
        if field.type in SCALAR_NAMES and not field.type_name:
            return SCALAR_NAMES[field.type]
        full = field.type_name.lstrip(".")
        package = f"{self._file.package}." if self._file.package else ""
        short = full.removeprefix(package)
        # A nested type may have the name that this one starts with; then only the full name is unambiguous.
        first = short.split(".")[0]
        hidden = any(first in level.names for level in scope)
        return f".{full}" if hidden or (short == full and package) else short

    def _enum(self, enum: EnumDescriptorProto, indent: str) -> Iterator[str]:
        yield f"{indent}enum {enum.name} {{"
        for text in option_texts(enum.options, normalize=self._normalize):
            yield f"{indent}  option {text};"
        yield from _reserved(enum, indent + "  ", ENUM_NUMBER_MAX, 0)
        for value in enum.value:
            options = list(option_texts(value.options, normalize=self._normalize))
            tail = f" [{', '.join(options)}]" if options else ""
            yield f"{indent}  {value.name} = {value.number}{tail};"
        yield f"{indent}}}"

    def _extensions(self, extensions: Any, scope: Scope, indent: str) -> Iterator[str]:
        for field in extensions:
            if not indent:
                yield ""
            yield f"{indent}extend {field.extendee} {{"
            yield from self._field(field, {}, scope, indent + "  ")
            yield f"{indent}}}"

    def _service(self, service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{"
        for text in option_texts(service.options, normalize=self._normalize):
            yield f"  option {text};"
        for method in service.method:
            request_type = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            answered = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            options = list(option_texts(method.options, normalize=self._normalize))
            yield f"  rpc {method.name} ({request_type}) returns ({answered})" + (" {" if options else ";")
            for text in options:
                yield f"    option {text};"
            if options:
                yield "  }"
        yield "}"


def _span(first: int, last: int, maximum: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= maximum else last}"


def _reserved(owner: DescriptorProto | EnumDescriptorProto, indent: str, maximum: int, open_end: int) -> Iterator[str]:
    spans = [_span(span.start, span.end - open_end, maximum) for span in owner.reserved_range]
    if spans:
        yield f"{indent}reserved {', '.join(spans)};"
    if owner.reserved_name:
        yield f"{indent}reserved {', '.join(quoted(name.encode()) for name in owner.reserved_name)};"


def default_json_name(name: str) -> str:
    """The default JSON name of a field."""
    return re.sub(r"_+(.)", lambda match: match[1].upper(), name).rstrip("_")
