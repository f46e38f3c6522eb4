"""The leader's view of its partition: who is in sync, and how far everybody in sync has come.

The high watermark is the lowest log end among the in-sync replicas and never moves back. Consumers see what is below
it; an `acks=all` produce is acknowledged when the high watermark has passed its records.
"""

from __future__ import annotations

from collections.abc import Iterable


class LeaderState:
    """Progress of the in-sync replicas of one partition in one leader epoch."""

    __slots__ = ("_ends", "_local_id", "high_watermark", "in_sync_replicas", "leader_epoch")

    def __init__(
        self,
        local_id: int,
        leader_epoch: int,
        in_sync_replicas: Iterable[int],
        log_end_offset: int,
        high_watermark: int,
    ) -> None:
        self._local_id = local_id
        self.leader_epoch = leader_epoch
        self.in_sync_replicas = frozenset(in_sync_replicas)
        assert local_id in self.in_sync_replicas, "a leader is in sync with itself"
        self.high_watermark = high_watermark
        # Followers have shown nothing yet in this epoch.
        self._ends = dict.fromkeys(self.in_sync_replicas, -1)
        self._ends[local_id] = log_end_offset
        self._advance()

    @property
    def is_sole_replica(self) -> bool:
        """Whether this replica alone holds what is acknowledged."""
        return len(self.in_sync_replicas) == 1

    def appended(self, log_end_offset: int) -> bool:
        """The local log grew; returns whether the high watermark moved."""
        self._ends[self._local_id] = log_end_offset
        if len(self._ends) == 1:
            assert log_end_offset >= self.high_watermark
            self.high_watermark = log_end_offset
            return True
        return self._advance()

    def _advance(self) -> bool:
        lowest = min(self._ends.values())
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True
