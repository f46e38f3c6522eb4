"""Random delays before a voter acts on its own, so that candidates do not start elections at the same time."""

from __future__ import annotations

from penstock.core.raft.events import QuorumTimes, Randomness

NEVER_MS = 2**63 - 1
# How soon a voter without a leader requests pre-votes: long enough for most leaders to make themselves known.
FIRST_PRE_VOTE_MS = (50, 250)
# How soon it does so when the connection to its leader broke.
LEADER_LOST_MS = (100, 300)


class Deadlines:
    """Each method returns a time after `now_ms`."""

    __slots__ = ("_randomness", "_times")

    def __init__(self, times: QuorumTimes, randomness: Randomness) -> None:
        self._times = times
        self._randomness = randomness

    def first_pre_vote(self, now_ms: int) -> int:
        """For a voter that starts and knows of no leader."""
        return now_ms + self._randomness.randrange(*FIRST_PRE_VOTE_MS)

    def leader_lost(self, now_ms: int) -> int:
        """For a voter whose connection to its leader broke."""
        return now_ms + self._randomness.randrange(*LEADER_LOST_MS)

    def election(self, now_ms: int) -> int:
        """For a voter without a leader, whether it is a candidate or waits for others."""
        return now_ms + self._times.election_ms + self._randomness.randrange(0, self._times.election_ms)

    def backoff(self, now_ms: int) -> int:
        """For a candidate that can no longer win."""
        return now_ms + self._randomness.randrange(1, self._times.backoff_max_ms + 1)
