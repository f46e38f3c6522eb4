"""Histograms with fixed buckets, cheap to update, and quantiles of recent values."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

# Seconds, from a request that is answered from memory to a long poll.
LATENCY_BOUNDS_S = (
    0.000025, 0.00005, 0.0001, 0.00025, 0.0005,
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip


class Histogram:
    """Values by upper bound. `counts` has one more entry than `bounds`: for values above all of them."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self.bounds = tuple(bounds)
        assert all(one < two for one, two in pairwise(self.bounds)), "buckets are in order"
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def __add__(self, other: Histogram) -> Histogram:
        assert self.bounds == other.bounds
        both = Histogram(self.bounds)
        both.counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        assert both.count == self.count + other.count
        both.sum = self.sum + other.sum
        return both

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


def quantile(bounds: Sequence[float], counts: Sequence[int], wanted: float) -> float:
    """The value below which a fraction of the values lies, assuming an even spread within buckets; 0 for no values."""
    count = sum(counts)
    rank = wanted * count
    seen = 0
    lower = 0.0
    for bound, found in zip(bounds, counts, strict=False):
        if found and seen + found >= rank:
            return lower + (bound - lower) * (rank - seen) / found
        seen += found
        lower = bound
    assert 0.0 <= wanted <= 1.0
    return lower if count else 0.0


class Window:
    """The recent counts of a histogram: those since the oldest sample that is within the window."""

    __slots__ = ("_looks", "_span_s", "_step_s")

    def __init__(self, span_s: float = 300.0, step_s: float = 30.0) -> None:
        self._span_s = span_s
        self._step_s = step_s
        self._looks: deque[tuple[float, list[int]]] = deque()

    def lately(self, histogram: Histogram, now_s: float) -> list[int]:
        """The counts since then; all of them if there was no earlier sample."""
        looks = self._looks
        while len(looks) > 1 and looks[1][0] <= now_s - self._span_s:
            looks.popleft()
        counts = list(histogram.counts)
        base = looks[0][1] if looks else [0] * len(counts)
        if not looks or now_s - looks[-1][0] >= self._step_s:
            looks.append((now_s, counts))
        return [now - before for now, before in zip(counts, base, strict=True)]
