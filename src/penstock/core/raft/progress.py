"""A leader's book about its followers: how far each has come, and when it was last heard of."""

from __future__ import annotations

from collections.abc import Iterable


class Progress:
    """Voters' log ends as their fetches tell, the leader's own as its disk tells."""

    __slots__ = ("_ends", "_heard_at", "_local_id", "voters")

    def __init__(self, local_id: int, voters: Iterable[int], now_ms: int) -> None:
        self._local_id = local_id
        self.voters = frozenset(voters)
        # Followers that were never heard of in this epoch have acknowledged nothing.
        self._ends: dict[int, int] = {}
        self._heard_at = dict.fromkeys(self.voters - {local_id}, now_ms)

    def synced(self, offset: int) -> None:
        """The leader's own log is on disk up to here."""
        self._ends[self._local_id] = max(offset, self._ends.get(self._local_id, 0))

    def fetched(self, replica_id: int, offset: int, now_ms: int) -> None:
        """A replica has everything before `offset`; only voters count."""
        if replica_id in self._heard_at:
            self._ends[replica_id] = offset
            self._heard_at[replica_id] = now_ms

    def silent_voters(self) -> frozenset[int]:
        """The voters that have not fetched in this epoch."""
        return frozenset(voter for voter in self._heard_at if voter not in self._ends)

    def majority_end(self) -> int:
        """The offset before which a majority of voters has everything."""
        ends = sorted((self._ends.get(voter, -1) for voter in self.voters), reverse=True)
        return ends[len(ends) // 2] if ends else -1

    def majority_heard_at(self, now_ms: int) -> int:
        """Since when a majority has been heard of, the leader itself included."""
        times = sorted([now_ms, *self._heard_at.values()], reverse=True)
        return times[len(times) // 2]

    def successors(self) -> tuple[int, ...]:
        """The other voters, the one with the longest log first."""
        others = self.voters - {self._local_id}
        return tuple(sorted(others, key=lambda voter: (-self._ends.get(voter, -1), voter)))
