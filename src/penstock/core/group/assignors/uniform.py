"""The `uniform` assignor: every member gets the same number of partitions, and keeps what it has.

Balance comes first: where all members have one subscription their counts differ by at most one. Stickiness comes next:
a member keeps as many of its partitions as balance allows. Then racks: a partition that moves goes, among the members
with room for it, to one in a rack that holds a replica.

With one subscription for all, the quotas are known beforehand and one pass is enough. Otherwise see
`uniform_mixed.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from penstock.core.group.assignors.contract import (
    Assignor,
    GroupSpec,
    Partition,
    Partitions,
    assign_range,
    group_by_topic,
    pairs_of,
)
from penstock.core.group.assignors.uniform_mixed import assign_mixed


def assign_uniform(group: GroupSpec) -> dict[str, Partitions]:
    """A balanced assignment that moves as few partitions as it can."""
    if not group.members:
        return {}
    if not group.homogeneous():
        return assign_mixed(group)
    ordered = sorted(group.members)
    kept, unassigned = _split(group, ordered)
    sizes = {member_id: sum(map(len, partitions.values())) for member_id, partitions in kept.items()}
    quotas = balanced_quotas(ordered, sizes, sum(sizes.values()) + len(unassigned))
    # Most members of a large group keep exactly what they have, so only the others are looked at one by one.
    changing = [member_id for member_id in ordered if sizes[member_id] != quotas[member_id]]
    owned = {member_id: sorted(pairs_of(kept[member_id])) for member_id in changing}
    for member_id in changing:
        unassigned += _give_up(group, member_id, owned[member_id], quotas[member_id])
    unassigned.sort()
    vacancies = {member_id: quotas[member_id] - len(owned[member_id]) for member_id in changing}
    if any(member.rack_id for member in group.members.values()):
        unassigned = _assign_by_rack(group, owned, vacancies, unassigned)
    rest = iter(unassigned)
    for member_id in changing:
        owned[member_id] += islice(rest, vacancies[member_id])
    assert next(rest, None) is None, "quotas add up to the number of partitions"
    return {**kept, **{member_id: group_by_topic(owned[member_id]) for member_id in changing}}


def _split(group: GroupSpec, ordered: list[str]) -> tuple[dict[str, Partitions], list[Partition]]:
    """What each member may keep at most, and the partitions without an owner."""
    topics = group.members[ordered[0]].topics
    free = {topic_id: set(range(group.partition_counts[topic_id])) for topic_id in topics}
    kept: dict[str, Partitions] = {}
    for member_id in ordered:
        assigned = kept[member_id] = group.members[member_id].assigned
        if any(topic_id not in free or not partitions <= free[topic_id] for topic_id, partitions in assigned.items()):
            valid = {topic_id: partitions & free.get(topic_id, set()) for topic_id, partitions in assigned.items()}
            kept[member_id] = {topic_id: partitions for topic_id, partitions in valid.items() if partitions}
        for topic_id, partitions in kept[member_id].items():
            free[topic_id] -= partitions
    return kept, [(topic_id, partition) for topic_id, partitions in free.items() for partition in partitions]


def balanced_quotas(ordered: list[str], sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """How many partitions each member gets. The members that own the most get the extra ones of an uneven division."""
    quota, extra = divmod(total, len(ordered))
    favoured = sorted(ordered, key=lambda member_id: sizes[member_id] <= quota)[:extra]
    quotas = dict.fromkeys(ordered, quota)
    for member_id in favoured:
        quotas[member_id] += 1
    assert sum(quotas.values()) == total, "quotas add up to the number of partitions"
    assert max(quotas.values()) - min(quotas.values()) <= 1, "quotas are as equal as they can be"
    return quotas


def _give_up(group: GroupSpec, member_id: str, owned: list[Partition], quota: int) -> list[Partition]:
    """Take what exceeds its quota from a member: partitions outside its rack first, then the last ones."""
    if len(owned) <= quota:
        return []
    rack = group.members[member_id].rack_id
    if rack:
        owned.sort(key=lambda partition: (rack not in group.racks(*partition), partition))
    excess = owned[quota:]
    assert len(excess) == len(owned) - quota
    del owned[quota:]
    return excess


def _assign_by_rack(
    group: GroupSpec, owned: dict[str, list[Partition]], vacancies: dict[str, int], unassigned: list[Partition]
) -> list[Partition]:
    """Fill vacancies with partitions of the member's own rack; returns what is left.

    Partitions with replicas in the fewest of the members' racks are placed first, since they have the fewest choices.
    """
    in_rack: dict[str, list[str]] = {}
    for member_id, vacancy in vacancies.items():
        rack = group.members[member_id].rack_id
        if rack and vacancy:
            in_rack.setdefault(rack, []).append(member_id)
    candidates = [(partition, sorted(group.racks(*partition) & in_rack.keys())) for partition in unassigned]
    left: list[Partition] = []
    for partition, racks in sorted(candidates, key=lambda candidate: len(candidate[1])):
        rack = max(racks, key=lambda name: len(in_rack[name]), default="")
        if not rack or not in_rack[rack]:
            left.append(partition)
            continue
        member_id = in_rack[rack][-1]
        owned[member_id].append(partition)
        vacancies[member_id] -= 1
        if not vacancies[member_id]:
            in_rack[rack].pop()
    assert len(left) <= len(unassigned)
    assert all(vacancy >= 0 for vacancy in vacancies.values()), "no member gets more than its quota"
    return sorted(left)


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
