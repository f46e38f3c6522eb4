"""Where replicas go: spread over brokers and racks, fenced brokers last, the same for the same randomness."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from penstock.core.placement.stripe import PlacementError, UsableBroker, place


def brokers(count: int, racks: int = 0, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(n, f"rack-{n % racks}" if racks else None, n in fenced) for n in range(count)]


@pytest.mark.parametrize("seed", range(10))
def test_leaders_and_replicas_are_spread_evenly(seed: int) -> None:
    placed = place(60, 3, brokers(6), Random(seed))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    assert set(Counter(broker for replicas in placed for broker in replicas).values()) <= set(range(24, 37))
    assert all(len(set(replicas)) == 3 for replicas in placed)


@pytest.mark.parametrize("seed", range(10))
def test_no_rack_twice_while_there_are_others(seed: int) -> None:
    for replicas in place(40, 3, brokers(9, racks=3), Random(seed)):
        assert len({broker % 3 for broker in replicas}) == 3


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("partitions_each", [1, 7, 1000])
def test_big_clusters_stay_balanced(seed: int, partitions_each: int) -> None:
    """100 K partitions over 12 brokers in 3 racks, in topics of all sizes: less than 10 % between any two brokers."""
    random, spread = Random(seed), brokers(12, racks=3)
    total = 100_000 if partitions_each > 1 else 20_000
    placed = [row for _ in range(total // partitions_each) for row in place(partitions_each, 3, spread, random)]
    for counted in (Counter(row[0] for row in placed), Counter(broker for row in placed for broker in row)):
        assert max(counted.values()) < 1.1 * min(counted.values())
    assert all(len({broker % 3 for broker in row}) == 3 for row in placed)


def test_few_racks_are_used_twice_rather_than_refused() -> None:
    for replicas in place(20, 3, brokers(6, racks=2), Random(1)):
        assert len(set(replicas)) == 3
        assert len({broker % 2 for broker in replicas}) == 2


@pytest.mark.parametrize("seed", range(10))
def test_fenced_brokers_never_lead(seed: int) -> None:
    placed = place(50, 3, brokers(5, fenced=(1, 3)), Random(seed))
    assert all(replicas[0] not in (1, 3) for replicas in placed)


def test_a_fenced_broker_is_taken_when_needed() -> None:
    placed = place(10, 3, brokers(3, fenced=(2,)), Random(0))
    assert all(set(replicas) == {0, 1, 2} for replicas in placed)


def test_the_same_randomness_places_alike() -> None:
    assert place(30, 2, brokers(7, racks=3), Random(5)) == place(30, 2, brokers(7, racks=3), Random(5))


@pytest.mark.parametrize(
    ("factor", "available", "reason"),
    [
        (0, brokers(3), "at least 1"),
        (4, brokers(3), "needs that many brokers"),
        (1, brokers(2, fenced=(0, 1)), "fenced"),
        (1, [], "needs that many brokers"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_the_reason(
    factor: int, available: list[UsableBroker], reason: str
) -> None:
    with pytest.raises(PlacementError, match=reason):
        place(1, factor, available, Random(0))
