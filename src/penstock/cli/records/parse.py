r"""Reading records from text, the other way round: `-f '%k\t%v\n'` is how `penstock produce` splits its input.

Verbs stand between literals; each reads up to the literal that follows it. `%k`, `%v`, `%t` and `%p` are known, and
`{hex}`, `{base64}` and `{json}` decode what was read.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.records.format import Piece, Verb, parse_format

READ_BYTES = 64 * 1024
RECORD_BYTES_MAX = 256 * 1024 * 1024
PARSE_VERBS = "kvtp"


@dataclass(frozen=True, slots=True)
class ParsedRecord:
    """What the input contains of a record; None for what it lacks or for null."""

    key: bytes | None = None
    value: bytes | None = None
    topic: str | None = None
    partition: int | None = None


def check_parse_format(text: str) -> list[Piece]:
    """The pieces of a format that can parse input. Raises click.UsageError if it cannot."""
    pieces = parse_format(text)
    for index, piece in enumerate(pieces):
        if isinstance(piece, bytes):
            continue
        if piece.letter not in PARSE_VERBS:
            raise click.UsageError(f"%{piece.letter} cannot be read from input; known: %k %v %t %p.")
        if piece.modifier not in ("", "hex", "base64", "json"):
            raise click.UsageError(f"{{{piece.modifier}}} cannot be read from input; known: hex, base64, json.")
        if not isinstance(pieces[index + 1] if index + 1 < len(pieces) else b"", bytes):
            raise click.UsageError(f"Put a separator between %{piece.letter} and the verb after it.")
    if not any(isinstance(piece, Verb) for piece in pieces):
        raise click.UsageError("The format reads nothing: it has no verb.")
    return pieces


class _Input:
    """A stream that can be read up to a delimiter, holding at most one record's bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._ended = False

    def at_end(self) -> bool:
        return not self._buffer and not self._fill()

    def until(self, delimiter: bytes) -> bytes | None:
        """What comes before the delimiter, which is consumed too; None when the input ends first."""
        searched = 0
        while (found := self._buffer.find(delimiter, searched)) < 0:
            searched = max(0, len(self._buffer) - len(delimiter) + 1)
            if not self._fill():
                return None
        data = bytes(self._buffer[:found])
        del self._buffer[: found + len(delimiter)]
        return data

    def rest(self) -> bytes:
        while self._fill():
            pass
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def _fill(self) -> bool:
        if self._ended:
            return False
        if len(self._buffer) > RECORD_BYTES_MAX:
            raise CommandFailure(
                "a record in the input is too large", f"more than {RECORD_BYTES_MAX} bytes without an end"
            )
        chunk = self._stream.read1(READ_BYTES) if hasattr(self._stream, "read1") else self._stream.read(READ_BYTES)
        self._ended = not chunk
        self._buffer += chunk
        return bool(chunk)


def read_records(stream: BinaryIO, pieces: list[Piece]) -> Iterator[ParsedRecord]:
    """The records of a stream; the last one may lack the closing literal. Raises CommandFailure for invalid input."""
    source = _Input(stream)
    number = 0
    while not source.at_end():
        number += 1
        yield _read_one(source, pieces, number)


def _read_one(source: _Input, pieces: list[Piece], number: int) -> ParsedRecord:
    fields: dict[str, bytes] = {}
    index = 0
    while index < len(pieces):
        piece = pieces[index]
        last = index + 2 >= len(pieces)
        if isinstance(piece, bytes):
            if source.until(piece) != b"":
                raise CommandFailure(f"record {number} does not begin with {piece.decode(errors='replace')!r}")
            index += 1
            continue
        delimiter = pieces[index + 1] if index + 1 < len(pieces) else None
        assert not isinstance(delimiter, Verb)
        data = source.until(delimiter) if delimiter is not None else None
        if data is None:
            data = source.rest()
            if not last:
                what = (delimiter or b"").decode(errors="replace")
                raise CommandFailure(
                    f"record {number} has no {what!r} after its %{piece.letter}",
                    f"the input ends with {data[:60].decode(errors='replace')!r}",
                )
        fields[piece.letter] = _decode(data, piece, number)
        index += 2
    return _as_record(fields, number)


def _decode(data: bytes, verb: Verb, number: int) -> bytes:
    try:
        if verb.modifier == "hex":
            return bytes.fromhex(data.decode())
        if verb.modifier == "base64":
            return base64.b64decode(data, validate=True)
        if verb.modifier == "json":
            value = json.loads(data)
            return value.encode() if isinstance(value, str) else data
    except (ValueError, binascii.Error) as error:
        shown = data[:60].decode(errors="replace")
        raise CommandFailure(f"record {number}: {shown!r} is not {verb.modifier}", str(error)) from None
    return data


def _as_record(fields: dict[str, bytes], number: int) -> ParsedRecord:
    partition = fields.get("p")
    if partition is not None and not partition.isdigit():
        raise CommandFailure(f"record {number}: {partition.decode(errors='replace')!r} is not a partition number")
    topic = fields.get("t")
    return ParsedRecord(
        fields.get("k"),
        fields.get("v"),
        topic.decode(errors="replace") if topic is not None else None,
        int(partition) if partition is not None else None,
    )
