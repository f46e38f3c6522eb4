"""Parts of a JSON text verbatim: numbers keep their digits, objects their order and duplicate keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from penstock.gateway.rest.values.json_text import json_bytes

SPACE = re.compile(r"[ \t\r\n]*")
# Data of the other types is not JSON, but text or base64.
NOT_JSON = ('"BINARY"', '"STRING"', '"AVRO"', '"PROTOBUF"')
ESCAPE_OR_SPACE = re.compile(r"[\\ \t\r\n]")
# Everything but whitespace between tokens; strings are matched whole, so that their contents are not split.
TOKENS = re.compile(r'[^" \t\r\n]+|"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)

# Finds where the value at a position ends. Numbers are not parsed: `len` is the cheapest stand-in.
_pass_over = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=len).raw_decode


def member(text: str, *names: str) -> str:
    """The raw text of a member of an object in valid JSON text; further names descend into it.

    As in Python's json module, the last of several members with the same name counts.
    """
    for name in names:
        [text] = [value for each, value in _members(text) if each == name][-1:]
    return text


def elements(text: str) -> list[str]:
    """The raw texts of a list's elements in valid JSON text."""
    position = _after_space(text, _after_space(text, 0) + 1)
    found = []
    while text[position] != "]":
        end = _pass_over(text, position)[1]
        found.append(text[position:end])
        position = _after_space(text, end)
        if text[position] == ",":
            position = _after_space(text, position + 1)
    return found


def compact(text: str) -> bytes:
    """Valid JSON text without whitespace between tokens and without unnecessary escapes."""
    if ESCAPE_OR_SPACE.search(text) is None:
        return text.encode()
    tokens = TOKENS.findall(text)
    if "\\" in text:
        tokens = [json_bytes(json.loads(token)).decode() if "\\" in token else token for token in tokens]
    return "".join(tokens).encode()


def exact_value(raw: bytes, *_budgets: object) -> bytes:
    """The `value` of a body as compact JSON. The body must be a valid object with a value."""
    return compact(member(raw.decode(), "value"))


def exact_parts(raw: bytes, *words: object) -> list[dict[str, bytes]]:
    """For each record of a v3 body the `data` of its key and value as compact JSON, if its type is JSON.

    The body must be valid. The first name, if given, is the member of the body that holds the records.
    """
    text = raw.decode()
    texts = elements(member(text, words[0])) if words and isinstance(words[0], str) else _values(text)
    found = []
    for each in texts:
        parts = {}
        for name, inner in _members(each) if each.startswith("{") else ():
            if name in ("key", "value") and inner.startswith("{"):
                members = dict(_members(inner))
                if "data" in members and members.get("type") not in NOT_JSON:
                    parts[name] = compact(members["data"])
        found.append(parts)
    return found


def exact_records(raw: bytes, *_budgets: Any) -> list[dict[str, bytes]]:
    """For each record of a v2 body its key and value as compact JSON. The body must be valid."""
    return [
        {name: compact(inner) for name, inner in _members(each) if name in ("key", "value")}
        for each in elements(member(raw.decode(), "records"))
    ]


def _values(text: str) -> list[str]:
    """Concatenated JSON texts."""
    position, found = _after_space(text, 0), []
    while position < len(text):
        end = _pass_over(text, position)[1]
        found.append(text[position:end])
        position = _after_space(text, end)
    return found


def _members(text: str) -> Iterator[tuple[str, str]]:
    position = _after_space(text, _after_space(text, 0) + 1)
    while text[position] != "}":
        name, position = _pass_over(text, position)
        start = _after_space(text, _after_space(text, position) + 1)
        end = _pass_over(text, start)[1]
        yield name, text[start:end]
        position = _after_space(text, end)
        if text[position] == ",":
            position = _after_space(text, position + 1)


def _after_space(text: str, position: int) -> int:
    # All other characters that can stand between two tokens are greater than a space.
    if text[position : position + 1] > " ":
        return position
    found: Any = SPACE.match(text, position)
    return int(found.end())
