"""The `simple` assignor: no member without a partition, no partition without a member, and little that moves."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from penstock.core.group.assignors.contract import MemberSpec, Partitions, pairs_of
from penstock.core.group.assignors.simple import assign_simple
from penstock.model.ids import Uuid

T, U = b"t" * 16, b"u" * 16


def spec(*topics: Uuid, assigned: Partitions | None = None) -> MemberSpec:
    return MemberSpec(frozenset(topics), assigned or {})


def topic(count: int) -> frozenset[int]:
    return frozenset(range(count))


def holders(assignment: dict[str, Partitions]) -> Counter[tuple[Uuid, int]]:
    return Counter(pair for partitions in assignment.values() for pair in pairs_of(partitions))


@pytest.mark.parametrize(("members", "count"), [(1, 3), (2, 3), (3, 3), (4, 3), (7, 3), (6, 3), (10, 1), (3, 10)])
def test_members_and_partitions_get_equal_shares(members: int, count: int) -> None:
    specs = {f"m{number}": spec(T) for number in range(members)}
    found = assign_simple(specs, {T: topic(count)})
    sharing = -(-members // count)
    assert set(holders(found).values()) == {sharing}
    sizes = {len(pairs_of(partitions)) for partitions in found.values()}
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


def test_topics_of_one_subscription_are_balanced_together() -> None:
    found = assign_simple({"a": spec(T, U), "b": spec(T, U)}, {T: topic(1), U: topic(1)})
    assert sorted(len(pairs_of(partitions)) for partitions in found.values()) == [1, 1]


def test_each_topic_is_balanced_among_those_who_want_it() -> None:
    found = assign_simple({"a": spec(T, U), "b": spec(U)}, {T: topic(2), U: topic(2)})
    assert found["a"][T] == topic(2)
    assert {*found["a"][U], *found["b"][U]} == topic(2)
    assert T not in found["b"]


def test_only_assignable_partitions_are_assigned() -> None:
    found = assign_simple({"a": spec(T, U)}, {T: frozenset({1})})
    assert found == {"a": {T: frozenset({1})}}


def test_members_without_topics_get_nothing() -> None:
    assert assign_simple({"a": spec()}, {T: topic(2)}) == {"a": {}}
    assert assign_simple({}, {T: topic(2)}) == {}


def test_what_is_gone_is_taken_away() -> None:
    former = {T: topic(4), U: topic(1)}
    assert assign_simple({"a": spec(T, assigned=former)}, {T: topic(2)}) == {"a": {T: topic(2)}}


def test_members_keep_what_balance_allows() -> None:
    first = assign_simple({"a": spec(T), "b": spec(T)}, {T: topic(4)})
    again = {name: spec(T, assigned=first[name]) for name in first}
    assert assign_simple(again, {T: topic(4)}) == first
    grown = assign_simple({**again, "c": spec(T)}, {T: topic(4)})
    for name in first:
        assert pairs_of(grown[name]) < pairs_of(first[name]) or grown[name] == first[name]


def test_it_holds_for_any_history() -> None:
    random = Random(7)
    members: dict[str, MemberSpec] = {}
    for _ in range(400):
        name = f"m{random.randrange(12)}"
        if name in members and random.random() < 0.4:
            del members[name]
        else:
            topics = [T, U] if random.random() < 0.7 else [random.choice([T, U])]
            members[name] = spec(*topics, assigned=members[name].assigned if name in members else None)
        assignable = {T: topic(random.randrange(1, 6)), U: topic(random.randrange(1, 6))}
        found = assign_simple(members, assignable)
        assert found.keys() == members.keys()
        wanted = {topic_id for member in members.values() for topic_id in member.topics}
        assert holders(found).keys() == pairs_of({name: assignable[name] for name in wanted})
        for member_id, partitions in found.items():
            assert partitions, f"{member_id} has nothing"
            assert partitions.keys() <= members[member_id].topics
        members = {name: MemberSpec(member.topics, found[name]) for name, member in members.items()}
