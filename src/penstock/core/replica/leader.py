"""The leader's view of its partition: who is in sync, and how far everybody in sync has come.

The high watermark is the lowest log end among the in-sync replicas and never moves back. Consumers see what is below
it; an `acks=all` produce is acknowledged when the high watermark has passed its records. It stands still while fewer
replicas are in sync than `min.insync.replicas` asks for (KIP-966): what few hold is not committed. So it does while the
controller keeps replicas eligible that are not in sync: it might elect one of them, and what they lack would be lost.
A leader with enough in-sync replicas says so to the controller, which then forgets the others.

A follower is in sync while it has caught up with the leader's log end within `lag_ms_max`. Only the controller changes
the set of in-sync replicas: the leader proposes, and until the answer is there it counts cautiously. A replica it wants
to add must already hold the high watermark back, one it wants to drop still does. So does one that keeps pace and only
waits to be added: otherwise a busy leader would be ahead of it for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LAG_MS_MAX = 30_000
NO_BROKER_EPOCH = -1


@dataclass(slots=True)
class Follower:
    """What a follower's fetches have told in this leader epoch."""

    end_offset: int = -1
    start_offset: int = -1
    fetched_at_ms: int = -1
    # The leader's own end when that fetch came: reaching it later means having caught up with that moment.
    leader_end_offset: int = -1
    caught_up_at_ms: int = -1
    broker_epoch: int = NO_BROKER_EPOCH
    # It keeps pace and may be added to the in-sync replicas.
    is_joining: bool = False


class LeaderState:
    """Progress of the replicas of one partition in one leader epoch."""

    __slots__ = (
        "_end_offset",
        "_followers",
        "_lag_ms_max",
        "_local_id",
        "_min_in_sync",
        "_proposed",
        "eligible_replicas",
        "epoch_start_offset",
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
        *,
        lag_ms_max: int = LAG_MS_MAX,
        min_in_sync: int = 1,
        eligible_replicas: Iterable[int] = (),
    ) -> None:
        self._local_id = local_id
        self.leader_epoch = leader_epoch
        self.in_sync_replicas = frozenset(in_sync_replicas)
        assert local_id in self.in_sync_replicas, "a leader is in sync with itself"
        # Whom the controller would elect although they are not in sync.
        self.eligible_replicas = frozenset(eligible_replicas)
        self.high_watermark = high_watermark
        self._end_offset = log_end_offset
        self._lag_ms_max = lag_ms_max
        self._min_in_sync = min_in_sync
        # Where this leader's own records begin.
        self.epoch_start_offset = log_end_offset
        # Nobody has lagged yet in this epoch, and nobody has shown anything either.
        self._followers = {replica: self._newcomer(replica, now_ms) for replica in replicas if replica != local_id}
        self._proposed: frozenset[int] | None = None
        self._advance()

    @property
    def leader_id(self) -> int:
        """This broker."""
        return self._local_id

    @property
    def is_sole_replica(self) -> bool:
        """Whether this replica alone holds what is acknowledged, or may do so by the controller's next word."""
        return len(self.in_sync_replicas) == 1 or (self._proposed is not None and len(self._proposed) == 1)

    @property
    def has_followers(self) -> bool:
        """Whether any other broker is to hold a replica."""
        return bool(self._followers)

    @property
    def min_in_sync(self) -> int:
        """How many replicas must be in sync for anything to be committed; never more than there are."""
        return min(self._min_in_sync, len(self._followers) + 1)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether min.insync.replicas is met."""
        return len(self.in_sync_replicas) >= self.min_in_sync

    @property
    def must_confirm(self) -> bool:
        """Whether the controller is to hear that this leader goes on without the replicas that are still eligible."""
        return bool(self.eligible_replicas) and self.has_enough_in_sync

    @property
    def acknowledged_offset(self) -> int:
        """Where this log ends, at most, with what was acknowledged, by this leader or by one before it."""
        return max(self.high_watermark, self.epoch_start_offset)

    @property
    def low_watermark(self) -> int | None:
        """The lowest log start that in-sync followers have told; None when there are none."""
        told = [row.start_offset for replica, row in self._followers.items() if replica in self.in_sync_replicas]
        return min(told, default=None)

    def follower(self, replica: int) -> Follower | None:
        """What is known of one follower; None for a broker that holds no replica."""
        return self._followers.get(replica)

    def appended(self, log_end_offset: int) -> bool:
        """The local log grew; returns whether the high watermark moved."""
        self._end_offset = log_end_offset
        if not self._followers:
            assert log_end_offset >= self.high_watermark
            self.high_watermark = log_end_offset
            return True
        return self._advance()

    def fetched(
        self,
        replica: int,
        offset: int,
        now_ms: int,
        *,
        broker_epoch: int = NO_BROKER_EPOCH,
        start_offset: int = -1,
        is_eligible: bool = True,
    ) -> bool:
        """A follower has everything before `offset`; returns whether the high watermark moved.

        `is_eligible` says whether the controller would let that incarnation of the follower join.
        """
        follower = self._followers[replica]
        if offset >= self._end_offset:
            follower.caught_up_at_ms = now_ms
        elif follower.fetched_at_ms >= 0 and offset >= follower.leader_end_offset:
            follower.caught_up_at_ms = max(follower.caught_up_at_ms, follower.fetched_at_ms)
        follower.end_offset = offset
        follower.start_offset = start_offset
        follower.fetched_at_ms = now_ms
        follower.leader_end_offset = self._end_offset
        follower.broker_epoch = broker_epoch
        follower.is_joining = (
            is_eligible
            and replica not in self.in_sync_replicas
            and follower.caught_up_at_ms >= 0
            and now_ms - follower.caught_up_at_ms <= self._lag_ms_max
        )
        return self._advance()

    def was_caught_up(self, replica: int, now_ms: int) -> None:
        """A follower that had everything has fallen behind only now, however long ago it fetched that."""
        follower = self._followers.get(replica)
        if follower is not None:
            follower.caught_up_at_ms = max(follower.caught_up_at_ms, now_ms)

    # Proposing a change of the in-sync replicas.

    def may_join(self, replica: int) -> bool:
        """Whether a follower is worth proposing now."""
        follower = self._followers.get(replica)
        return (
            follower is not None
            and follower.is_joining
            and self._proposed is None
            and replica not in self.in_sync_replicas
            and follower.end_offset >= self.acknowledged_offset
        )

    def proposal(self, now_ms: int) -> frozenset[int] | None:
        """The in-sync replicas that should be, or None when they are right or a proposal is under way."""
        if self._proposed is not None or not self._followers:
            return None
        wanted = set(self.in_sync_replicas)
        for replica, follower in self._followers.items():
            if replica in wanted:
                if self._lags(follower, now_ms):
                    wanted.discard(replica)
            elif now_ms - follower.fetched_at_ms <= self._lag_ms_max and self.may_join(replica):
                wanted.add(replica)
        return frozenset(wanted) if wanted != self.in_sync_replicas or self.must_confirm else None

    def expire_joining(self, now_ms: int) -> bool:
        """Wait no longer for followers that stopped fetching; returns whether the high watermark moved."""
        expired = False
        for follower in self._followers.values():
            if follower.is_joining and now_ms - follower.caught_up_at_ms > self._lag_ms_max:
                follower.is_joining = False
                expired = True
        return expired and self._advance()

    def admitted(self, replica: int, broker_epoch: int, now_ms: int) -> bool:
        """The controller would let this follower join from now on; returns whether it is worth proposing."""
        follower = self._followers.get(replica)
        if (
            follower is None
            or replica in self.in_sync_replicas
            or follower.broker_epoch != broker_epoch
            or follower.end_offset != self._end_offset
        ):
            # What it fetches next tells how far it is.
            return False
        follower.fetched_at_ms = follower.caught_up_at_ms = now_ms
        follower.is_joining = True
        return self.may_join(replica)

    def excluded(self, replica: int) -> bool:
        """The controller would not let this follower join now; returns whether the high watermark moved."""
        follower = self._followers.get(replica)
        if follower is None or not follower.is_joining:
            return False
        follower.is_joining = False
        return self._advance()

    def propose(self, in_sync_replicas: frozenset[int]) -> None:
        """This proposal is on its way to the controller."""
        assert self._proposed is None
        assert self._local_id in in_sync_replicas
        self._proposed = in_sync_replicas

    def settled(
        self,
        in_sync_replicas: Iterable[int],
        replicas: Iterable[int] | None = None,
        now_ms: int = 0,
        eligible_replicas: Iterable[int] = (),
    ) -> bool:
        """The controller's word on who is in sync and who holds replicas; returns whether the high watermark moved."""
        self.in_sync_replicas = frozenset(in_sync_replicas)
        self.eligible_replicas = frozenset(eligible_replicas)
        assert self._local_id in self.in_sync_replicas, "a leader is in sync with itself"
        self._proposed = None
        for replica in self.in_sync_replicas:
            if replica in self._followers:
                self._followers[replica].is_joining = False
        return self.assigned(replicas, now_ms) if replicas is not None else self._advance()

    def assigned(self, replicas: Iterable[int], now_ms: int) -> bool:
        """Who holds replicas; returns whether the high watermark moved.

        A replica that is new here has shown nothing yet; one that is gone holds nothing back any more.
        """
        kept = self._followers
        self._followers = {
            replica: kept.get(replica) or self._newcomer(replica, now_ms)
            for replica in replicas
            if replica != self._local_id
        }
        return self._advance()

    def refused(self) -> None:
        """The controller did not take the proposal; what was in sync still is."""
        self._proposed = None

    def require(self, min_in_sync: int) -> bool:
        """Take another min.insync.replicas; returns whether the high watermark moved."""
        self._min_in_sync = min_in_sync
        return self._advance()

    def _newcomer(self, replica: int, now_ms: int) -> Follower:
        return Follower(caught_up_at_ms=now_ms if replica in self.in_sync_replicas else -1)

    def _lags(self, follower: Follower, now_ms: int) -> bool:
        return follower.end_offset != self._end_offset and now_ms - follower.caught_up_at_ms > self._lag_ms_max

    def _advance(self) -> bool:
        in_sync = self.in_sync_replicas
        if self.eligible_replicas or (len(in_sync) < self._min_in_sync and len(in_sync) < self.min_in_sync):
            return False
        lowest = self._end_offset
        proposed = self._proposed
        for replica, follower in self._followers.items():
            if follower.end_offset < lowest and (
                replica in in_sync or follower.is_joining or (proposed is not None and replica in proposed)
            ):
                lowest = follower.end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True
