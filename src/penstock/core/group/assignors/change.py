"""What lies between an assignment and its target: what stays, what goes, and what is free to come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple

from penstock.core.group.assignors.contract import Owner


class AssignmentChange(NamedTuple, Generic[Owner]):
    """The steps from an assignment to its target; `must_wait` if others still hold some of what is to come."""

    kept: Mapping[Owner, frozenset[int]]
    lost: Mapping[Owner, frozenset[int]]
    gained: Mapping[Owner, frozenset[int]]
    must_wait: bool

    @property
    def kept_and_gained(self) -> Mapping[Owner, frozenset[int]]:
        """What can be had at once."""
        merged = dict(self.kept)
        for owner, numbers in self.gained.items():
            merged[owner] = merged.get(owner, frozenset()) | numbers
        return merged


def compare(
    assigned: Mapping[Owner, frozenset[int]],
    target: Mapping[Owner, frozenset[int]],
    is_held: Callable[[Owner, int], bool],
) -> AssignmentChange[Owner]:
    """The change from `assigned` to `target`; what `is_held` by another owner cannot come yet."""
    none: frozenset[int] = frozenset()
    kept = {owner: numbers & target.get(owner, none) for owner, numbers in assigned.items()}
    lost = {owner: numbers - target.get(owner, none) for owner, numbers in assigned.items()}
    gained: dict[Owner, frozenset[int]] = {}
    must_wait = False
    for owner, numbers in target.items():
        missing = numbers - assigned.get(owner, none)
        free = frozenset(number for number in missing if not is_held(owner, number))
        must_wait = must_wait or len(free) < len(missing)
        gained[owner] = free
    assert all(not kept[owner] & lost[owner] for owner in kept), "what is kept is not lost"
    assert all(not numbers & assigned.get(owner, none) for owner, numbers in gained.items()), "what is gained is new"
    assert all(numbers <= target[owner] for owner, numbers in gained.items())
    return AssignmentChange(_without_empty(kept), _without_empty(lost), _without_empty(gained), must_wait)


def _without_empty(numbers_of: Mapping[Owner, frozenset[int]]) -> Mapping[Owner, frozenset[int]]:
    return {owner: numbers for owner, numbers in numbers_of.items() if numbers}
