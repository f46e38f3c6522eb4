"""The leader's state of its partition: the in-sync replicas, and how far each replica has come.

The high watermark is the lowest log end offset among the in-sync replicas and never moves back. Consumers see what is
below it; an `acks=all` produce is acknowledged when the high watermark has passed its records. It does not move while
fewer replicas are in sync than `min.insync.replicas` (KIP-966), nor while the controller still has eligible leader
replicas that are not in sync: it might elect one of them, and what it lacks would be lost. A leader with enough in-sync
replicas reports that to the controller, which then clears the others.

A follower is in sync while it has caught up with the leader's log end within `lag_ms_max`. Only the controller changes
the in-sync replicas: the leader proposes, and until the answer arrives it counts conservatively. A replica that it
wants to add already holds the high watermark back, one that it wants to remove still does. So does one that keeps up
and only waits to be added: otherwise a busy leader would stay ahead of it forever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LAG_MS_MAX = 30_000
NO_BROKER_EPOCH = -1


@dataclass(slots=True)
class Follower:
    """What a follower's fetches show in this leader epoch."""

    end_offset: int = -1
    start_offset: int = -1
    fetched_at_ms: int = -1
    # The leader's own end at the time of that fetch: reaching it later means having caught up with that moment.
    leader_end_offset: int = -1
    caught_up_at_ms: int = -1
    broker_epoch: int = NO_BROKER_EPOCH
    # It keeps up and may be added to the in-sync replicas.
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
        "damaged_replicas",
        "eligible_replicas",
        "epoch_start_offset",
        "high_watermark",
        "in_sync_replicas",
        "leader_epoch",
        "leaving_replicas",
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
        leaving_replicas: Iterable[int] = (),
    ) -> None:
        self._local_id = local_id
        self.leader_epoch = leader_epoch
        self.in_sync_replicas = frozenset(in_sync_replicas)
        assert local_id in self.in_sync_replicas, "a leader is always in sync"
        # Replicas that the controller could elect although they are not in sync.
        self.eligible_replicas = frozenset(eligible_replicas)
        # Those that were found damaged, and begin anew once this leader has confirmed that it does without them.
        self.damaged_replicas: frozenset[int] = frozenset()
        # Replicas that a reassignment removes.
        self.leaving_replicas = frozenset(leaving_replicas)
        self.high_watermark = high_watermark
        self._end_offset = log_end_offset
        self._lag_ms_max = lag_ms_max
        self._min_in_sync = min_in_sync
        # The first offset of this leader epoch.
        self.epoch_start_offset = log_end_offset
        # No follower has lagged yet in this epoch, and none has fetched either.
        self._followers = {replica: self._newcomer(replica, now_ms) for replica in replicas if replica != local_id}
        self._proposed: frozenset[int] | None = None
        assert high_watermark <= log_end_offset, "nothing is committed that the leader lacks"
        assert local_id not in self._followers
        assert self._end_offset == self.epoch_start_offset
        self._advance()

    @property
    def leader_id(self) -> int:
        """This broker."""
        return self._local_id

    @property
    def is_sole_replica(self) -> bool:
        """Whether only this replica holds what is acknowledged, or will once the pending proposal is accepted."""
        return len(self.in_sync_replicas) == 1 or (self._proposed is not None and len(self._proposed) == 1)

    @property
    def rivals(self) -> frozenset[int]:
        """The others that the controller could elect."""
        return (self.in_sync_replicas | self.eligible_replicas) - {self._local_id}

    @property
    def has_followers(self) -> bool:
        """Whether any other broker is assigned a replica."""
        return bool(self._followers)

    @property
    def min_in_sync(self) -> int:
        """How many replicas must be in sync to commit: min.insync.replicas, but never more than there are."""
        return min(self._min_in_sync, len(self._followers) + 1)

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether min.insync.replicas is met."""
        return len(self.in_sync_replicas) >= self.min_in_sync

    @property
    def must_confirm(self) -> bool:
        """Whether the controller must learn that this leader does without others that it could still elect."""
        eligible = self.eligible_replicas
        return self.stays_alone or (
            bool(eligible) and (self.has_enough_in_sync or not eligible.isdisjoint(self.damaged_replicas))
        )

    @property
    def stays_alone(self) -> bool:
        """Whether a reassignment waits for this leader to hold everything by itself."""
        return bool(self._followers) and self.leaving_replicas >= self._followers.keys()

    @property
    def acknowledged_offset(self) -> int:
        """An upper bound of what was acknowledged in this log, by this leader or by an earlier one."""
        assert self.epoch_start_offset <= self._end_offset, "a leader truncates nothing"
        assert self.high_watermark <= self._end_offset
        return max(self.high_watermark, self.epoch_start_offset)

    @property
    def low_watermark(self) -> int | None:
        """The lowest log start offset of the in-sync followers; None when there are none."""
        starts = [row.start_offset for replica, row in self._followers.items() if replica in self.in_sync_replicas]
        return min(starts, default=None)

    def follower(self, replica: int) -> Follower | None:
        """The state of one follower; None for a broker without a replica."""
        return self._followers.get(replica)

    def started_again(self, offset: int) -> None:
        """The local log is empty, and starts and ends at an offset that is not before the one where it ended.

        There is nothing before it that a replica could lack.
        """
        assert offset >= self._end_offset
        self._end_offset = self.high_watermark = offset

    def appended(self, log_end_offset: int) -> bool:
        """The local log grew; returns whether the high watermark moved."""
        assert log_end_offset >= self._end_offset
        assert self.high_watermark <= self._end_offset
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

        `is_eligible` is whether the controller would accept this incarnation of the follower.
        """
        follower = self._followers[replica]
        assert replica != self._local_id, "a leader does not fetch from itself"
        if follower.broker_epoch != broker_epoch and follower.broker_epoch != NO_BROKER_EPOCH:
            # It may have lost records since: that its former incarnation had caught up shows nothing.
            follower = self._followers[replica] = self._newcomer(replica, now_ms)
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
        """A follower had everything until now, however long ago it fetched that, and only now falls behind."""
        follower = self._followers.get(replica)
        if follower is not None:
            follower.caught_up_at_ms = max(follower.caught_up_at_ms, now_ms)

    # Proposing changes of the in-sync replicas.

    def may_join(self, replica: int) -> bool:
        """Whether a follower should be proposed now."""
        follower = self._followers.get(replica)
        return (
            follower is not None
            and follower.is_joining
            and self._proposed is None
            and replica not in self.in_sync_replicas
            and follower.end_offset >= self.acknowledged_offset
        )

    def proposal(self, now_ms: int) -> frozenset[int] | None:
        """The in-sync replicas to propose, or None when they are right or a proposal is pending."""
        if self._proposed is not None or not self._followers:
            return None
        wanted = set(self.in_sync_replicas)
        for replica, follower in self._followers.items():
            if replica in wanted:
                if self._lags(follower, now_ms):
                    wanted.discard(replica)
            elif now_ms - follower.fetched_at_ms <= self._lag_ms_max and self.may_join(replica):
                wanted.add(replica)
        assert self._local_id in wanted, "a leader never proposes to leave"
        assert wanted <= {*self.in_sync_replicas, *self._followers}, "only replicas may join"
        if self.stays_alone:
            wanted = {self._local_id}
        return frozenset(wanted) if wanted != self.in_sync_replicas or self.must_confirm else None

    def incarnations(self, replicas: Iterable[int], broker_epoch: int) -> tuple[tuple[int, int], ...]:
        """Replicas with the broker epochs of their last fetches, this broker with its own `broker_epoch`.

        A proposal has them as of when it is made: what a later incarnation of a follower has must show first.
        """
        followers = self._followers
        return tuple(
            (replica, followers[replica].broker_epoch if replica in followers else broker_epoch)
            for replica in sorted(replicas)
        )

    def expire_joining(self, now_ms: int) -> bool:
        """Stop waiting for followers that stopped fetching; returns whether the high watermark moved."""
        expired = False
        for follower in self._followers.values():
            if follower.is_joining and now_ms - follower.caught_up_at_ms > self._lag_ms_max:
                follower.is_joining = False
                expired = True
        return expired and self._advance()

    def admitted(self, replica: int, broker_epoch: int, now_ms: int) -> bool:
        """The controller would accept this follower from now on; returns whether to propose it."""
        follower = self._followers.get(replica)
        if (
            follower is None
            or replica in self.in_sync_replicas
            or follower.broker_epoch != broker_epoch
            or follower.end_offset != self._end_offset
        ):
            # Its next fetch shows how far it is.
            return False
        assert replica != self._local_id
        follower.fetched_at_ms = follower.caught_up_at_ms = now_ms
        follower.is_joining = True
        return self.may_join(replica)

    def excluded(self, replica: int) -> bool:
        """The controller would not accept this follower now; returns whether the high watermark moved."""
        follower = self._followers.get(replica)
        if follower is None or not follower.is_joining:
            return False
        follower.is_joining = False
        return self._advance()

    def propose(self, in_sync_replicas: frozenset[int]) -> None:
        """This proposal has been sent to the controller."""
        assert self._proposed is None
        assert self._local_id in in_sync_replicas
        self._proposed = in_sync_replicas

    def settled(
        self,
        in_sync_replicas: Iterable[int],
        replicas: Iterable[int] | None = None,
        now_ms: int = 0,
        eligible_replicas: Iterable[int] = (),
        leaving_replicas: Iterable[int] = (),
    ) -> bool:
        """The controller has decided on replicas and in-sync replicas; returns whether the high watermark moved."""
        self.in_sync_replicas = frozenset(in_sync_replicas)
        self.eligible_replicas = frozenset(eligible_replicas)
        self.leaving_replicas = frozenset(leaving_replicas)
        assert self._local_id in self.in_sync_replicas, "a leader is always in sync"
        self._proposed = None
        for replica in self.in_sync_replicas:
            if replica in self._followers:
                assert replica != self._local_id
                self._followers[replica].is_joining = False
        assert not any(one.is_joining for replica, one in self._followers.items() if replica in self.in_sync_replicas)
        return self.assigned(replicas, now_ms) if replicas is not None else self._advance()

    def assigned(self, replicas: Iterable[int], now_ms: int) -> bool:
        """Set the assigned replicas; returns whether the high watermark moved.

        A new replica has not fetched yet; a removed one no longer holds anything back.
        """
        kept = self._followers
        self._followers = {
            replica: kept.get(replica) or self._newcomer(replica, now_ms)
            for replica in replicas
            if replica != self._local_id
        }
        return self._advance()

    def refused(self) -> None:
        """The controller rejected the proposal; the in-sync replicas stay as they were."""
        self._proposed = None

    def set_min_in_sync(self, min_in_sync: int) -> bool:
        """Change min.insync.replicas; returns whether the high watermark moved."""
        self._min_in_sync = min_in_sync
        return self._advance()

    def _newcomer(self, replica: int, now_ms: int) -> Follower:
        return Follower(caught_up_at_ms=now_ms if replica in self.in_sync_replicas else -1)

    def _lags(self, follower: Follower, now_ms: int) -> bool:
        return follower.end_offset != self._end_offset and now_ms - follower.caught_up_at_ms > self._lag_ms_max

    def _advance(self) -> bool:
        assert self.high_watermark <= self._end_offset
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
        assert lowest <= self._end_offset
        assert lowest > self.high_watermark, "the high watermark never moves back"
        self.high_watermark = lowest
        return True
