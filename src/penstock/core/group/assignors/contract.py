"""Server-side assignors: who of a group should own which partition.

An assignor is a pure function of the members and the topics. It gives every partition of every subscribed topic to
exactly one subscriber, whatever it is given, and the same input always has the same result. `uniform` is in
`assignors_uniform.py`; `range` is here.

`range` gives each topic's partitions to its subscribers as consecutive runs. Members stand in one order, static ones by
instance id before the others by member id, so that members with equal subscriptions get the same partition numbers of
every topic with as many partitions (co-partitioning), and a static member that restarts gets its run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.model.ids import Uuid

Partitions = Mapping[Uuid, frozenset[int]]
Racks = Callable[[Uuid, int], frozenset[str]]

NO_PARTITIONS: Partitions = {}


def no_racks(_topic_id: Uuid, _partition: int) -> frozenset[str]:
    """The racks of a partition in a cluster that names none."""
    return frozenset()


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member as an assignor sees it: what it subscribes to and what it was to own so far."""

    topics: frozenset[Uuid]
    assigned: Partitions = field(default_factory=dict)
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Everything an assignor may look at. Topics that members name and that don't exist are not in here at all."""

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
    """Consecutive runs of each topic's partitions, the first subscribers getting one more where they don't divide."""
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
