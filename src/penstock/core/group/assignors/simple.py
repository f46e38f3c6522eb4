"""The `simple` assignor of share groups: several members may have the same partition, so that none stays without.

With more members than partitions each partition has as many members as it takes for every member to have one; with
fewer, each partition has one member and some members have several. Where all members have one subscription its topics
are balanced together, otherwise each topic is balanced among its subscribers. Members keep what they have as far as
that allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from penstock.core.group.assignors.contract import MemberSpec, Partition, Partitions, group_by_topic
from penstock.core.group.assignors.uniform import balanced_quotas
from penstock.model.ids import Uuid

SIMPLE_ASSIGNOR = "simple"


def assign_simple(members: Mapping[str, MemberSpec], assignable: Partitions) -> dict[str, Partitions]:
    """What each member gets of the assignable partitions of its topics."""
    ordered = sorted(members)
    owned: dict[str, set[Partition]] = {member_id: set() for member_id in ordered}
    for topics, subscribers in _balanced_together(members, ordered):
        targets = sorted((topic_id, number) for topic_id in topics for number in assignable.get(topic_id, ()))
        if targets:
            _share(members, subscribers, targets, owned)
    return {member_id: group_by_topic(sorted(pairs)) for member_id, pairs in owned.items()}


def _balanced_together(
    members: Mapping[str, MemberSpec], ordered: Sequence[str]
) -> list[tuple[Sequence[Uuid], Sequence[str]]]:
    """Topics with the members among which they are balanced."""
    subscriptions = {members[member_id].topics for member_id in ordered}
    if len(subscriptions) == 1:
        return [(sorted(subscriptions.pop()), ordered)]
    topics = sorted({topic_id for subscription in subscriptions for topic_id in subscription})
    return [
        ([topic_id], [member_id for member_id in ordered if topic_id in members[member_id].topics])
        for topic_id in topics
    ]


def _share(
    members: Mapping[str, MemberSpec],
    subscribers: Sequence[str],
    targets: Sequence[Partition],
    owned: Mapping[str, set[Partition]],
) -> None:
    """Give every partition to `sharing` of the subscribers, and every subscriber its quota."""
    sharing = -(-len(subscribers) // len(targets))
    kept = {
        member_id: [pair for pair in targets if pair[1] in members[member_id].assigned.get(pair[0], ())]
        for member_id in subscribers
    }
    assert sharing > 0, "members and partitions are both there"
    sizes = {member_id: len(pairs) for member_id, pairs in kept.items()}
    quotas = balanced_quotas([*subscribers], sizes, len(targets) * sharing)
    assert sum(quotas.values()) == len(targets) * sharing, "quotas add up to all places"
    counts = dict.fromkeys(targets, 0)
    vacancies: dict[str, int] = {}
    for member_id in subscribers:
        keeps = [pair for pair in kept[member_id] if counts[pair] < sharing][: quotas[member_id]]
        for pair in keeps:
            counts[pair] += 1
        owned[member_id].update(keeps)
        vacancies[member_id] = quotas[member_id] - len(keeps)
    assert all(count <= sharing for count in counts.values()), "no partition has more members than places"
    assert sum(vacancies.values()) == len(targets) * sharing - sum(counts.values()), (
        "vacancies are as many as free places"
    )
    _fill(vacancies, counts, sharing, owned)


def _fill(
    vacancies: Mapping[str, int], counts: dict[Partition, int], sharing: int, owned: Mapping[str, set[Partition]]
) -> None:
    """Give the partitions with the fewest members to the members that have room.

    There are as many vacancies as free places. A member that already has every partition with room gets nothing more;
    it has something then, and so does each of those partitions.
    """
    free = [(count, pair) for pair, count in counts.items() if count < sharing]
    heapify(free)
    # Those with the most room choose first: no other member can use a partition that only they don't have.
    for member_id in sorted(vacancies, key=lambda member_id: -vacancies[member_id]):
        had: list[tuple[int, Partition]] = []
        for _ in range(vacancies[member_id]):
            while free and free[0][1] in owned[member_id]:
                had.append(heappop(free))
            if not free:
                break
            count, pair = heappop(free)
            owned[member_id].add(pair)
            if count + 1 < sharing:
                had.append((count + 1, pair))
        for entry in had:
            heappush(free, entry)
