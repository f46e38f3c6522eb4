"""Judges the history of a group: what its members wrote down, and what the coordinator put on record.

What must hold, whatever happens to members:
- every record is processed, by some member, at least once;
- in one generation (or member epoch) a partition has one owner;
- at one moment a partition has one owner, leaving aside who was killed, stalled, or told that it lost its partitions;
- committed offsets never go back;
- generations on record count upwards, and give a partition to one member each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.wire.codec import decoder
from penstock.wire.frame import decode_coordinator_key, decode_versioned
from penstock.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from penstock.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.wire.records import Record

JAVA_GENERATION = re.compile(r"Successfully synced group in generation Generation\{generationId=(\d+)")
JAVA_EPOCH = re.compile(r"with epoch (\d+) transitioned from \w+ to STABLE")
JAVA_EVENTS = {"partitions_assigned": "assigned", "partitions_revoked": "revoked", "shutdown_complete": "closed"}
# Members and the test read the same clock, but note the time a little before or after the thing itself.
CLOCK_SLACK_S = 0.005
ASSIGNMENT_START = 2


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a member's log; see group_members/member.py."""

    time: float
    event: str
    partitions: tuple[int, ...] = ()
    generation: int | None = None
    first: int = 0
    last: int = -1
    offsets: Mapping[int, int] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True)
class History:
    """What one member wrote, when it was stopped for a while, and when it was killed.

    The processes of a static member share a name: to the group they are one.
    """

    name: str
    events: list[Event]
    stalls: list[float] = field(default_factory=list)
    killed_at: float | None = None

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.event == kind]


@dataclass(frozen=True, slots=True)
class Ownership:
    """A member owns a partition from one moment to another."""

    name: str
    partition: int
    start: float
    end: float


def read_log(path: Path) -> list[Event]:
    """The events of a member program; a last line that was cut off by a kill is left out."""
    events = []
    for line in _lines(path):
        row = json.loads(line)
        partitions = row.get("partitions", [row["partition"]] if "partition" in row else [])
        events.append(
            Event(
                row["time"],
                row["event"],
                tuple(partitions),
                row.get("generation"),
                row.get("first", 0),
                row.get("last", -1),
                {int(partition): offset for partition, offset in row.get("offsets", {}).items()},
                row.get("error", ""),
            )
        )
    return events


def read_java_log(path: Path) -> list[Event]:
    """The events of Apache Kafka's verifiable consumer, whose log lines are among them."""
    events: list[Event] = []
    now = 0.0
    generation: int | None = None
    for line in _lines(path):
        if line.startswith("{"):
            row = json.loads(line)
            now = row["timestamp"] / 1000
            events += _java_events(row, now, generation)
        elif (found := JAVA_GENERATION.search(line)) is not None:
            generation = int(found[1])
            events.append(Event(now, "generation", generation=generation))
        elif (found := JAVA_EPOCH.search(line)) is not None:
            # Partitions come before the epoch in which they are owned is known.
            events.append(Event(now, "generation", generation=int(found[1])))
    return events


def _java_events(row: dict[str, Any], now: float, generation: int | None) -> Iterable[Event]:
    name, rows = row["name"], row.get("partitions", [])
    if name in JAVA_EVENTS:
        yield Event(now, JAVA_EVENTS[name], tuple(each["partition"] for each in rows), generation)
    elif name == "records_consumed":
        for each in rows:
            yield Event(now, "processed", (each["partition"],), first=each["minOffset"], last=each["maxOffset"])
    elif name == "offsets_committed":
        if row["success"]:
            yield Event(now, "committed", offsets={each["partition"]: each["offset"] for each in row["offsets"]})
        else:
            yield Event(now, "refused", error=row.get("error", ""))


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def unprocessed(histories: Iterable[History], ends: Mapping[int, int]) -> list[str]:
    """Records that no member has processed."""
    runs: dict[int, list[tuple[int, int]]] = {partition: [] for partition in ends}
    for history in histories:
        for event in history.of("processed"):
            runs[event.partitions[0]].append((event.first, event.last))
    missing = []
    for partition, end in ends.items():
        reached = 0
        for first, last in sorted(runs[partition]):
            if first > reached:
                missing.append(f"partition {partition}: not processed: {reached}..{first - 1}")
            reached = max(reached, last + 1)
        if reached < end:
            missing.append(f"partition {partition}: not processed: {reached}..{end - 1}")
    return missing


def shared_in_a_generation(histories: Iterable[History]) -> list[str]:
    """Partitions that two members owned in the same generation."""
    owners: dict[tuple[int, int], set[str]] = {}
    for history in histories:
        owned: set[int] = set()
        for event in history.events:
            if event.event in ("revoked", "lost"):
                owned -= set(event.partitions)
                continue
            if event.event not in ("assigned", "generation"):
                continue
            owned |= set(event.partitions)
            if event.generation is not None:
                for partition in owned:
                    owners.setdefault((event.generation, partition), set()).add(history.name)
    return [
        f"generation {generation}: partition {partition} is owned by {' and '.join(sorted(names))}"
        for (generation, partition), names in sorted(owners.items())
        if len(names) > 1
    ]


def ownerships(history: History) -> list[Ownership]:
    """When the member rightly believed to own what. What it was told to have lost was not its own any more."""
    found: list[Ownership] = []
    since: dict[int, float] = {}
    breaks = sorted([*history.stalls, *([history.killed_at] if history.killed_at is not None else [])])

    def end(partition: int, now: float) -> None:
        start = since.pop(partition, None)
        if start is not None:
            cut = next((each for each in breaks if each >= start), now)
            found.append(Ownership(history.name, partition, start, min(cut, now)))

    for event in history.events:
        if event.event == "assigned":
            for partition in event.partitions:
                end(partition, event.time)
                since[partition] = event.time
        elif event.event == "revoked":
            for partition in event.partitions:
                end(partition, event.time)
        elif event.event == "lost":
            for partition in event.partitions:
                since.pop(partition, None)
    last = history.events[-1].time if history.events else 0.0
    for partition in list(since):
        end(partition, last)
    return found


def shared_at_a_moment(histories: Iterable[History]) -> list[str]:
    """Partitions that two healthy members owned at the same time."""
    by_partition: dict[int, list[Ownership]] = {}
    for history in histories:
        for ownership in ownerships(history):
            by_partition.setdefault(ownership.partition, []).append(ownership)
    found = []
    for partition, spans in sorted(by_partition.items()):
        spans.sort(key=lambda span: span.start)
        for index, former in enumerate(spans):
            for later in spans[index + 1 :]:
                if later.name != former.name and later.start < former.end - CLOCK_SLACK_S:
                    overlap_ms = (min(former.end, later.end) - later.start) * 1000
                    found.append(f"partition {partition}: {former.name} and {later.name} for {overlap_ms:.0f} ms")
    return found


def commits_that_go_back(records: Sequence[Record], group: str) -> list[str]:
    """Commits on record that are lower than the one before, given the records of the offsets topic in order."""
    newest: dict[tuple[str, int], int] = {}
    found = []
    for record in records:
        key, value = _decoded(record)
        if not isinstance(key, OffsetCommitKey) or key.group != group or not isinstance(value, OffsetCommitValue):
            continue
        before = newest.get((key.topic, key.partition), -1)
        if value.offset < before:
            found.append(f"{key.topic}-{key.partition}: {before} was committed, then {value.offset}")
        newest[key.topic, key.partition] = value.offset
    return found


def bad_generations(records: Sequence[Record], group: str) -> list[str]:
    """Generations on record that go back, or that give a partition to two members."""
    found = []
    newest = 0
    for record in records:
        key, value = _decoded(record)
        if not isinstance(key, GroupMetadataKey) or key.group != group or not isinstance(value, GroupMetadataValue):
            continue
        if value.generation < newest:
            found.append(f"generation {newest} was on record, then {value.generation}")
        newest = value.generation
        owners: dict[tuple[str, int], str] = {}
        for member in value.members:
            for partition in assigned_partitions(member.assignment):
                other = owners.setdefault(partition, member.member_id)
                if other != member.member_id:
                    found.append(f"generation {newest} gives {partition} to {other} and {member.member_id}")
    return found


def assigned_partitions(assignment: bytes) -> list[tuple[str, int]]:
    """The topic partitions of a consumer's assignment, as classic groups carry it."""
    if len(assignment) < ASSIGNMENT_START:
        return []
    read, _ = decoder(ConsumerProtocolAssignment, 0)(assignment, ASSIGNMENT_START)
    return [(topic.topic, partition) for topic in read.assigned_partitions for partition in topic.partitions]


def _decoded(record: Record) -> tuple[Any, Any]:
    assert record.key is not None
    key, classes = decode_coordinator_key("group", record.key)
    return key, None if record.value is None else decode_versioned(classes.value, record.value)


def violations(
    histories: Sequence[History], ends: Mapping[int, int], records: Sequence[Record], group: str
) -> list[str]:
    """Everything that is wrong with a group's history."""
    return [
        *unprocessed(histories, ends),
        *shared_in_a_generation(histories),
        *shared_at_a_moment(histories),
        *commits_that_go_back(records, group),
        *bad_generations(records, group),
    ]
