"""When a voter acts of its own accord: by chance within bounds, so that candidates do not stand in step."""

from __future__ import annotations

from penstock.core.raft.events import Chance, QuorumTimes

NEVER_MS = 2**63 - 1
# How soon a voter without a leader sounds the others out: long enough for most leaders to make themselves known.
SOON_MS = (50, 250)
# How soon it does when it had a leader whose connection broke.
LOST_MS = (100, 300)


class Deadlines:
    """Each is a moment after `now_ms`."""

    __slots__ = ("_chance", "_times")

    def __init__(self, times: QuorumTimes, chance: Chance) -> None:
        self._times = times
        self._chance = chance

    def soon(self, now_ms: int) -> int:
        """For a voter that starts and knows of no leader."""
        return now_ms + self._chance.randrange(*SOON_MS)

    def lost(self, now_ms: int) -> int:
        """For a voter whose connection to its leader broke."""
        return now_ms + self._chance.randrange(*LOST_MS)

    def election(self, now_ms: int) -> int:
        """For a voter without a leader, whether it stands or waits for others."""
        return now_ms + self._times.election_ms + self._chance.randrange(0, self._times.election_ms)

    def backoff(self, now_ms: int) -> int:
        """For a candidate that cannot win any more."""
        return now_ms + self._chance.randrange(1, self._times.backoff_max_ms + 1)
