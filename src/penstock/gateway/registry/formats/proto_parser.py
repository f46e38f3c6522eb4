"""Parses the .proto language (proto2, proto3) into the descriptor that protoc would produce.

Type names stay as they are written; protobuf's descriptor pool resolves and checks them afterwards.
"""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from penstock.gateway.registry.formats.proto_fields import read_extension_ranges, read_field, read_reserved
from penstock.gateway.registry.formats.proto_reader import Reader, read_option
from penstock.gateway.registry.schema import SchemaUnusable

NESTING_MAX = 32


def parse_proto(text: str, name: str) -> FileDescriptorProto:
    """The descriptor of a .proto text; raises SchemaUnusable with the reason and the line."""
    file = FileDescriptorProto(name=name)
    reader = Reader(text)
    if reader.accept("syntax"):
        reader.expect("=")
        syntax = reader.text()
        if syntax not in ("proto2", "proto3"):
            raise SchemaUnusable(f"syntax {syntax!r} is not supported; use proto3 or proto2")
        if syntax == "proto3":
            file.syntax = syntax
        reader.expect(";")
    elif reader.ahead("edition"):
        raise SchemaUnusable("editions are not supported yet; use syntax proto3 or proto2")
    while reader.token.kind:
        _statement(reader, file)
    return file


def _statement(reader: Reader, file: FileDescriptorProto) -> None:
    if reader.accept(";"):
        return
    keyword = reader.word("a statement")
    if keyword == "package":
        file.package = reader.name()
        reader.expect(";")
    elif keyword == "import":
        public, weak = reader.accept("public"), reader.accept("weak")
        if public:
            file.public_dependency.append(len(file.dependency))
        if weak:
            file.weak_dependency.append(len(file.dependency))
        file.dependency.append(reader.text())
        reader.expect(";")
    elif keyword == "option":
        read_option(reader, file.options)
        reader.expect(";")
    elif keyword == "message":
        _message(reader, file.message_type.add(), file.syntax, 1)
    elif keyword == "enum":
        _enum(reader, file.enum_type.add())
    elif keyword == "service":
        _service(reader, file.service.add())
    elif keyword == "extend":
        _extend(reader, file, file.syntax)
    else:
        raise SchemaUnusable(f"line {reader.token.line}: {keyword!r} is not a statement of a .proto file")


def _message(reader: Reader, message: DescriptorProto, syntax: str, depth: int) -> None:
    message.name = reader.word("the name of a message")
    _message_body(reader, message, syntax, depth)


def _message_body(reader: Reader, message: DescriptorProto, syntax: str, depth: int) -> None:
    if depth > NESTING_MAX:
        raise SchemaUnusable(f"line {reader.token.line}: messages are nested more than {NESTING_MAX} deep")
    for _ in reader.block():
        # `message`, `option` and the like may also be type names, so the next token decides.
        if reader.ahead("message") and _declares(reader):
            reader.take()
            _message(reader, message.nested_type.add(), syntax, depth + 1)
        elif reader.ahead("enum") and _declares(reader):
            reader.take()
            _enum(reader, message.enum_type.add())
        elif reader.accept("option"):
            read_option(reader, message.options)
            reader.expect(";")
        elif reader.accept("oneof"):
            _oneof(reader, message, syntax, depth)
        elif reader.accept("reserved"):
            read_reserved(reader, message)
        elif reader.accept("extensions"):
            read_extension_ranges(reader, message)
        elif reader.accept("extend"):
            _extend(reader, message, syntax)
        else:
            _field(reader, message, message.field.add(), syntax, depth)
    _add_optional_oneofs(message)


def _declares(reader: Reader) -> bool:
    """Whether a declaration `message X {` or `enum X {` comes next, rather than a field of a type with such a name."""
    tokens = reader.following(3)
    return len(tokens) == 3 and tokens[1].kind == "word" and tokens[2].text == "{"


def _field(reader: Reader, scope: DescriptorProto, field: FieldDescriptorProto, syntax: str, depth: int) -> None:
    group = read_field(reader, scope, field, syntax)
    if group is not None:
        _message_body(reader, group, syntax, depth + 1)


def _oneof(reader: Reader, message: DescriptorProto, syntax: str, depth: int) -> None:
    index = len(message.oneof_decl)
    oneof = message.oneof_decl.add(name=reader.word("the name of a oneof"))
    for _ in reader.block():
        if reader.accept("option"):
            read_option(reader, oneof.options)
            reader.expect(";")
            continue
        if reader.token.text in ("optional", "required", "repeated", "map") and not reader.ahead("map", "="):
            raise SchemaUnusable(f"line {reader.token.line}: a oneof field cannot be {reader.token.text!r}")
        field = message.field.add(oneof_index=index)
        _field(reader, message, field, syntax, depth)


def _add_optional_oneofs(message: DescriptorProto) -> None:
    """proto3's `optional` field is the only member of a synthetic oneof, which comes after all others."""
    taken = {oneof.name for oneof in message.oneof_decl} | {field.name for field in message.field}
    for field in message.field:
        if field.proto3_optional:
            name = f"_{field.name}"
            while name in taken:
                name = f"X{name}"
            taken.add(name)
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)


def _extend(reader: Reader, owner: FileDescriptorProto | DescriptorProto, syntax: str) -> None:
    extended = reader.name("the name of a message")
    # A group in an extension would need a parent for its message; groups are deprecated, and not worth it.
    scope = DescriptorProto()
    for _ in reader.block():
        field = owner.extension.add(extendee=extended)
        if read_field(reader, scope, field, syntax) is not None:
            raise SchemaUnusable(f"line {reader.token.line}: groups in extensions are not supported")


def _enum(reader: Reader, enum: EnumDescriptorProto) -> None:
    enum.name = reader.word("the name of an enum")
    for _ in reader.block():
        if reader.accept("option"):
            read_option(reader, enum.options)
        elif reader.accept("reserved"):
            read_reserved(reader, enum)
            continue
        else:
            value = enum.value.add(name=reader.word("a value of the enum"))
            reader.expect("=")
            value.number = _within_int32(reader, reader.integer())
            for _ in reader.bracketed():
                read_option(reader, value.options)
        reader.expect(";")


def _within_int32(reader: Reader, number: int) -> int:
    if not -(1 << 31) <= number < 1 << 31:
        raise SchemaUnusable(f"line {reader.token.line}: {number} does not fit in 32 bits")
    return number


def _service(reader: Reader, service: ServiceDescriptorProto) -> None:
    service.name = reader.word("the name of a service")
    for _ in reader.block():
        if reader.accept("option"):
            read_option(reader, service.options)
            reader.expect(";")
            continue
        reader.expect("rpc")
        method = service.method.add(name=reader.word("the name of a method"))
        method.client_streaming, method.input_type = _method_type(reader)
        reader.expect("returns")
        method.server_streaming, method.output_type = _method_type(reader)
        if reader.ahead("{"):
            for _ in reader.block():
                reader.expect("option")
                read_option(reader, method.options)
                reader.expect(";")
        else:
            reader.expect(";")


def _method_type(reader: Reader) -> tuple[bool, str]:
    reader.expect("(")
    streaming = reader.ahead("stream") and not reader.ahead("stream", ")") and reader.accept("stream")
    name = reader.name("the name of a message")
    reader.expect(")")
    return streaming, name
