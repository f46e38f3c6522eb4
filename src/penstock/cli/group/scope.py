"""Partition scopes, `seek` targets, and offsets in files. Pure: times and offsets are arguments."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.group.offset_spec import OffsetRange, PartitionOffsets, parse_offset_range, resolve

if TYPE_CHECKING:
    from penstock.client.operations.groups import Committed

OFFSET_MAX = (1 << 63) - 1
PARTITION_MAX = (1 << 31) - 1
# So that a typo such as 0-99999999 is rejected before it becomes a list.
PARTITIONS_NAMED_MAX = 100_000
ALIASES = {"earliest": "start", "latest": "end"}
CSV_COLUMNS = ["topic", "partition", "offset"]
_SHIFT = re.compile(r"[+-]\d+")
_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")

# A topic and a partition's number.
PartitionName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Shift:
    """A distance from the committed offset."""

    distance: int


Target = OffsetRange | Shift


def parse_target(text: str, now_ms: int) -> Target:
    """Parse the target of `seek --to`. Raises click.UsageError if it is invalid."""
    word = ALIASES.get(text, text)
    if _SHIFT.fullmatch(word):
        return Shift(int(word))
    try:
        target = parse_offset_range(word, now_ms)
    except click.UsageError:
        target = None
    if target is None or target.stop is not None:
        raise click.UsageError(
            f"{text!r} is not a position. Write earliest, latest, an offset (120), a time (@2026-01-31T10:00, "
            "@1700000000000, @-1h), or a distance from the committed offset (+10, -10)."
        )
    return target


def new_offset(target: Target, committed: int | None, offsets: PartitionOffsets) -> int | None:
    """The offset of `target` in one partition, clamped to its offsets; None if there is no offset to shift from."""
    if isinstance(target, OffsetRange):
        return resolve(target, offsets)[0]
    if committed is None:
        return None
    return min(max(committed + target.distance, offsets.start), offsets.end)


def parse_scopes(words: Sequence[str]) -> dict[str, set[int] | None]:
    """Parse `TOPIC` and `TOPIC:0,2-4`: partition numbers by topic, None for all of them."""
    scopes: dict[str, set[int] | None] = {}
    for word in words:
        topic, colon, text = word.partition(":")
        numbers = _parse_numbers(text, word) if colon else None
        present = scopes.get(topic, set())
        scopes[topic] = None if numbers is None or present is None else present | numbers
    return scopes


def _parse_numbers(text: str, word: str) -> set[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        matched = _NUMBERS.fullmatch(part)
        first, last = (int(matched[1]), int(matched[2] or matched[1])) if matched else (1, 0)
        if not first <= last < first + PARTITIONS_NAMED_MAX:
            raise click.UsageError(f"{word!r} names no partitions. Write TOPIC, TOPIC:0 or TOPIC:0,2-4.")
        numbers.update(range(first, last + 1))
    return numbers


def choose(scopes: Mapping[str, set[int] | None], present: Mapping[str, Iterable[int]]) -> set[PartitionName]:
    """The partitions in the scopes; raises CommandFailure for one that is not in `present`."""
    chosen = set()
    for topic, numbers in scopes.items():
        there = set(present[topic])
        unknown = sorted((numbers or set()) - there)
        if unknown:
            known = ", ".join(map(str, sorted(there))) or "none"
            raise CommandFailure(f"there is no partition {unknown[0]} of {topic} here", f"there are: {known}")
        chosen |= {(topic, number) for number in (there if numbers is None else numbers)}
    return chosen


def summarize(partitions: Iterable[PartitionName]) -> str:
    """Partitions in the notation of `parse_scopes`: `orders:0-2,5 payments:1`."""
    runs: dict[str, list[list[int]]] = {}
    for topic, number in sorted(partitions):
        spans = runs.setdefault(topic, [])
        if spans and spans[-1][1] + 1 == number:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return " ".join(
        f"{topic}:" + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans) for topic, spans in runs.items()
    )


def offset_rows(committed: Committed) -> list[dict[str, object]]:
    """Committed offsets in the form of the JSON export."""
    return [
        {"topic": topic, "partition": partition, **asdict(place)} for (topic, partition), place in committed.items()
    ]


def offsets_as_csv(committed: Committed) -> str:
    """`topic,partition,offset` lines, which kafka-consumer-groups.sh reads with --from-file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows((topic, partition, place.offset) for (topic, partition), place in committed.items())
    return text.getvalue()


def parse_offsets(text: str, source: str) -> dict[PartitionName, dict[str, Any]]:
    """Offsets from a file in either format: `offset`, `leader_epoch` and `metadata` by partition. All or nothing."""
    rows = _json_rows(text, source) if text.lstrip()[:1] in ("[", "{") else _csv_rows(text)
    found: dict[PartitionName, dict[str, Any]] = {}
    for place, row in rows:
        problem = _problem(row)
        if not problem and (row["topic"], row["partition"]) in found:
            problem = f"{row['topic']}-{row['partition']} is listed twice"
        if problem:
            raise CommandFailure(
                f"{source}, {place}: {problem}",
                "nothing was changed",
                "`penstock group offsets GROUP -o json` (or csv) writes what can be imported",
            )
        name = (row["topic"], row["partition"])
        found[name] = {key: row[key] for key in ("offset", "leader_epoch", "metadata") if row.get(key) is not None}
    if not found:
        raise CommandFailure(f"{source} contains no offsets", "nothing was changed")
    return found


def _json_rows(text: str, source: str) -> list[tuple[str, Any]]:
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise CommandFailure(f"{source} is not valid JSON", str(error)) from None
    if not isinstance(document, list):
        raise CommandFailure(f"{source} is not a list of offsets", "an import is [{topic, partition, offset}, …]")
    return [(f"entry {number}", row) for number, row in enumerate(document, 1)]


def _csv_rows(text: str) -> list[tuple[str, Any]]:
    reader = csv.reader(io.StringIO(text))
    rows: list[tuple[str, Any]] = []
    for words in reader:
        if not words or (reader.line_num == 1 and words == CSV_COLUMNS):
            continue
        numbers = [int(word) if word.strip().isdecimal() else word for word in words[1:]]
        row = dict(zip(CSV_COLUMNS, [words[0], *numbers], strict=False)) if len(words) == len(CSV_COLUMNS) else None
        rows.append((f"line {reader.line_num}", row))
    return rows


def _problem(row: Any) -> str:
    if not isinstance(row, dict) or not all(key in row for key in CSV_COLUMNS):
        return "topic, partition and offset are required"
    if not isinstance(row["topic"], str) or not row["topic"]:
        return f"{row['topic']!r} is not a topic"
    limits = (("partition", PARTITION_MAX), ("offset", OFFSET_MAX), ("leader_epoch", PARTITION_MAX))
    for key, most in limits:
        value = row.get(key)
        if value is None and key == "leader_epoch":
            continue
        if type(value) is not int or not 0 <= value <= most:
            return f"{value!r} is not {'an offset' if key == 'offset' else 'a ' + key.replace('_', ' ')}"
    if not isinstance(row.get("metadata", ""), str | None):
        return "metadata must be a string"
    return ""
