"""What assignors promise, for any group: complete, exclusive, deterministic; balanced and sticky where they say so."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.group.assignors.contract import GroupSpec, MemberSpec, Partitions, assign_range
from penstock.core.group.assignors.uniform import ASSIGNORS, assign_uniform
from penstock.model.ids import Uuid


def topic(number: int) -> Uuid:
    return number.to_bytes(16, "big")


def group(subscriptions: dict[str, set[int]], counts: dict[int, int], **assigned: dict[int, set[int]]) -> GroupSpec:
    members = {
        member_id: MemberSpec(
            frozenset(topic(number) for number in numbers),
            {topic(n): frozenset(partitions) for n, partitions in assigned.get(member_id, {}).items()},
        )
        for member_id, numbers in subscriptions.items()
    }
    return GroupSpec(members, {topic(number): count for number, count in counts.items()})


def again(spec: GroupSpec, assignment: dict[str, Partitions]) -> GroupSpec:
    """The same group after it was assigned."""
    members = {
        member_id: MemberSpec(member.topics, assignment.get(member_id, {}), member.instance_id, member.rack_id)
        for member_id, member in spec.members.items()
    }
    return GroupSpec(members, spec.partition_counts, spec.racks)


def sizes(assignment: dict[str, Partitions]) -> dict[str, int]:
    return {member_id: sum(map(len, partitions.values())) for member_id, partitions in assignment.items()}


def moved(before: dict[str, Partitions], after: dict[str, Partitions]) -> int:
    """How many partitions members keep losing to others."""
    return sum(
        len(partitions - after.get(member_id, {}).get(topic_id, frozenset()))
        for member_id, owned in before.items()
        if member_id in after
        for topic_id, partitions in owned.items()
    )


counts = st.dictionaries(st.integers(0, 5), st.integers(1, 9), min_size=1)


@st.composite
def groups(draw: st.DrawFn, *, mixed: bool | None = None) -> GroupSpec:
    partition_counts = draw(counts)
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    topics = st.sets(st.sampled_from(sorted(partition_counts)))
    shared = draw(topics)
    differ = draw(st.booleans()) if mixed is None else mixed
    old = {
        topic(n): [draw(st.sampled_from([*names, "gone", "-"])) for _ in range(c)] for n, c in partition_counts.items()
    }
    members = {
        name: MemberSpec(
            frozenset(map(topic, draw(topics) if differ else shared)),
            {
                topic_id: frozenset(p for p, owner in enumerate(owners) if owner == name)
                for topic_id, owners in old.items()
                if name in owners
            },
            draw(st.sampled_from([None, name.upper()])),
        )
        for name in names
    }
    return GroupSpec(members, {topic(number): count for number, count in partition_counts.items()})


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(spec=groups())
def test_every_subscribed_partition_has_exactly_one_owner_that_subscribes_to_it(name: str, spec: GroupSpec) -> None:
    assignment = ASSIGNORS[name](spec)
    assert assignment.keys() == spec.members.keys()
    owners: dict[tuple[Uuid, int], str] = {}
    for member_id, owned in assignment.items():
        for topic_id, partitions in owned.items():
            assert partitions
            assert topic_id in spec.members[member_id].topics
            for partition in partitions:
                assert owners.setdefault((topic_id, partition), member_id) == member_id
    subscribed = {topic_id for member in spec.members.values() for topic_id in member.topics}
    assert owners.keys() == {(t, p) for t in subscribed for p in range(spec.partition_counts[t])}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(spec=groups(), data=st.data())
def test_the_order_of_members_does_not_matter(name: str, spec: GroupSpec, data: st.DataObject) -> None:
    order = data.draw(st.permutations(list(spec.members)))
    shuffled = GroupSpec({member_id: spec.members[member_id] for member_id in order}, spec.partition_counts)
    assert ASSIGNORS[name](spec) == ASSIGNORS[name](shuffled)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(spec=groups())
def test_an_assigned_group_stays_as_it_is(name: str, spec: GroupSpec) -> None:
    assignment = ASSIGNORS[name](spec)
    assert ASSIGNORS[name](again(spec, assignment)) == assignment


@given(spec=groups(mixed=False))
def test_uniform_counts_differ_by_one_at_most(spec: GroupSpec) -> None:
    counts = sizes(assign_uniform(spec)).values()
    assert max(counts) - min(counts) <= 1


@given(spec=groups(mixed=True))
def test_uniform_with_mixed_subscriptions_leaves_no_chain_of_hand_overs_that_would_help(spec: GroupSpec) -> None:
    assignment = assign_uniform(spec)
    load = sizes(assignment)
    for start in assignment:
        reached, queue = {start}, [start]
        while queue:
            giver = queue.pop()
            for taker, member in spec.members.items():
                if taker not in reached and member.topics & assignment[giver].keys():
                    reached.add(taker)
                    queue.append(taker)
        assert all(load[start] - load[member_id] <= 1 for member_id in reached)


@given(spec=groups(mixed=False))
def test_uniform_moves_only_what_balance_requires(spec: GroupSpec) -> None:
    before = assign_uniform(spec)
    for newcomer in ("0", "z"):
        topics = next(iter(spec.members.values())).topics
        members = {**again(spec, before).members, newcomer: MemberSpec(topics)}
        after = assign_uniform(GroupSpec(members, spec.partition_counts))
        assert moved(before, after) == sizes(after)[newcomer]


@given(spec=groups(mixed=False))
def test_uniform_leaves_the_others_alone_when_a_member_leaves(spec: GroupSpec) -> None:
    before = assign_uniform(spec)
    members = dict(again(spec, before).members)
    if len(members) > 1:
        members.pop(min(members))
        assert moved(before, assign_uniform(GroupSpec(members, spec.partition_counts))) == 0


def test_uniform_gives_runs_to_a_new_group() -> None:
    assignment = assign_uniform(group({"a": {1}, "b": {1}}, {1: 5}))
    assert assignment == {"a": {topic(1): frozenset({0, 1, 2})}, "b": {topic(1): frozenset({3, 4})}}


def test_uniform_forgets_partitions_of_topics_no_member_reads_any_more() -> None:
    spec = group({"a": {1}, "b": {1}}, {1: 2}, a={2: {0, 1}}, b={1: {0, 1, 7}})
    assert sizes(assign_uniform(spec)) == {"a": 1, "b": 1}


def test_uniform_repairs_an_assignment_with_two_owners() -> None:
    spec = group({"a": {1}, "b": {1}}, {1: 2}, a={1: {0}}, b={1: {0, 1}})
    assert assign_uniform(spec) == {"a": {topic(1): frozenset({0})}, "b": {topic(1): frozenset({1})}}


def test_uniform_leaves_the_odd_partition_with_who_has_it() -> None:
    spec = group({"0": {1}, "a": {1}}, {1: 3}, a={1: {0, 1, 2}})
    assert sizes(assign_uniform(spec)) == {"0": 1, "a": 2}


def test_uniform_balances_overlapping_subscriptions_by_a_chain() -> None:
    """Only b reads both topics: it must pass on one of topic 2 to take one of topic 1 from a.

    That x has the most and no member to give it to does not keep the others from balancing.
    """
    spec = group(
        {"a": {1}, "b": {1, 2}, "c": {2}, "x": {3}},
        {1: 10, 2: 8, 3: 20},
        a={1: {0, 1, 2, 3, 4, 5, 6}},
        b={1: {7, 8, 9}, 2: {0, 1, 2}},
        c={2: {3, 4, 5, 6, 7}},
    )
    assert sizes(assign_uniform(spec)) == {"a": 6, "b": 6, "c": 6, "x": 20}


def rack_group(racks: dict[str, str], partition_racks: list[set[str]], **assigned: set[int]) -> GroupSpec:
    members = {
        member_id: MemberSpec(
            frozenset({topic(1)}),
            {topic(1): frozenset(assigned[member_id])} if member_id in assigned else {},
            None,
            rack,
        )
        for member_id, rack in racks.items()
    }
    return GroupSpec(
        members, {topic(1): len(partition_racks)}, lambda _, partition: frozenset(partition_racks[partition])
    )


def test_uniform_prefers_members_in_a_rack_of_the_partition() -> None:
    spec = rack_group({"a": "east", "b": "west"}, [{"west"}, {"east"}, {"west"}, {"east"}])
    assert assign_uniform(spec) == {"a": {topic(1): frozenset({1, 3})}, "b": {topic(1): frozenset({0, 2})}}


def test_uniform_lets_partitions_with_one_rack_choose_before_those_with_two() -> None:
    spec = rack_group({"a": "east", "b": "west"}, [{"east", "west"}, {"east"}])
    assert assign_uniform(spec) == {"a": {topic(1): frozenset({1})}, "b": {topic(1): frozenset({0})}}


def test_uniform_keeps_balance_where_racks_would_break_it() -> None:
    spec = rack_group({"a": "east", "b": "west"}, [{"east"}] * 4)
    assert sizes(assign_uniform(spec)) == {"a": 2, "b": 2}


def test_uniform_gives_away_what_is_far_from_a_member_first() -> None:
    spec = rack_group({"a": "east", "b": "west"}, [{"west"}, {"east"}], a={0, 1})
    assert assign_uniform(spec) == {"a": {topic(1): frozenset({1})}, "b": {topic(1): frozenset({0})}}


def test_uniform_with_mixed_subscriptions_prefers_the_rack_as_well() -> None:
    members = {
        "a": MemberSpec(frozenset({topic(1)}), {}, None, "east"),
        "b": MemberSpec(frozenset({topic(1), topic(2)}), {}, None, "west"),
        "c": MemberSpec(frozenset({topic(2)}), {}, None, "east"),
    }
    racks = [frozenset({"west"}), frozenset({"east"})]
    spec = GroupSpec(members, {topic(1): 2, topic(2): 1}, lambda _, partition: racks[partition])
    assignment = assign_uniform(spec)
    assert assignment["a"] == {topic(1): frozenset({1})}
    assert assignment["b"] == {topic(1): frozenset({0})}


def test_range_gives_runs_and_the_odd_ones_to_the_first() -> None:
    assignment = assign_range(group({"b": {1, 2}, "a": {1, 2}}, {1: 3, 2: 2}))
    assert assignment == {
        "a": {topic(1): frozenset({0, 1}), topic(2): frozenset({0})},
        "b": {topic(1): frozenset({2}), topic(2): frozenset({1})},
    }


@given(st.integers(1, 9), st.integers(1, 20))
def test_range_gives_members_the_same_numbers_of_topics_of_one_size(member_count: int, partition_count: int) -> None:
    spec = group({f"m{n}": {1, 2} for n in range(member_count)}, {1: partition_count, 2: partition_count})
    for owned in assign_range(spec).values():
        assert owned.get(topic(1)) == owned.get(topic(2))


def test_range_orders_static_members_by_instance_and_before_the_others() -> None:
    topics = frozenset({topic(1)})
    for first, second in permutations(["x", "y"]):
        members = {
            first: MemberSpec(topics, {}, "instance-1"),
            second: MemberSpec(topics, {}, "instance-2"),
            "a": MemberSpec(topics),
        }
        assignment = assign_range(GroupSpec(members, {topic(1): 3}))
        assert assignment[first] == {topic(1): frozenset({0})}
        assert assignment[second] == {topic(1): frozenset({1})}


def test_range_leaves_members_without_partitions_when_there_are_too_few() -> None:
    assert sizes(assign_range(group({"a": {1}, "b": {1}, "c": {1}}, {1: 2}))) == {"a": 1, "b": 1, "c": 0}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_a_group_without_members_or_topics_has_no_assignment(name: str) -> None:
    assert ASSIGNORS[name](GroupSpec({}, {})) == {}
    assert ASSIGNORS[name](group({"a": set(), "b": set()}, {})) == {"a": {}, "b": {}}
