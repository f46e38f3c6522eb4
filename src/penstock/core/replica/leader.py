"""The leader's view of its partition: who is in sync, and how far everybody in sync has come.

The high watermark is the lowest log end among the in-sync replicas and never moves back. Consumers see what is below
it; an `acks=all` produce is acknowledged when the high watermark has passed its records.

A follower is in sync while it has caught up with the leader's log end within `lag_ms_max`. Only the controller changes
the set of in-sync replicas: the leader proposes, and until the answer is there it counts cautiously. A replica it wants
to add must already hold the high watermark back, one it wants to drop still does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Follower:
    """What a follower's fetches have told in this leader epoch."""

    end_offset: int = -1
    fetched_at_ms: int = -1
    # The leader's own end when that fetch came: reaching it later means having caught up with that moment.
    leader_end_offset: int = -1
    caught_up_at_ms: int = -1


class LeaderState:
    """Progress of the replicas of one partition in one leader epoch."""

    __slots__ = (
        "_end_offset",
        "_epoch_start_offset",
        "_followers",
        "_local_id",
        "_proposed",
        "high_watermark",
        "in_sync_replicas",
        "leader_epoch",
    )

    def __init__(
        self,
        local_id: int,
        leader_epoch: int,
        replicas: Iterable[int],
        in_sync_replicas: Iterable[int],
        log_end_offset: int,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        self._local_id = local_id
        self.leader_epoch = leader_epoch
        self.in_sync_replicas = frozenset(in_sync_replicas)
        assert local_id in self.in_sync_replicas, "a leader is in sync with itself"
        self.high_watermark = high_watermark
        self._end_offset = log_end_offset
        self._epoch_start_offset = log_end_offset
        # Nobody has lagged yet in this epoch, and nobody has shown anything either.
        self._followers = {
            replica: Follower(caught_up_at_ms=now_ms if replica in self.in_sync_replicas else -1)
            for replica in replicas
            if replica != local_id
        }
        self._proposed: frozenset[int] | None = None
        self._advance()

    @property
    def is_sole_replica(self) -> bool:
        """Whether this replica alone holds what is acknowledged."""
        return len(self.in_sync_replicas) == 1

    def appended(self, log_end_offset: int) -> bool:
        """The local log grew; returns whether the high watermark moved."""
        self._end_offset = log_end_offset
        if not self._followers:
            assert log_end_offset >= self.high_watermark
            self.high_watermark = log_end_offset
            return True
        return self._advance()

    def fetched(self, replica: int, offset: int, now_ms: int) -> bool:
        """A follower has everything before `offset`; returns whether the high watermark moved."""
        follower = self._followers[replica]
        if offset >= self._end_offset:
            follower.caught_up_at_ms = now_ms
        elif follower.fetched_at_ms >= 0 and offset >= follower.leader_end_offset:
            follower.caught_up_at_ms = max(follower.caught_up_at_ms, follower.fetched_at_ms)
        follower.end_offset = offset
        follower.fetched_at_ms = now_ms
        follower.leader_end_offset = self._end_offset
        return self._advance()

    # Proposing a change of the in-sync replicas.

    def proposal(self, now_ms: int, lag_ms_max: int) -> frozenset[int] | None:
        """The in-sync replicas that should be, or None when they are right or a proposal is under way."""
        if self._proposed is not None or not self._followers:
            return None
        wanted = set(self.in_sync_replicas)
        for replica, follower in self._followers.items():
            if replica in wanted:
                if self._lags(follower, now_ms, lag_ms_max):
                    wanted.discard(replica)
            elif self._has_caught_up(follower, now_ms, lag_ms_max):
                wanted.add(replica)
        return frozenset(wanted) if wanted != self.in_sync_replicas else None

    def propose(self, in_sync_replicas: frozenset[int]) -> None:
        """This proposal is on its way to the controller."""
        assert self._proposed is None
        assert self._local_id in in_sync_replicas
        self._proposed = in_sync_replicas

    def settled(self, in_sync_replicas: Iterable[int]) -> bool:
        """The controller's word on who is in sync; returns whether the high watermark moved."""
        self.in_sync_replicas = frozenset(in_sync_replicas)
        assert self._local_id in self.in_sync_replicas, "a leader is in sync with itself"
        self._proposed = None
        return self._advance()

    def refused(self) -> None:
        """The controller did not take the proposal; what was in sync still is."""
        self._proposed = None

    def _lags(self, follower: Follower, now_ms: int, lag_ms_max: int) -> bool:
        return follower.end_offset != self._end_offset and now_ms - follower.caught_up_at_ms > lag_ms_max

    def _has_caught_up(self, follower: Follower, now_ms: int, lag_ms_max: int) -> bool:
        """It has all that is committed, and all from before this leader's time that it must agree on."""
        return (
            follower.fetched_at_ms >= 0
            and now_ms - follower.fetched_at_ms <= lag_ms_max
            and follower.end_offset >= max(self.high_watermark, self._epoch_start_offset)
        )

    def _advance(self) -> bool:
        lowest = self._end_offset
        counted = self.in_sync_replicas | self._proposed if self._proposed else self.in_sync_replicas
        for replica, follower in self._followers.items():
            if replica in counted:
                lowest = min(lowest, follower.end_offset)
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True
