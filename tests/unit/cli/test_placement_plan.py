"""Plans keep every replica, spread them, move little, and say when they cannot."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.cluster.plan import CannotPlace, drain, rebalance
from penstock.client.view import BrokerView
from penstock.model.ids import TopicPartition

Assignment = dict[TopicPartition, tuple[int, ...]]


def brokers(*numbers: int, racks: dict[int, str] | None = None) -> list[BrokerView]:
    return [BrokerView(number, "host", 9092, (racks or {}).get(number)) for number in numbers]


def replicas_of(assignment: Assignment) -> Counter[int]:
    return Counter(replica for replicas in assignment.values() for replica in replicas)


def leaders_of(assignment: Assignment) -> Counter[int]:
    return Counter(replicas[0] for replicas in assignment.values())


def spread_of(counts: Counter[int], numbers: range) -> int:
    return max(counts[number] for number in numbers) - min(counts[number] for number in numbers)


def dealt(count: int, over: list[int], copies: int) -> Assignment:
    return {
        TopicPartition("t", number): tuple(over[(number + step) % len(over)] for step in range(copies))
        for number in range(count)
    }


def test_a_new_broker_gets_its_share_and_no_more_than_that_moves() -> None:
    before = dealt(40, [1, 2, 3], 3)
    plan = rebalance(before, brokers(1, 2, 3, 4))
    after = before | plan
    assert spread_of(replicas_of(after), range(1, 5)) == 0
    assert spread_of(leaders_of(after), range(1, 5)) == 0
    copied = sum(len(set(after[name]) - set(before[name])) for name in before)
    assert copied == 30


def test_what_is_even_is_left_alone() -> None:
    assert rebalance(dealt(12, [1, 2, 3], 2), brokers(1, 2, 3)) == {}
    assert rebalance({}, brokers(1, 2)) == {}


def test_leaders_are_levelled_without_copying() -> None:
    before = {TopicPartition("t", number): (1, 2, 3) for number in range(9)}
    after = before | rebalance(before, brokers(1, 2, 3))
    assert leaders_of(after) == Counter({1: 3, 2: 3, 3: 3})
    assert all(set(replicas) == {1, 2, 3} for replicas in after.values())


def test_leadership_goes_round_where_no_single_hand_over_helps() -> None:
    before = {
        TopicPartition("t", 0): (1, 2),
        TopicPartition("t", 1): (1, 2),
        TopicPartition("t", 2): (1, 2),
        TopicPartition("t", 3): (2, 3),
        TopicPartition("t", 4): (2, 3),
        TopicPartition("t", 5): (3, 1),
    }
    after = before | rebalance(before, brokers(1, 2, 3))
    assert spread_of(leaders_of(after), range(1, 4)) <= 1


def test_replicas_that_share_a_rack_are_taken_apart() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    before = {TopicPartition("t", number): (1, 2) for number in range(8)}
    after = before | rebalance(before, brokers(1, 2, 3, 4, racks=racks))
    assert all(len({racks[replica] for replica in replicas}) == 2 for replicas in after.values())
    assert spread_of(replicas_of(after), range(1, 5)) <= 1


def test_a_broker_is_emptied_into_the_others_and_racks_stay_apart() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    before = {TopicPartition("t", number): ((1, 3), (2, 4), (3, 1), (4, 2))[number % 4] for number in range(16)}
    after = before | drain(before, brokers(1, 2, 3, 4, racks=racks), 4)
    assert 4 not in replicas_of(after)
    assert all(len({racks[replica] for replica in replicas}) == 2 for replicas in after.values())
    untouched = [name for name, replicas in before.items() if 4 not in replicas]
    assert all(after[name] == before[name] for name in untouched)


def test_a_broker_whose_replicas_have_no_other_place_is_not_emptied() -> None:
    with pytest.raises(CannotPlace) as caught:
        drain(dealt(4, [1, 2, 3], 3), brokers(1, 2, 3), 3)
    assert (caught.value.needed, caught.value.available, len(caught.value.partitions)) == (3, 2, 4)


def test_replicas_on_brokers_that_are_down_stay_where_they_are() -> None:
    before = dealt(12, [1, 2, 9], 2)
    plan = rebalance(before, brokers(1, 2))
    assert all((9 in replicas) == (9 in before[name]) for name, replicas in plan.items())


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[BrokerView], Assignment]:
    count = draw(st.integers(1, 7))
    numbers = list(range(1, count + 1))
    named = draw(st.booleans())
    found = [BrokerView(number, "h", 1, f"rack-{number % 3}" if named else None) for number in numbers]
    copies = draw(st.integers(1, min(3, count)))
    rows = draw(st.lists(st.permutations(numbers), max_size=30))
    return found, {TopicPartition(f"t{row % 3}", row): tuple(order[:copies]) for row, order in enumerate(rows)}


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_a_rebalance_keeps_every_replica_and_levels_what_it_can(case: tuple[list[BrokerView], Assignment]) -> None:
    found, before = case
    after = before | rebalance(before, found)
    for name, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == len(before[name])
    numbers = range(1, len(found) + 1)
    racks = {broker.node_id: broker.rack for broker in found}
    for name, replicas in after.items():
        assert len({racks[one] for one in replicas}) >= len({racks[one] for one in before[name]})
    if before and all(broker.rack is None for broker in found):
        assert spread_of(replicas_of(after), numbers) <= 1
    assert rebalance(after, found) == {} or spread_of(replicas_of(after), numbers) > 1


@settings(max_examples=150, deadline=None)
@given(clusters(), st.integers(1, 7))
def test_a_drained_broker_has_nothing_and_others_keep_theirs(
    case: tuple[list[BrokerView], Assignment], leaving: int
) -> None:
    found, before = case
    copies = max((len(replicas) for replicas in before.values() if leaving in replicas), default=0)
    if copies > len([broker for broker in found if broker.node_id != leaving]):
        with pytest.raises(CannotPlace):
            drain(before, found, leaving)
        return
    after = before | drain(before, found, leaving)
    assert leaving not in replicas_of(after)
    for name, replicas in after.items():
        assert len(set(replicas)) == len(before[name])
        assert set(before[name]) - {leaving} <= set(replicas)
