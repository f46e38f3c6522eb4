"""The heaviest of very many keys, in little memory and with a known error.

Weights are added up by key. When there are twice as many keys as counters, the weight of the heaviest key that is not
among the first `counters` is subtracted from all, and keys without weight are dropped (Misra and Gries' algorithm, many
steps at once). Each time at least `counters` + 1 keys lose that much, so what any key has lost is at most the total
weight divided by `counters` + 1. A key that is shown weighs between what it has and that plus `error`; one that is not
shown weighs at most `error`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest


class HeavyKeys:
    """Adds up weights of keys."""

    __slots__ = ("_counters", "_weights", "error", "total")

    def __init__(self, counters: int) -> None:
        assert counters > 0
        self._counters = counters
        self._weights: dict[bytes, int] = {}
        self.total = 0
        # What the weight of any key may be too small by.
        self.error = 0

    def add(self, weights: Mapping[bytes, int]) -> None:
        """Add these weights, which are above 0."""
        known = self._weights
        for key, weight in weights.items():
            known[key] = known.get(key, 0) + weight
            self.total += weight
            if len(known) > 2 * self._counters:
                self._thin_out()

    def _thin_out(self) -> None:
        known = self._weights
        least = sorted(known.values(), reverse=True)[self._counters]
        for key, weight in list(known.items()):
            if weight > least:
                known[key] = weight - least
            else:
                del known[key]
        self.error += least
        assert least > 0, "a key weighs something"
        assert len(known) <= self._counters
        assert self.error * (self._counters + 1) <= self.total

    def weight(self, key: bytes) -> int:
        """What a key weighs at least."""
        return self._weights.get(key, 0)

    def heaviest(self, count: int) -> Iterable[tuple[bytes, int]]:
        """The heaviest keys with what they weigh at least, the heaviest first."""
        # Equal weights come in the order of the keys.
        return nlargest(count, self._weights.items(), key=lambda item: (item[1], item[0]))
