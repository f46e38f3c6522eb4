"""A reader of tokens, and of option values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.message import Message

from penstock.gateway.registry.formats.proto_tokens import Token, integer_value, string_value, tokens_of
from penstock.gateway.registry.schema import SchemaUnusable


class Reader:
    """A position in a list of tokens."""

    def __init__(self, text: str) -> None:
        self._tokens = tokens_of(text)
        self._next = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._next]

    def take(self) -> Token:
        """Consume the next token; the end is never consumed."""
        token = self._tokens[self._next]
        self._next += bool(token.kind)
        return token

    def ahead(self, *texts: str) -> bool:
        """Whether these tokens come next."""
        return [token.text for token in self.following(len(texts))] == list(texts)

    def following(self, count: int) -> list[Token]:
        """The next tokens, without consuming them."""
        return self._tokens[self._next : self._next + count]

    def accept(self, text: str) -> bool:
        """Consume the next token if it is this one."""
        if self.token.text != text or self.token.kind == "string":
            return False
        self.take()
        return True

    def expect(self, text: str) -> None:
        """Consume the next token, which must be this one."""
        if not self.accept(text):
            raise self.wrong(f"{text!r}")

    def block(self) -> Iterator[None]:
        """Consume `{` and `}`, and stop at every statement between them for the caller to consume."""
        self.expect("{")
        while not self.accept("}"):
            if not self.accept(";"):
                yield

    def entries(self) -> Iterator[None]:
        """Stop at every entry of a list for the caller to consume, and consume the commas between them."""
        yield
        while self.accept(","):
            yield

    def bracketed(self) -> Iterator[None]:
        """The same for a list in brackets, if there is one."""
        if self.accept("["):
            yield from self.entries()
            self.expect("]")

    def wrong(self, expected: str) -> SchemaUnusable:
        """The error to raise if the next token is not the expected one."""
        found = repr(self.token.text) if self.token.kind else "the end of the text"
        return SchemaUnusable(f"line {self.token.line}: expected {expected}, found {found}")

    def word(self, what: str = "a name") -> str:
        """Consume an identifier."""
        if self.token.kind != "word":
            raise self.wrong(what)
        return self.take().text

    def name(self, what: str = "a name") -> str:
        """Consume an identifier that may contain dots, also a leading one."""
        text = "." if self.accept(".") else ""
        text += self.word(what)
        while self.accept("."):
            text += "." + self.word(what)
        return text

    def integer(self, what: str = "a number") -> int:
        """Consume an integer with its sign."""
        sign = -1 if self.accept("-") else 1
        if self.token.kind != "number":
            raise self.wrong(what)
        return sign * integer_value(self.take())

    def string(self, what: str = "a quoted text") -> bytes:
        """Consume a string; adjacent strings are concatenated."""
        if self.token.kind != "string":
            raise self.wrong(what)
        value = b""
        while self.token.kind == "string":
            value += string_value(self.take())
        return value

    def text(self, what: str = "a quoted text") -> str:
        """Consume a string that is valid UTF-8."""
        line = self.token.line
        try:
            return self.string(what).decode()
        except UnicodeDecodeError:
            raise SchemaUnusable(f"line {line}: this string is not valid UTF-8") from None


def read_option(reader: Reader, options: Message) -> None:
    """Read `name = value` into the options: known ones as fields, others uninterpreted."""
    parts: list[tuple[str, bool]] = []
    while True:
        if reader.accept("("):
            parts.append((reader.name("the name of an option"), True))
            reader.expect(")")
        else:
            parts.append((reader.word("the name of an option"), False))
        if not reader.accept("."):
            break
    reader.expect("=")
    field = options.DESCRIPTOR.fields_by_name.get(parts[0][0]) if len(parts) == 1 and not parts[0][1] else None
    if field is not None and not reader.ahead("{"):
        _set_known(reader, options, field)
        return
    uninterpreted = options.uninterpreted_option.add()  # type: ignore[attr-defined]
    for name, extension in parts:
        uninterpreted.name.add(name_part=name, is_extension=extension)
    _set_uninterpreted(reader, uninterpreted)


def _set_known(reader: Reader, options: Message, field: Any) -> None:
    value = read_value(reader)
    try:
        if field.enum_type is not None:
            number = field.enum_type.values_by_name[value].number
            value = number
        elif field.type == field.TYPE_BOOL:
            value = {"true": True, "false": False}[value]
        elif field.type == field.TYPE_STRING:
            value = value.decode()
        if field.is_repeated:
            getattr(options, field.name).append(value)
        else:
            setattr(options, field.name, value)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SchemaUnusable(
            f"line {reader.token.line}: {value!r} is not a valid value for option {field.name}"
        ) from None


def read_value(reader: Reader) -> Any:
    """A constant: bytes for a string, an int or float, or the identifier itself."""
    negative = reader.accept("-")
    if not negative:
        reader.accept("+")
    token = reader.token
    if token.kind == "string" and not negative:
        return reader.string()
    if token.kind == "number":
        whole = all(sign not in token.text for sign in ".eE") or token.text.lower().startswith("0x")
        value = integer_value(token) if whole else float(token.text)
        reader.take()
        return -value if negative else value
    word = reader.name("a value")
    return f"-{word}" if negative else word


def _set_uninterpreted(reader: Reader, option: descriptor_pb2.UninterpretedOption) -> None:
    if reader.ahead("{"):
        option.aggregate_value = read_aggregate(reader)
        return
    value = read_value(reader)
    if isinstance(value, bytes):
        option.string_value = value
    elif isinstance(value, float):
        option.double_value = value
    elif isinstance(value, str):
        option.identifier_value = value
    elif value < 0:
        option.negative_int_value = value
    else:
        option.positive_int_value = value


def read_aggregate(reader: Reader) -> str:
    """The raw text between two braces."""
    reader.expect("{")
    depth, words = 1, list[str]()
    while True:
        token = reader.take()
        if not token.kind:
            raise reader.wrong("'}'")
        depth += (token.text == "{") - (token.text == "}")
        if not depth:
            return " ".join(words)
        words.append(token.text)
