"""Limits the rate of replication to replicas that catch up, so that moving them leaves room for clients.

A bucket holds one second's worth of bytes. Bytes sent are taken out, even below zero, and throttled replicas wait until
it is positive again. In-sync replicas are never throttled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNLIMITED = 2**63 - 1
ALL = "*"


class Throttle:
    """One direction's bucket. `rate` returns the current limit in bytes per second."""

    __slots__ = ("_level", "_rate", "_updated_ms")

    def __init__(self, rate: Callable[[], int]) -> None:
        self._rate = rate
        self._level = 0.0
        self._updated_ms: int | None = None

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether throttled replicas must wait."""
        rate = self._rate()
        if rate >= UNLIMITED:
            return False
        if self._updated_ms is None:
            self._level = float(rate)
        else:
            self._level = min(float(rate), self._level + rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        assert self._level <= rate, "a bucket holds one second's worth"
        return self._level <= 0

    def wait_s(self, now_ms: int) -> float:
        """How long to wait for the level to become positive; 0 while it is."""
        return 0.0 if not self.is_exceeded(now_ms) else max(0.001, (1 - self._level) / max(1, self._rate()))

    def spent(self, size_bytes: int) -> None:
        """Bytes of throttled replicas were sent or received."""
        assert size_bytes >= 0
        if self._updated_ms is not None:
            self._level -= size_bytes


def is_throttled(listed: Sequence[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas names this one; `*` names all."""
    return bool(listed) and (ALL in listed or f"{partition}:{broker_id}" in listed)
