"""Plans for `group seek` and `group offsets --import`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cli.failures import CommandFailure
from penstock.cli.group.offset_spec import Anchor, OffsetRange, PartitionOffsets, timestamps_of
from penstock.cli.group.queries import committed_offsets
from penstock.cli.group.scope import PartitionName, Shift, Target, choose, new_offset
from penstock.cli.topic_queries import describe_topic, earliest_offsets, latest_offsets, list_topics, offsets_at
from penstock.cli.wire_client import WireClient
from penstock.client.operations.groups import CommittedOffset
from penstock.client.operations.routing import by_topic


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's old and new committed offset."""

    topic: str
    partition: int
    old_offset: int | None
    place: CommittedOffset
    start_offset: int
    end_offset: int
    clamped: bool = False

    def row(self) -> dict[str, object]:
        """The move as a JSON row."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "old_offset": self.old_offset,
            "new_offset": self.place.offset,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
        }


def plan_seek(client: WireClient, name: str, target: Target, scopes: Mapping[str, set[int] | None]) -> list[Move]:
    """The moves that take a group to `target`; raises CommandFailure if there is nothing to move or no way to."""
    committed = committed_offsets(client, [name])[name]
    if scopes:
        present = {topic: [each.partition for each in describe_topic(client, topic).partitions] for topic in scopes}
        chosen = choose(scopes, present)
    else:
        there: set[PartitionName] = {
            (topic.name, each.partition) for topic in list_topics(client) for each in topic.partitions
        }
        chosen = there.intersection(committed)
    if not chosen:
        raise CommandFailure(
            f"group {name} has no committed offsets to move",
            "it has committed nothing yet, or its topics are gone",
            "name a topic with -t TOPIC to give the group its first offsets",
        )
    stuck = sorted(chosen - set(committed)) if isinstance(target, Shift) else []
    if stuck:
        topic, partition = stuck[0]
        raise CommandFailure(
            f"cannot shift group {name} in {topic}-{partition}",
            "it has no committed offset there to count from",
            "give an offset, a time, earliest or latest, or leave the partition out with -t",
        )
    known = _partition_offsets(client, chosen, timestamps_of(target) if isinstance(target, OffsetRange) else set())
    moves = []
    for place in sorted(chosen):
        old = committed[place].offset if place in committed else None
        new = new_offset(target, old, known[place])
        assert new is not None
        clamped = new != _asked(target, old, new)
        moves.append(Move(*place, old, CommittedOffset(new), known[place].start, known[place].end, clamped))
    return moves


def _asked(target: Target, old: int | None, otherwise: int) -> int:
    """The requested offset; `otherwise` if none was requested."""
    if isinstance(target, Shift):
        return (old or 0) + target.distance
    return target.begin.number if target.begin.anchor is Anchor.ABSOLUTE else otherwise


def plan_import(client: WireClient, name: str, offsets: Mapping[PartitionName, Mapping[str, Any]]) -> list[Move]:
    """The moves that give a group the offsets of a file, unchanged: an export may be older than retained records."""
    committed = committed_offsets(client, [name])[name]
    present = {
        topic: [each.partition for each in describe_topic(client, topic).partitions] for topic in by_topic(offsets)
    }
    choose({topic: set(numbers) for topic, numbers in by_topic(offsets).items()}, present)
    known = _partition_offsets(client, offsets, set())
    return [
        Move(
            *place,
            committed[place].offset if place in committed else None,
            CommittedOffset(**values),
            known[place].start,
            known[place].end,
        )
        for place, values in sorted(offsets.items())
    ]


def _partition_offsets(
    client: WireClient, partitions: Iterable[PartitionName], moments: set[int]
) -> dict[PartitionName, PartitionOffsets]:
    found = {}
    for topic, numbers in by_topic(partitions).items():
        starts = earliest_offsets(client, topic, numbers)
        ends = latest_offsets(client, topic, numbers)
        at = {moment: offsets_at(client, topic, numbers, moment) for moment in moments}
        for number in numbers:
            here = {moment: offsets[number] for moment, offsets in at.items()}
            found[topic, number] = PartitionOffsets(starts[number], ends[number], here)
    return found
