"""How many workers an application wants, from its lag. Time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Bounds:
    """The smallest and largest number of workers, and the lag that one worker may have.

    `lag_records` is the lag that one worker is expected to catch up with; records older than `lag_s` want one more
    worker, however few they are. Zero disables either.
    """

    workers_min: int = 1
    workers_max: int = 1
    lag_records: int = 10_000
    lag_s: float = 0.0
    shrink_after_s: float = 60.0


class Scaler:
    """Scales out at once when the lag requires it, and in by one worker when fewer have been enough for a while."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._enough_since: float | None = None

    def wanted(self, workers: int, lag_records: int, lag_s: float, now: float) -> int:
        """How many workers there should be now."""
        bounds = self._bounds
        needed = bounds.workers_min
        if bounds.lag_records:
            needed = max(needed, ceil(lag_records / bounds.lag_records))
        if bounds.lag_s and lag_records and lag_s > bounds.lag_s:
            needed = max(needed, workers + 1)
        needed = min(needed, bounds.workers_max)
        if needed >= workers:
            self._enough_since = None
            return max(needed, bounds.workers_min)
        if self._enough_since is None:
            self._enough_since = now
        if now - self._enough_since < bounds.shrink_after_s:
            return min(workers, bounds.workers_max)
        self._enough_since = now
        return max(workers - 1, bounds.workers_min)
