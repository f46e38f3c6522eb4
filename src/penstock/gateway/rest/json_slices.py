"""Parts of a JSON text as they were written: numbers keep their digits, objects their order and their double keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from penstock.gateway.rest.json_text import json_bytes

SPACE = re.compile(r"[ \t\r\n]*")
# A whole string, so that nothing in it is taken for something else; or space between tokens.
STRING_OR_SPACE = re.compile(r'"(?:[^"\\]|\\.)*"|[ \t\r\n]+', re.DOTALL)


def _nothing(text: str) -> None:
    """What is passed over need not be made."""
    del text


_pass_over = json.JSONDecoder(parse_int=_nothing, parse_float=_nothing, parse_constant=_nothing).raw_decode


def member(text: str, *names: str) -> str:
    """What an object in valid JSON text has under a name, and that in turn under the next one.

    As in all of Python's JSON, the last of several members with one name counts.
    """
    for name in names:
        [text] = [value for each, value in _members(text) if each == name][-1:]
    return text


def elements(text: str) -> list[str]:
    """The elements of a list in valid JSON text."""
    place = _after_space(text, _after_space(text, 0) + 1)
    found = []
    while text[place] != "]":
        end = _pass_over(text, place)[1]
        found.append(text[place:end])
        place = _after_space(text, end)
        if text[place] == ",":
            place = _after_space(text, place + 1)
    return found


def compact(text: str) -> bytes:
    """Valid JSON text without the space between its tokens, and strings without escapes that they do not need."""

    def written(match: re.Match[str]) -> str:
        token = match[0]
        if token[0] != '"':
            return ""
        return json_bytes(json.loads(token)).decode() if "\\" in token else token

    return STRING_OR_SPACE.sub(written, text).encode()


def _members(text: str) -> Iterator[tuple[str, str]]:
    place = _after_space(text, _after_space(text, 0) + 1)
    while text[place] != "}":
        name, place = _pass_over(text, place)
        start = _after_space(text, _after_space(text, place) + 1)
        end = _pass_over(text, start)[1]
        yield name, text[start:end]
        place = _after_space(text, end)
        if text[place] == ",":
            place = _after_space(text, place + 1)


def _after_space(text: str, place: int) -> int:
    found: Any = SPACE.match(text, place)
    return int(found.end())
