"""Striped placement of replicas over brokers and racks.

Brokers are ordered like dealt cards: one of each rack, then the next of each rack, so that neighbours are in different
racks. Each partition takes the next broker as its leader and its followers from the brokers after it, with a shift that
grows in every round, so that the followers of one leader spread over all other brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may get replicas. Fenced ones come after all others and never lead a new partition."""

    broker_id: int
    rack: str | None = None
    fenced: bool = False


class PlacementError(Exception):
    """The requested placement is not possible with these brokers."""


def place(
    partitions: int, replication_factor: int, brokers: Sequence[UsableBroker], random: Random
) -> list[tuple[int, ...]]:
    """One tuple of broker ids per partition, the preferred leader first."""
    if replication_factor < 1:
        raise PlacementError(f"a replication factor of {replication_factor} was asked for; it must be at least 1")
    if replication_factor > len(brokers):
        raise PlacementError(
            f"a replication factor of {replication_factor} needs that many brokers, and {len(brokers)} can get replicas"
        )
    deck = _deal([broker for broker in brokers if not broker.fenced], random)
    if not deck:
        raise PlacementError("every broker is fenced: none can lead a new partition")
    deck.extend(_deal([broker for broker in brokers if broker.fenced], random))
    assert len(deck) == len(brokers), "every broker is dealt once"
    leaders = sum(not broker.fenced for broker in brokers)
    assert 0 < leaders <= len(deck)
    racks = {broker.broker_id: broker.rack for broker in brokers}
    start = random.randrange(leaders)
    placed = []
    for partition in range(partitions):
        first = (start + partition) % leaders
        shift = (start + partition) // leaders
        placed.append(_replicas(deck, first, shift, replication_factor, racks))
        assert len(placed[-1]) == replication_factor
    return placed


def _deal(brokers: Sequence[UsableBroker], random: Random) -> list[int]:
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.broker_id):
        by_rack.setdefault(broker.rack, []).append(broker.broker_id)
    hands = list(by_rack.values())
    for hand in hands:
        random.shuffle(hand)
    random.shuffle(hands)
    assert sum(map(len, hands)) == len(brokers)
    return [card for turn in zip_longest(*hands) for card in turn if card is not None]


def _replicas(
    deck: Sequence[int], first: int, shift: int, replication_factor: int, racks: dict[int, str | None]
) -> tuple[int, ...]:
    chosen = [deck[first]]
    others = [deck[(first + 1 + step) % len(deck)] for step in range(len(deck) - 1)]
    turn = shift % len(others) if others else 0
    others = others[turn:] + others[:turn]
    used_racks = {racks[chosen[0]]}
    # A rack is used twice only when every rack has been used once.
    for fresh_racks_only in (True, False):
        for candidate in others:
            if len(chosen) == replication_factor:
                break
            if candidate in chosen or (fresh_racks_only and racks[candidate] in used_racks):
                continue
            chosen.append(candidate)
            used_racks.add(racks[candidate])
    assert len(chosen) == replication_factor <= len(deck)
    assert len(set(chosen)) == len(chosen), "a broker has one replica of a partition"
    return tuple(chosen)
