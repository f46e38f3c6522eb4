"""Protobuf schemas: .proto text and serialized descriptors, references, and compatibility."""

from __future__ import annotations

import base64
import binascii
import re

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from penstock.gateway.registry.formats.proto_diff import HARMLESS, ProtoComparison
from penstock.gateway.registry.formats.proto_files import well_known
from penstock.gateway.registry.formats.proto_parser import parse_proto
from penstock.gateway.registry.formats.proto_printer import print_proto
from penstock.gateway.registry.schema import PROTOBUF, Dependencies, Difference, SchemaUnusable

BASE64 = re.compile(r"\s*[A-Za-z0-9+/]+=*\s*")
FILE_NAME = "default.proto"


class ProtobufSchema:
    """One .proto file. Clients send it as text, or as a serialized FileDescriptorProto in base64."""

    schema_type = PROTOBUF

    def __init__(self, text: str, dependencies: Dependencies = ()) -> None:
        pool = _Pool()
        for name, dependency in dependencies:
            try:
                pool.add(_read(dependency, name))
            except SchemaUnusable as error:
                raise SchemaUnusable(f"the reference {name!r} cannot be used: {error}") from None
        loose = _read(text, FILE_NAME)
        self.descriptor = pool.add(loose)
        resolved = FileDescriptorProto()
        self.descriptor.CopyToProto(resolved)
        if loose.syntax == "proto3":
            resolved.syntax = "proto3"
        _restore_options(loose, resolved)
        self._file = resolved
        self.canonical = print_proto(resolved)
        self.normalized = print_proto(resolved, normalize=True)

    def unreadable(self, writer: ProtobufSchema) -> list[Difference]:
        """The changes that make this schema misread data written with `writer`."""
        changes = ProtoComparison().compare_files(writer.descriptor, self.descriptor)
        return [Difference(kind, f"#{path}") for kind, path in changes if kind not in HARMLESS]

    def formatted(self, form: str) -> str:
        """`serialized` is the descriptor in base64; any other form is the text."""
        if form != "serialized":
            return self.canonical
        file = FileDescriptorProto()
        file.CopyFrom(self._file)
        _forget_options(file)
        return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


class _Pool:
    """A descriptor pool; protobuf's own files are added when they are imported."""

    def __init__(self) -> None:
        self._pool = DescriptorPool()
        self._added: set[str] = set()

    def add(self, file: FileDescriptorProto) -> FileDescriptor:
        """Add a file, whose imports must already be here or be well known, and return it with all names resolved."""
        for name in file.dependency:
            if name in self._added:
                continue
            known = well_known(name)
            if known is None:
                raise SchemaUnusable(f"import {name!r} is not among the references: add it to `references`")
            self.add(known)
        plain = FileDescriptorProto()
        plain.CopyFrom(file)
        _forget_options(plain)
        try:
            self._pool.AddSerializedFile(plain.SerializeToString())
            descriptor = self._pool.FindFileByName(file.name)
        except (TypeError, KeyError, ValueError) as error:
            raise SchemaUnusable(_reason(error)) from None
        self._added.add(file.name)
        return descriptor


def _reason(error: Exception) -> str:
    """Protobuf's error message, without its preamble."""
    return re.sub(r"^.*?descriptor pool: *|\s+$", "", str(error).strip("'\""), flags=re.DOTALL)


def _read(text: str, name: str) -> FileDescriptorProto:
    if BASE64.fullmatch(text):
        try:
            file = FileDescriptorProto.FromString(base64.b64decode(text, validate=False))
        except (binascii.Error, DecodeError, ValueError) as error:
            raise SchemaUnusable(f"it is neither .proto text nor a FileDescriptorProto in base64: {error}") from None
        if file.HasField("edition") or file.syntax == "editions":
            raise SchemaUnusable("editions are not supported yet; use syntax proto3 or proto2")
        file.ClearField("source_code_info")
    else:
        file = parse_proto(text, name)
    file.name = name
    return file


def _forget_options(message: Message) -> None:
    """Remove uninterpreted options, which protobuf's pool rejects."""
    for field, value in message.ListFields():
        if field.name == "uninterpreted_option":
            message.ClearField("uninterpreted_option")
        elif field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                _forget_options(each)


def _restore_options(loose: Message, resolved: Message) -> None:
    """Put back what `_forget_options` removed; the two messages have the same structure."""
    for field, value in loose.ListFields():
        if field.name == "uninterpreted_option":
            resolved.uninterpreted_option.extend(value)  # type: ignore[attr-defined]
        elif field.message_type is not None and not field.is_repeated:
            if _has_uninterpreted(value):
                _restore_options(value, getattr(resolved, field.name))
        elif field.message_type is not None:
            for one, other in zip(value, getattr(resolved, field.name), strict=False):
                _restore_options(one, other)


def _has_uninterpreted(message: Message) -> bool:
    return any(field.name == "uninterpreted_option" for field, _ in message.ListFields()) or any(
        _has_uninterpreted(each)
        for field, value in message.ListFields()
        if field.message_type is not None
        for each in (value if field.is_repeated else [value])
    )
