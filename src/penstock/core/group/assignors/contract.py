"""Server-side assignors: which member of a group should own which partition.

An assignor is a pure function of the members and the topics. It assigns every partition of every subscribed topic to
exactly one subscriber, and the same input always gives the same result. `uniform` is in `uniform.py`; `range` is here.

`range` gives each topic's partitions to its subscribers as consecutive runs. Members are sorted, static ones by
instance id before the others by member id, so that members with equal subscriptions get the same partition numbers of
every topic with the same number of partitions (co-partitioning), and a static member that restarts gets its run back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from penstock.model.ids import Uuid

# What partition numbers belong to: a topic id, or a subtopology of a streams group.
Owner = TypeVar("Owner", bytes, str)

Partition = tuple[Uuid, int]
Partitions = Mapping[Uuid, frozenset[int]]
Racks = Callable[[Uuid, int], frozenset[str]]

NO_PARTITIONS: Partitions = {}


def pairs_of(partitions: Partitions) -> set[Partition]:
    """Topic id and number of each partition."""
    return {(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers}


def group_by_topic(pairs: Iterable[Partition]) -> Partitions:
    """The inverse of `pairs_of`."""
    topics: dict[Uuid, list[int]] = {}
    for topic_id, number in pairs:
        topics.setdefault(topic_id, []).append(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in topics.items()}


class PartitionsOfTopic(Protocol):
    """A topic id with partitions; several messages have one, each with its own class."""

    @property
    def topic_id(self) -> bytes:
        """Which topic."""

    @property
    def partitions(self) -> Sequence[int]:
        """Which of its partitions."""


def partitions_of(rows: Sequence[PartitionsOfTopic]) -> Partitions:
    """Partitions by topic, from a message's list."""
    found: dict[Uuid, frozenset[int]] = {}
    for row in rows:
        if row.partitions:
            topic_id = bytes(row.topic_id)
            found[topic_id] = found.get(topic_id, frozenset()) | frozenset(row.partitions)
    return found


def rows_of(partitions: Mapping[Owner, frozenset[int]]) -> list[tuple[Owner, list[int]]]:
    """Partitions by topic, or by subtopology, in sorted order, for a message's list."""
    return [(owner, sorted(partitions[owner])) for owner in sorted(partitions)]


def no_racks(_topic_id: Uuid, _partition: int) -> frozenset[str]:
    """The racks of a partition in a cluster without racks."""
    return frozenset()


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member as an assignor sees it: what it subscribes to, and its current target assignment."""

    topics: frozenset[Uuid]
    assigned: Partitions = field(default_factory=dict)
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Everything an assignor may look at. Subscribed topics that don't exist are left out."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[Uuid, int]
    racks: Racks = no_racks

    def homogeneous(self) -> bool:
        """Whether all members have the same subscription."""
        subscriptions = iter(self.members.values())
        first = next(subscriptions).topics
        return all(member.topics is first or member.topics == first for member in subscriptions)


Assignor = Callable[[GroupSpec], dict[str, Partitions]]


def assign_range(group: GroupSpec) -> dict[str, Partitions]:
    """Consecutive runs of each topic's partitions; the first subscribers get one more if they don't divide evenly."""
    ordered = sorted(group.members, key=lambda member_id: _range_order(member_id, group.members[member_id]))
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in ordered:
        for topic_id in group.members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    assignment: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in group.members}
    for topic_id in sorted(subscribers):
        quota, extra = divmod(group.partition_counts[topic_id], len(subscribers[topic_id]))
        start = 0
        for position, member_id in enumerate(subscribers[topic_id]):
            end = start + quota + (position < extra)
            if end > start:
                assignment[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {**assignment}


def _range_order(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    return (member.instance_id is None, member_id if member.instance_id is None else member.instance_id)
