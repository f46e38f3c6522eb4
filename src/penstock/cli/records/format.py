r"""Format strings for records, with the verbs that rpk's users know: `-f '%t %p %o %k=%v\n'`.

| verb | means | verb | means |
|------|-------|------|-------|
| `%t` | topic | `%T` | its length in bytes |
| `%k` | key | `%K` | its length in bytes |
| `%v` | value | `%V` | its length in bytes |
| `%h{…}` | the format in braces for each header, where `%k` and `%v` are the header's | `%H` | the number of headers |
| `%p` | partition | `%o` | offset |
| `%e` | leader epoch | `%d` | timestamp in milliseconds |
| `%i` | the record's number in this run, from 1 | `%%` | a percent sign |

A modifier in braces follows a verb. Text: `{hex}`, `{base64}`, `{json}`. Numbers: `{hex}`, `{big8}` to `{big64}`,
`{little8}` to `{little64}` (bytes). Timestamps also: `{iso}`, `{strftime[%F %T]}`. `\n \t \r \\ \0 \xHH` are escapes.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import click

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\x00"}
INTEGERS = {
    **{f"big{bits}": f">{code}" for bits, code in (("8", "B"), ("16", "H"), ("32", "I"), ("64", "Q"))},
    **{f"little{bits}": f"<{code}" for bits, code in (("8", "B"), ("16", "H"), ("32", "I"), ("64", "Q"))},
}
_STRFTIME = re.compile(r"strftime\[(.*)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PrintableRecord:
    """What a format can show of a record; None is Kafka's null. `unreadable` is what is missing, and why."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    leader_epoch: int = -1
    number: int = 0
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb of a format with its modifier, empty when there is none."""

    letter: str
    modifier: str = ""


TEXTS: dict[str, Callable[[PrintableRecord], bytes | None]] = {
    "t": lambda record: record.topic.encode(),
    "k": lambda record: record.key,
    "v": lambda record: record.value,
}
NUMBERS: dict[str, Callable[[PrintableRecord], int]] = {
    "T": lambda record: len(record.topic.encode()),
    "K": lambda record: len(record.key or b""),
    "V": lambda record: len(record.value or b""),
    "H": lambda record: len(record.headers),
    "p": lambda record: record.partition,
    "o": lambda record: record.offset,
    "e": lambda record: record.leader_epoch,
    "d": lambda record: record.timestamp_ms,
    "i": lambda record: record.number,
}
VERBS = (*TEXTS, *NUMBERS, "h")
Piece = bytes | Verb
Printer = Callable[[PrintableRecord], bytes]


def parse_format(text: str) -> list[Piece]:
    """The literals and verbs of a format. Raises click.UsageError that names what is wrong."""
    pieces: list[Piece] = []
    literal = b""
    index = 0
    while index < len(text):
        character = text[index]
        if character == "\\":
            escaped, index = _escape(text, index)
            literal += escaped
        elif character != "%":
            literal += character.encode()
            index += 1
        elif text[index + 1 : index + 2] == "%":
            literal += b"%"
            index += 2
        else:
            verb, index = _verb(text, index)
            if literal:
                pieces.append(literal)
                literal = b""
            pieces.append(verb)
    return [*pieces, literal] if literal else pieces


def _escape(text: str, index: int) -> tuple[bytes, int]:
    letter = text[index + 1 : index + 2]
    if letter == "x":
        digits = text[index + 2 : index + 4]
        if re.fullmatch(r"[0-9a-fA-F]{2}", digits):
            return bytes([int(digits, 16)]), index + 4
    elif letter in ESCAPES:
        return ESCAPES[letter], index + 2
    raise click.UsageError(
        f"The format has an unknown escape at {text[index : index + 4]!r}; known: \\n \\t \\r \\\\ \\0 \\xHH."
    )


def _verb(text: str, index: int) -> tuple[Verb, int]:
    letter = text[index + 1 : index + 2]
    if letter not in VERBS:
        known = " ".join(f"%{known}" for known in VERBS)
        raise click.UsageError(f"The format has an unknown verb %{letter}; known: {known} %%.")
    index += 2
    if text[index : index + 1] != "{":
        if letter == "h":
            raise click.UsageError("%h needs a format for one header in braces, such as %h{%k=%v }.")
        return Verb(letter), index
    depth = 0
    for end in range(index, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return Verb(letter, text[index + 1 : end]), end + 1
    raise click.UsageError(f"The format has an open brace after %{letter}.")


def compile_printer(text: str) -> Printer:
    """A function that formats a record as bytes."""
    parts = [_literal(piece) if isinstance(piece, bytes) else _printer_of(piece) for piece in parse_format(text)]

    def render(record: PrintableRecord) -> bytes:
        return b"".join([part(record) for part in parts])

    return render


def shows_headers(text: str) -> bool:
    """Whether a format shows headers."""
    return any(isinstance(piece, Verb) and piece.letter in "hH" for piece in parse_format(text))


def _literal(text: bytes) -> Printer:
    return lambda _: text


def _printer_of(verb: Verb) -> Printer:
    letter = verb.letter
    if letter == "h":
        return _header_printer(verb.modifier)
    if letter in TEXTS:
        encode, get = _text_encoder(verb), TEXTS[letter]
        return lambda record: encode(get(record))
    number = NUMBERS[letter]
    write = _number_encoder(verb)
    return lambda record: write(number(record))


def _header_printer(inner: str) -> Printer:
    # A header is printed as a record of its own, with the header's key and value.
    render = compile_printer(inner)

    def render_headers(record: PrintableRecord) -> bytes:
        return b"".join(
            render(PrintableRecord(record.topic, record.partition, record.offset, 0, name.encode(), value, ()))
            for name, value in record.headers
        )

    return render_headers


def _text_encoder(verb: Verb) -> Callable[[bytes | None], bytes]:
    if not verb.modifier:
        return lambda data: data or b""
    if verb.modifier == "hex":
        return lambda data: (data or b"").hex().encode()
    if verb.modifier == "base64":
        return lambda data: base64.b64encode(data or b"")
    if verb.modifier == "json":
        return lambda data: json.dumps(None if data is None else _text(data), ensure_ascii=False).encode()
    raise click.UsageError(f"%{verb.letter} takes {{hex}}, {{base64}} or {{json}}, not {{{verb.modifier}}}.")


def _number_encoder(verb: Verb) -> Callable[[int], bytes]:
    modifier = verb.modifier
    if not modifier or modifier == "ascii":
        return lambda number: str(number).encode()
    if modifier == "hex":
        return lambda number: f"{number & 0xFFFF_FFFF_FFFF_FFFF if number < 0 else number:x}".encode()
    if modifier in INTEGERS:
        layout = INTEGERS[modifier]
        mask = (1 << 8 * struct.calcsize(layout)) - 1
        return lambda number: struct.pack(layout, number & mask)
    if verb.letter == "d" and modifier == "iso":
        return lambda number: _moment(number).isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
    pattern = _STRFTIME.fullmatch(modifier)
    if verb.letter == "d" and pattern is not None:
        return lambda number: _moment(number).strftime(pattern[1]).encode()
    raise click.UsageError(f"%{verb.letter} does not support the modifier {{{modifier}}}.")


def _moment(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def record_as_json(record: PrintableRecord) -> str:
    """One line of JSON."""
    document: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    document |= json_bytes("key", record.key)
    document |= json_bytes("value", record.value)
    document["headers"] = [{"name": name, **json_bytes("value", value)} for name, value in record.headers]
    if record.unreadable:
        document["unreadable"] = record.unreadable
    return json.dumps(document, ensure_ascii=False)


def json_bytes(name: str, data: bytes | None) -> dict[str, object]:
    """The field of a JSON document with these bytes, and `…_encoding` where they are not valid UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), f"{name}_encoding": "base64"}
