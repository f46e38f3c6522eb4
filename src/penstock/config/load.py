"""Configuration files: Java's .properties syntax, and messages that say which line is meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.config.broker import examine
from penstock.config.node import NodeSettings
from penstock.config.properties import ConfigError, Finding

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = re.compile(r"[0-9a-fA-F]{4}", re.ASCII)
_PLACEHOLDER = re.compile(r"\$\{[^}]*:[^}]*\}")


@dataclass(frozen=True, slots=True)
class PropertyLine:
    """One setting of a file, and the line it starts on, counted from 1."""

    name: str
    value: str
    line: int


def read_properties(text: str) -> list[PropertyLine]:
    """Every setting in order, duplicates included. Raises ConfigError for a broken \\u escape."""
    entries = []
    for line, logical in _logical_lines(text):
        name_end, value_start = _split(logical)
        try:
            name, value = _unescape(logical[:name_end]), _unescape(logical[value_start:])
        except ValueError as error:
            raise ConfigError([Finding("", f"line {line}: {error}")]) from None
        entries.append(PropertyLine(name, value, line))
    return entries


def load_node_settings(path: str | Path) -> tuple[NodeSettings, list[str]]:
    """Read a node's configuration file. Raises ConfigError naming each line that is wrong, OSError if unreadable."""
    path = Path(path)
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        # Java reads .properties files as Latin-1, in which any bytes are valid.
        text = raw.decode("latin-1")
    try:
        entries = read_properties(text)
    except ConfigError as error:
        raise ConfigError([Finding("", f"{path.name}: {error.message}")]) from None
    properties = {entry.name: entry.value for entry in entries}
    lines = {entry.name: entry.line for entry in entries}
    examination = examine(properties)
    errors = (*_placeholders(entries), *examination.errors)
    if errors or examination.settings is None:
        raise ConfigError(_located(errors, lines, path.name))
    warnings = _located((*_duplicates(entries), *examination.warnings), lines, path.name)
    return examination.settings, [warning.text for warning in warnings]


def _located(findings: Iterable[Finding], lines: dict[str, int], file_name: str) -> list[Finding]:
    located = []
    for finding in findings:
        line = lines.get(finding.name)
        where = file_name if line is None else f"{file_name}:{line}"
        located.append(Finding(finding.name, f"{where}: {finding.text}"))
    return located


def _duplicates(entries: list[PropertyLine]) -> Iterator[Finding]:
    last: dict[str, PropertyLine] = {}
    for entry in entries:
        earlier = last.get(entry.name)
        if earlier is not None:
            text = f"{entry.name} is set on line {earlier.line} and again on line {entry.line}: the last one counts"
            yield Finding(entry.name, text)
        last[entry.name] = entry


def _placeholders(entries: list[PropertyLine]) -> Iterator[Finding]:
    for entry in entries:
        placeholder = _PLACEHOLDER.search(entry.value)
        if placeholder is not None:
            text = (
                f"{entry.name}: {placeholder[0]} is not filled in, as Penstock has no config providers: write the value"
            )
            yield Finding(entry.name, text)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blanks, continuations joined, each with the number of its first line."""
    collected = ""
    first = 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")), start=1):
        line = natural.lstrip(_BLANKS)
        if not collected and (not line or line[0] in "#!"):
            first = 0
            continue
        first = first or number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2 == 1:
            collected += line[:-1]
            continue
        collected += line
        if collected:
            yield first, collected
        collected, first = "", 0
    if collected:
        yield first, collected


def _split(logical: str) -> tuple[int, int]:
    """Where the name ends and where the value starts: after `=`, `:` or blanks, unless escaped."""
    position = 0
    while position < len(logical) and logical[position] not in "=:" + _BLANKS:
        position += 2 if logical[position] == "\\" else 1
    name_end = min(position, len(logical))
    rest = logical[name_end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return name_end, len(logical) - len(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    characters = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            characters.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = _UNICODE.match(text, position)
            if digits is None:
                raise ValueError("\\u must be followed by four hexadecimal digits, for example \\u00e9")
            characters.append(chr(int(digits[0], 16)))
            position += 4
        else:
            characters.append(_ESCAPES.get(escaped, escaped))
    # Characters beyond the first plane come as two escapes, which only together are one character.
    return "".join(characters).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
