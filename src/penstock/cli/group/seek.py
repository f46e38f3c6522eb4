"""Plans for `group seek` and `group offsets --import`, and deletion of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.cli.failures import CommandFailure
from penstock.cli.group.admin import CommittedOffset, Group, GroupAdmin, PartitionName, advice_for, by_topic
from penstock.cli.group.offset_spec import Anchor, OffsetRange, PartitionOffsets, timestamps_of
from penstock.cli.group.scope import Shift, Target, choose, new_offset
from penstock.cli.options import Connection
from penstock.cli.wire_client import WireClient
from penstock.client.failures import NoAnswer
from penstock.model.errors import ErrorCode, error_name
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)


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


def plan_seek(admin: GroupAdmin, name: str, target: Target, scopes: Mapping[str, set[int] | None]) -> list[Move]:
    """The moves that take a group to `target`; raises CommandFailure if there is nothing to move or no way to."""
    committed = admin.committed([name])[name]
    if scopes:
        present = {topic: [each.partition for each in admin.describe_topic(topic).partitions] for topic in scopes}
        chosen = choose(scopes, present)
    else:
        there = {(topic.name, each.partition) for topic in admin.topics() for each in topic.partitions}
        chosen = set(committed) & there
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
    known = _partition_offsets(admin, chosen, timestamps_of(target) if isinstance(target, OffsetRange) else set())
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


def plan_import(admin: GroupAdmin, name: str, offsets: Mapping[PartitionName, Mapping[str, Any]]) -> list[Move]:
    """The moves that give a group the offsets of a file, unchanged: an export may be older than retained records."""
    committed = admin.committed([name])[name]
    present = {
        topic: [each.partition for each in admin.describe_topic(topic).partitions] for topic in by_topic(offsets)
    }
    choose({topic: set(numbers) for topic, numbers in by_topic(offsets).items()}, present)
    known = _partition_offsets(admin, offsets, set())
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
    admin: GroupAdmin, partitions: Iterable[PartitionName], moments: set[int]
) -> dict[PartitionName, PartitionOffsets]:
    found = {}
    for topic, numbers in by_topic(partitions).items():
        starts = admin.earliest_offsets(topic, numbers)
        ends = admin.latest_offsets(topic, numbers)
        at = {moment: admin.offsets_at(topic, numbers, moment) for moment in moments}
        for number in numbers:
            here = {moment: offsets[number] for moment, offsets in at.items()}
            found[topic, number] = PartitionOffsets(starts[number], ends[number], here)
    return found


def forget_offsets(connection: Connection, group: Group, partitions: Iterable[PartitionName]) -> None:
    """Delete committed offsets; raises CommandFailure when one could not be deleted."""
    what = f"cannot delete offsets of group {group.group_id}"
    if group.coordinator is None:
        raise CommandFailure(what, "its coordinator is not known", "`penstock cluster info` shows the brokers")
    wanted = [
        OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(number) for number in numbers])
        for topic, numbers in by_topic(partitions).items()
    ]
    try:
        with WireClient(connection) as client:
            response: OffsetDeleteResponse = client.ask_at(
                group.coordinator.address, OffsetDeleteRequest(group.group_id, wanted)
            )
    except NoAnswer as error:
        raise CommandFailure(what, str(error), "`penstock doctor` checks the connection") from error
    _refuse(response.error_code, what, "the broker refuses", group)
    for topic in response.topics:
        for partition in topic.partitions:
            subscribed = partition.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            why = f"its members read {topic.name}" if subscribed else "the broker refuses"
            _refuse(partition.error_code, f"{what} in {topic.name}-{partition.partition_index}", why, group)


def _refuse(code: int, what: str, why: str, group: Group) -> None:
    if code:
        raise CommandFailure(what, f"{why} ({error_name(code)})", advice_for(error_name(code), group.group_id))
