"""Tokenizes .proto text, with line numbers."""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.gateway.registry.schema import SchemaUnusable

TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>(?:0[xX][0-9a-fA-F]+|\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)?)(?![\w.]))
    |(?P<word>[A-Za-z_]\w*)
    |(?P<sign>[{}\[\]()<>=;,.:+\-/])
    """,
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
SIMPLE_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


class Token(NamedTuple):
    """An identifier, number, string or punctuation; `kind` is empty at the end of the text."""

    kind: str
    text: str
    line: int


def tokens_of(text: str) -> list[Token]:
    """All tokens; the last one has no kind. Comments and whitespace are dropped."""
    found, position, line = [], 0, 1
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise SchemaUnusable(f"line {line}: {text[position : position + 12]!r} is not a valid token")
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(Token(kind, match[0], line))
        line += match[0].count("\n")
        position = match.end()
    found.append(Token("", "", line))
    return found


def string_value(token: Token) -> bytes:
    """The bytes of a string literal."""

    def replace(match: re.Match[bytes]) -> bytes:
        octal, hexadecimal, short, long, simple = match.groups()
        if octal is not None:
            return bytes([int(octal, 8) & 0xFF])
        if hexadecimal is not None:
            return bytes([int(hexadecimal, 16)])
        if simple is not None:
            return SIMPLE_ESCAPES.get(simple, simple)
        point = int(short or long, 16)
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise SchemaUnusable(f"line {token.line}: invalid character {point:#x}")
        return chr(point).encode()

    return ESCAPE.sub(replace, token.text[1:-1].encode())


def integer_value(token: Token) -> int:
    """The value of an integer literal: decimal, octal or hexadecimal."""
    text = token.text.lower()
    try:
        if text.startswith("0x"):
            return int(text, 16)
        return int(text, 8) if len(text) > 1 and text.startswith("0") else int(text)
    except ValueError:
        raise SchemaUnusable(f"line {token.line}: {token.text!r} is not an integer") from None
