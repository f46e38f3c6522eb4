"""The definitions of Kafka's messages, read from the text files next to this module.

A file starts with what it describes, an API or a family of records:

    api 0 Produce on broker
    family metadata

Messages follow. A line is a field: its name, its type, then what is special about it. Deeper lines are the fields of
the struct that the line above names; `struct` blocks are structs that several fields share.

    request ProduceRequest versions 3-13 flexible 9+
      transactional_id  string? = null
      topic_data        []TopicProduceData
        name            string                  3-12 ignorable
        topic_id        uuid                    13+ ignorable

Types are bool, int8, int16, uint16, int32, uint32, int64, float64, uuid, string, bytes, records and structs, `[]`
before one makes an array, `?` behind it lets it be null wherever the field exists (`nullable 2+`: from version 2 on).
A field without versions exists wherever what holds it does. Writing one into a version that lacks it is an error
unless it is `ignorable`. `tag 0` makes a tagged field, `rigid` one that flexible versions write in the old way.
`unstable` after a message means that its latest version is not settled yet.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from typing import NamedTuple

FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
VARIABLE_TYPES = frozenset({"string", "bytes", "records"})
LATEST = 32767


class Versions(NamedTuple):
    """A closed range of versions."""

    first: int = 0
    last: int = LATEST

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


ALL_VERSIONS = Versions()
NO_VERSIONS = Versions(0, -1)


class Field(NamedTuple):
    """One field. `default` is None for null, for arrays `()`; a struct's own default is built where it is needed."""

    name: str
    type: str
    array: bool
    versions: Versions
    nullable: Versions
    default: bool | int | float | str | bytes | tuple[()] | None
    null_by_default: bool
    tag: int | None
    ignorable: bool
    rigid: bool
    struct: Struct | None


class Struct(NamedTuple):
    """Fields in the order they are written in; those absent from a version are skipped."""

    name: str
    fields: tuple[Field, ...]


class Message(NamedTuple):
    """A struct with versions of its own. `flexible_from` is past the last version where none is flexible."""

    kind: str
    struct: Struct
    type: int | None
    versions: Versions
    flexible_from: int
    unstable: bool


class Definition(NamedTuple):
    """One file: an API (`key`, `name`, `listeners`) or a family of records (`name` only)."""

    key: int | None
    name: str
    listeners: tuple[str, ...]
    messages: tuple[Message, ...]

    def message(self, name: str) -> Message:
        """The message of that name; raises KeyError if the file has none."""
        for message in self.messages:
            if message.struct.name == name:
                return message
        raise KeyError(name)


class _Line(NamedTuple):
    words: list[str]
    children: list[_Line]


@cache
def load(stem: str) -> Definition:
    """The definition in the file of that name, parsed once."""
    text = pkgutil.get_data("penstock.wire", f"definitions/{stem}.txt")
    if text is None:
        raise LookupError(f"no definition file {stem}.txt")
    return parse(text.decode())


def parse(text: str) -> Definition:
    """Read a definition file's text."""
    heading, *blocks = _lines(text)
    shared = {line.words[1]: line for line in blocks if line.words[0] == "struct"}
    structs: dict[str, Struct] = {}

    def struct(name: str, line: _Line) -> Struct:
        known = structs.get(name)
        if known is not None and line is shared.get(name):
            return known
        found = Struct(name, tuple(field(child) for child in line.children))
        if known not in (None, found):
            raise ValueError(f"struct {name} is defined twice, differently")
        structs[name] = found
        return found

    def field(line: _Line) -> Field:
        name, type_text, *words = line.words
        base = type_text.removeprefix("[]").removesuffix("?")
        nested = None
        if base not in FIXED_FORMATS and base not in VARIABLE_TYPES:
            nested = struct(base, shared.get(base, line))
        return _field(name, type_text, words, nested)

    messages = tuple(_message(line, struct(line.words[1], line)) for line in blocks if line.words[0] != "struct")
    if heading.words[0] == "family":
        return Definition(None, heading.words[1], (), messages)
    _, key, name, _, *listeners = heading.words
    return Definition(int(key), name, tuple(listeners), messages)


def _lines(text: str) -> list[_Line]:
    """The lines of a file as a tree, by their indentation."""
    top: list[_Line] = []
    levels = [top]
    for raw in text.splitlines():
        words = raw.split()
        if not words:
            continue
        depth = (len(raw) - len(raw.lstrip())) // 2
        line = _Line(words, [])
        del levels[depth + 1 :]
        levels[depth].append(line)
        levels.append(line.children)
    return top


def _message(line: _Line, struct: Struct) -> Message:
    kind, _, *words = line.words
    options = {"type": "", "versions": "", "flexible": "", "unstable": ""}
    while words:
        option = words.pop(0)
        options[option] = "yes" if option == "unstable" else words.pop(0)
    flexible = options["flexible"]
    return Message(
        kind=kind,
        struct=struct,
        type=int(options["type"]) if options["type"] else None,
        versions=_versions(options["versions"]),
        flexible_from=_versions(flexible).first if flexible else LATEST,
        unstable=bool(options["unstable"]),
    )


def _field(name: str, type_text: str, words: list[str], struct: Struct | None) -> Field:
    base = type_text.removeprefix("[]").removesuffix("?")
    array = type_text.startswith("[]")
    nullable = ALL_VERSIONS if type_text.endswith("?") else NO_VERSIONS
    versions, tag, ignorable, rigid = ALL_VERSIONS, None, False, False
    default_text = ""
    while words:
        word = words.pop(0)
        if word == "=":
            default_text = words.pop(0)
        elif word == "nullable":
            nullable = _versions(words.pop(0))
        elif word == "tag":
            tag = int(words.pop(0))
        elif word == "ignorable":
            ignorable = True
        elif word == "rigid":
            rigid = True
        else:
            versions = _versions(word)
    null_by_default = default_text == "null" or base == "records"
    default = None if null_by_default else _default(base, array, default_text)
    return Field(name, base, array, versions, nullable, default, null_by_default, tag, ignorable, rigid, struct)


def _default(base: str, array: bool, text: str) -> bool | int | float | str | bytes | tuple[()] | None:
    if array:
        return ()
    match base:
        case "string":
            return text
        case "bytes":
            return b""
        case "uuid":
            return bytes(16)
        case "bool":
            return text == "true"
        case "float64":
            return float(text or 0)
    return int(text or 0) if base in FIXED_FORMATS else None


def _versions(text: str) -> Versions:
    first, dash, last = text.removesuffix("+").partition("-")
    if text.endswith("+"):
        return Versions(int(first), LATEST)
    return Versions(int(first), int(last if dash else first))
