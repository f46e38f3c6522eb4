"""What a leader knows about its followers: how far each has replicated, and when it last fetched."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.raft.voters import VoterSet
from penstock.model.ids import Uuid

# An observer that has not fetched for this long is forgotten.
OBSERVER_MS_MAX = 300_000
OBSERVERS_MAX = 10_000
UNKNOWN = -1


@dataclass(slots=True)
class ReplicaProgress:
    """What one replica's fetches show. `end_offset` is -1 until it fetches in this epoch."""

    replica_id: int
    directory_id: Uuid
    end_offset: int = UNKNOWN
    fetched_at_ms: int = UNKNOWN
    caught_up_at_ms: int = UNKNOWN
    leader_end_offset: int = UNKNOWN

    def fetched(self, end_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """It has everything before `end_offset`."""
        assert 0 <= end_offset <= leader_end_offset, "a replica has no more than its leader"
        if end_offset >= leader_end_offset:
            self.caught_up_at_ms = now_ms
        elif self.leader_end_offset >= 0 and end_offset >= self.leader_end_offset:
            self.caught_up_at_ms = max(self.caught_up_at_ms, self.fetched_at_ms)
        self.end_offset = end_offset
        self.fetched_at_ms = now_ms
        self.leader_end_offset = leader_end_offset


class Progress:
    """Voters' log ends: the followers' from their fetches, the leader's own from its disk."""

    __slots__ = ("_contacted_at", "_local", "_voters", "epoch_start", "observers", "replicas")

    def __init__(self, local_id: int, directory_id: Uuid, voters: VoterSet, epoch_start: int, now_ms: int) -> None:
        """`epoch_start` is the offset of this leader's first entry."""
        self.epoch_start = epoch_start
        self._local = ReplicaProgress(local_id, directory_id)
        self._voters = voters
        # Followers that have not fetched in this epoch have acknowledged nothing.
        self.replicas: dict[int, ReplicaProgress] = {}
        self.observers: dict[tuple[int, Uuid], ReplicaProgress] = {}
        self._contacted_at: dict[int, int] = {}
        self.set_voters(voters, now_ms)

    def set_voters(self, voters: VoterSet, now_ms: int) -> None:
        """The set of voters changed; a new voter keeps the progress it made as an observer."""
        self._voters = voters
        old, self.replicas = self.replicas, {}
        for voter in voters.voters:
            voter_id = voter.voter_id
            if voter_id == self._local.replica_id and voters.holds(voter_id, self._local.directory_id):
                self.replicas[voter_id] = self._local
                continue
            known = old.pop(voter_id, None) or self.observers.pop((voter_id, voter.directory_id), None)
            self.replicas[voter_id] = known or ReplicaProgress(voter_id, voter.directory_id)
            self._contacted_at.setdefault(voter_id, now_ms)
        for replica in old.values():
            if replica is not self._local:
                self.observers[replica.replica_id, replica.directory_id] = replica
        self._contacted_at = {voter: at for voter, at in self._contacted_at.items() if voter in self.replicas}
        assert self.replicas.keys() == set(voters.ids)
        assert self._contacted_at.keys() <= self.replicas.keys()
        assert all(voter_id == one.replica_id for voter_id, one in self.replicas.items())
        assert len({id(one) for one in self.replicas.values()}) == len(voters), "each voter counts once"

    def synced(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """The leader's own log is on disk up to here."""
        assert offset <= leader_end_offset, "more is on disk than in the log"
        self._local.fetched(max(offset, self._local.end_offset), leader_end_offset, now_ms)

    def fetched(self, replica_id: int, directory_id: Uuid, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """A replica has everything before `offset`; only voters count."""
        self.replica(replica_id, directory_id, now_ms).fetched(offset, leader_end_offset, now_ms)
        self.contacted(replica_id, directory_id, now_ms)

    def contacted(self, replica_id: int, directory_id: Uuid, now_ms: int) -> None:
        """A replica is alive."""
        if replica_id in self._contacted_at and self._voters.holds(replica_id, directory_id):
            self._contacted_at[replica_id] = now_ms

    def replica(self, replica_id: int, directory_id: Uuid, now_ms: int) -> ReplicaProgress:
        """The progress of a voter or an observer."""
        if self._voters.holds(replica_id, directory_id):
            found = self.replicas[replica_id]
            assert found.replica_id == replica_id
            found.directory_id = directory_id
            return found
        key = (replica_id, directory_id)
        if key not in self.observers:
            self._forget_observers(now_ms)
            assert len(self.observers) < OBSERVERS_MAX
            self.observers[key] = ReplicaProgress(replica_id, directory_id)
        return self.observers[key]

    def _forget_observers(self, now_ms: int) -> None:
        for key, observer in list(self.observers.items()):
            if now_ms - observer.fetched_at_ms > OBSERVER_MS_MAX or len(self.observers) >= OBSERVERS_MAX:
                del self.observers[key]

    def live_observers(self, now_ms: int) -> list[ReplicaProgress]:
        """The observers that fetched recently."""
        return [one for one in self.observers.values() if now_ms - one.fetched_at_ms <= OBSERVER_MS_MAX]

    def silent_voters(self, now_ms: int, silence_ms: int) -> list[int]:
        """The other voters that have not fetched in this epoch, or not for this long."""
        return [
            voter
            for voter, contacted_at in self._contacted_at.items()
            if self.replicas[voter].end_offset < 0 or now_ms - contacted_at >= silence_ms
        ]

    def majority_end(self) -> int:
        """The offset before which a majority of voters has everything."""
        ends = sorted((replica.end_offset for replica in self.replicas.values()), reverse=True)
        assert all(end >= UNKNOWN for end in ends)
        return ends[len(ends) // 2] if ends else UNKNOWN

    def committed_end(self) -> int:
        """The offset before which everything is committed, as far as this epoch's entries show; -1 before that.

        Entries of earlier epochs count only once one of this epoch does.
        """
        end = self.majority_end()
        return end if end > self.epoch_start else UNKNOWN

    def majority_contacted_at(self, now_ms: int) -> int:
        """The time since which a majority has been in contact, including the leader itself if it is a voter."""
        times = sorted((self._contacted_at.get(voter, now_ms) for voter in self.replicas), reverse=True)
        assert len(times) == len(self._voters), "each voter counts once"
        return times[len(times) // 2] if times else now_ms

    def successors(self) -> tuple[int, ...]:
        """The other voters, the one with the longest log first."""
        others = [replica for replica in self.replicas.values() if replica is not self._local]
        assert len(others) >= len(self.replicas) - 1
        return tuple(one.replica_id for one in sorted(others, key=lambda one: (-one.end_offset, one.replica_id)))
