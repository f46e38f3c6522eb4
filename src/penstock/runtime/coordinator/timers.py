"""Many deadlines on one timer: extending a deadline only costs a dictionary update.

Every heartbeat extends its member's session deadline. Each key has one entry in a heap; an extended deadline is noticed
when its old entry comes up, and goes back into the heap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

# The sessions of all members end at the same time if they started when the coordinator was loaded.
FIRED_PER_TURN = 100

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """Calls `fire(key)` at each key's deadline, in milliseconds of the monotonic clock `now_ms`."""

    def __init__(self, now_ms: Callable[[], int], fire: Callable[[Key], None]) -> None:
        self._now_ms = now_ms
        self._fire = fire
        self._deadlines: dict[Key, int] = {}
        # Entries are (time, tie-breaker, key); `_queued` has the time of each key's newest entry.
        self._heap: list[tuple[int, int, Key]] = []
        self._queued: dict[Key, int] = {}
        self._ties = count()
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: Key, deadline_ms: int | None) -> None:
        """Set, move or (with None) cancel a key's deadline."""
        if deadline_ms is None:
            self._deadlines.pop(key, None)
            return
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def clear(self) -> None:
        """Cancel every deadline."""
        self._deadlines.clear()
        self._heap.clear()
        self._queued.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _push(self, key: Key, at_ms: int) -> None:
        self._queued[key] = at_ms
        heappush(self._heap, (at_ms, next(self._ties), key))
        if self._handle is None or at_ms < self._wakes_at:
            self._wake_at(at_ms)

    def _wake_at(self, at_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._wakes_at = at_ms
        delay_s = max(0, at_ms - self._now_ms()) / 1000
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._handle = None
        try:
            self._fire_due(self._now_ms())
        finally:
            # A deadline set meanwhile may be later than the earlier one.
            if self._heap and (self._handle is None or self._heap[0][0] < self._wakes_at):
                self._wake_at(self._heap[0][0])

    def _fire_due(self, now_ms: int) -> None:
        """Call `fire` for what is due; when that is much, for some of it, and for the rest in the loop's next turns."""
        fired = 0
        while self._heap and self._heap[0][0] <= now_ms and fired < FIRED_PER_TURN:
            at_ms, _, key = heappop(self._heap)
            if self._queued.get(key) != at_ms:
                continue
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self._push(key, deadline_ms)
                continue
            del self._deadlines[key]
            fired += 1
            self._fire(key)
