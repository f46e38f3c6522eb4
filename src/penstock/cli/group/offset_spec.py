"""Offsets on the command line: `start`, `end`, `120`, `+10`, `-10`, `@2026-01-31T10:00`, `@-1h`, `a:b`.

Pure: the current time and the partitions' offsets are arguments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

import click

UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdw]))+")
_DURATION_PART = re.compile(r"(\d+)(ms|[smhdw])")

# Epoch numbers below this are taken as seconds: as milliseconds they would be in 1973 or before.
SECONDS_BELOW = 100_000_000_000


class Anchor(Enum):
    """What an offset is counted from."""

    START = "start"
    END = "end"
    ABSOLUTE = "absolute"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Point:
    """A position in a partition: an anchor and a number (an offset, a distance, or milliseconds)."""

    anchor: Anchor
    number: int = 0


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Where to begin (inclusive) and where to stop (exclusive); without a stop the log is followed."""

    begin: Point
    stop: Point | None = None


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """A partition's first offset, its end offset, and the offsets of the requested timestamps."""

    start: int
    end: int
    at: dict[int, int]


def parse_timestamp(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 from an epoch number, an ISO date or time, `now`, or a distance back such as `-1h30m`.

    Numbers too small to be milliseconds of this century are seconds. A time without a zone is UTC.
    """
    if text == "now":
        return now_ms
    if text.startswith("-") and _DURATION.fullmatch(text[1:]):
        return now_ms - sum(int(number) * UNIT_MS[unit] for number, unit in _DURATION_PART.findall(text))
    if text.isdecimal():
        number = int(text)
        return number * 1000 if number < SECONDS_BELOW else number
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{text!r} is not a time. Write 2026-01-31, 2026-01-31T10:00, milliseconds since 1970, now, or -1h30m."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def parse_offset_range(text: str, now_ms: int) -> OffsetRange:
    """Parse a range from the command line. Raises click.UsageError if it is invalid."""
    whole = _parse_point(text, now_ms)
    if whole is not None:
        return OffsetRange(whole)
    for index, character in enumerate(text):
        if character != ":":
            continue
        before, after = text[:index], text[index + 1 :]
        begin = _parse_point(before, now_ms) if before else Point(Anchor.START)
        stop = _parse_point(after, now_ms) if after else Point(Anchor.END)
        if begin is not None and stop is not None:
            return OffsetRange(begin, stop)
    raise click.UsageError(
        f"{text!r} is not an offset. Write start, end, 120, +10 (from the start), -10 (from the end), @TIME, @-1h, "
        "or two of them with a colon between: 100:200, :end, @2026-01-31:@2026-02-01."
    )


def _parse_point(text: str, now_ms: int) -> Point | None:
    if text in ("start", "end"):
        return Point(Anchor(text))
    if text.isdecimal():
        return Point(Anchor.ABSOLUTE, int(text))
    if text[:1] in ("+", "-") and text[1:].isdecimal():
        return Point(Anchor.START if text[0] == "+" else Anchor.END, int(text))
    if text.startswith("@"):
        try:
            return Point(Anchor.TIMESTAMP, parse_timestamp(text[1:], now_ms))
        except click.UsageError:
            return None
    return None


def timestamps_of(offset_range: OffsetRange) -> set[int]:
    """The timestamps that must be looked up before the range can be resolved."""
    points = (offset_range.begin, offset_range.stop)
    return {point.number for point in points if point is not None and point.anchor is Anchor.TIMESTAMP}


def resolve(offset_range: OffsetRange, offsets: PartitionOffsets) -> tuple[int, int | None]:
    """(begin, stop) as offsets of one partition, clamped to its offsets; stop None means to follow.

    `+N` as the stop counts from the beginning of the range, so `@-1h:+10` is ten offsets.
    """
    begin = min(max(_locate(offset_range.begin, offsets), offsets.start), offsets.end)
    if offset_range.stop is None:
        return begin, None
    stop = offset_range.stop
    if stop.anchor is Anchor.START and stop.number > 0:
        return begin, min(begin + stop.number, offsets.end)
    return begin, min(_locate(stop, offsets), offsets.end)


def _locate(point: Point, offsets: PartitionOffsets) -> int:
    if point.anchor is Anchor.START:
        return offsets.start + point.number
    if point.anchor is Anchor.END:
        return offsets.end + point.number
    if point.anchor is Anchor.ABSOLUTE:
        return point.number
    return offsets.at[point.number]
