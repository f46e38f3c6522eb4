"""How long to wait before something that failed is tried again: longer after each failure, up to a limit."""

from __future__ import annotations

from typing import Generic, TypeVar

# Integers of milliseconds, or seconds.
N = TypeVar("N", int, float)

DOUBLINGS_MAX = 10


def pause_after(failures: int, first: N, longest: N) -> N:
    """The pause after so many failures in a row, one or more: `first`, which doubles with each, up to `longest`."""
    assert failures > 0, "without a failure there is no pause"
    return min(longest, first * (1 << min(failures - 1, DOUBLINGS_MAX)))


class Backoff(Generic[N]):
    """Counts failures in a row, and knows the pause after each."""

    __slots__ = ("_first", "_longest", "failures")

    def __init__(self, first: N, longest: N) -> None:
        self._first: N = first
        self._longest: N = longest
        self.failures = 0

    def failed(self) -> N:
        """Count a failure; returns the pause before the next attempt."""
        self.failures += 1
        return pause_after(self.failures, self._first, self._longest)

    def succeeded(self) -> None:
        """Start anew with the first pause."""
        self.failures = 0
