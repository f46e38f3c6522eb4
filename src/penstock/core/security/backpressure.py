"""How long a produce is held back for groups that cannot keep up with it.

A topic names groups and a lag. While a partition is further ahead of one of them, each produce to it is throttled: a
little just beyond the limit, for the longest time at twice the limit and beyond, in proportion between. What is not
known, or no longer, delays no produce: a group that has committed nothing, or whose coordinator did not answer lately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

# A group whose progress was not reported for this many intervals is ignored.
STALE_INTERVALS = 5

Name = tuple[str, int]


def throttle_ms(lag: int, lag_max: int, throttle_ms_max: int) -> int:
    """The throttle time of one produce to a partition that is `lag` records ahead of the slowest group."""
    if lag <= lag_max:
        return 0
    assert lag > lag_max
    return min(throttle_ms_max, -(-(lag - lag_max) * throttle_ms_max // lag_max))


class Heard(NamedTuple):
    """What a group had committed, and when that was known."""

    offsets: Mapping[Name, int]
    at_ms: int


class GroupProgress:
    """How far groups have come, as far as it is known."""

    def __init__(self) -> None:
        self._heard: dict[str, Heard] = {}

    def heard(self, group: str, offsets: Mapping[Name, int], now_ms: int) -> None:
        """The group's coordinator told what it has committed."""
        self._heard[group] = Heard(offsets, now_ms)

    def keep(self, groups: Iterable[str]) -> None:
        """Forget all other groups."""
        kept = set(groups)
        for group in [group for group in self._heard if group not in kept]:
            del self._heard[group]

    def slowest(self, partition: Name, groups: Iterable[str], now_ms: int, stale_ms: int) -> int | None:
        """The lowest offset that one of these groups has committed; None if none is known."""
        known = (self._heard.get(group) for group in groups)
        offsets = [
            heard.offsets[partition]
            for heard in known
            if heard is not None and now_ms - heard.at_ms <= stale_ms and partition in heard.offsets
        ]
        return min(offsets, default=None)
