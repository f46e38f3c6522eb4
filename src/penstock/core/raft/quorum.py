"""The quorum's state machine: who leads the metadata log, in which epoch, and how far it is committed.

Theory of operation. `step(event, now_ms)` changes the state and returns `Effects`. The driver carries them out in one
order only: `persist` reaches the disk, then `truncate_to` and `append` change the log, then `reply` and `send` leave,
then `committed` is applied. No other event is stepped meanwhile. The driver calls `step(Tick())` when `deadline_ms` has
passed.

An entry that is not on disk does not count. A leader counts itself up to `LogView.synced_offset`. A fetch acknowledges
everything before its offset, so none is sent, for any reason, while a part of the log is not on disk: `sync` has the
driver sync it first. A voter whose disk stalls for longer than its timeouts therefore loses contact with the leader.

    unattached ──timeout──▶ prospective ──majority would vote──▶ candidate ──majority votes──▶ leader
        ▲                        │ ▲                                  │                          │
        │                        │ └──────────── timeout ─────────────┘        no contact with a majority,
        │                        ▼                                             or stopping
        └──── higher epoch ──── follower ◀── learns of a leader                      ▼
                                                                                  resigned

A prospective candidate (KIP-996) requests pre-votes before it disturbs others with a new epoch; a voter with a
leader that it is in contact with does not grant one. A leader that a majority has not fetched from for a while resigns,
so that two sides of a network partition don't both have a leader for long. A new leader first starts its epoch with a
LeaderChange entry, and counts nothing as committed before that entry is.

A voter whose connection to the leader broke does not wait for its fetch timeout: it requests pre-votes after a moment,
which disturbs no node as long as a majority is still in contact with the leader. If it does not get them it goes back
to fetching, so whichever of leader and voter was wrong about the other finds out.
"""

from __future__ import annotations

from operator import attrgetter

from penstock.core.raft.deadlines import NEVER_MS, Deadlines
from penstock.core.raft.divergence import common_end, find_divergence
from penstock.core.raft.events import (
    Contradiction,
    Effects,
    Election,
    EntriesAppended,
    Event,
    FetchNext,
    LeaderChange,
    LogView,
    QuorumTimes,
    Randomness,
    Received,
    RequestFailed,
    Role,
    Started,
    Stopping,
    Synced,
    Tick,
    VotersChanged,
)
from penstock.core.raft.messages import (
    NO_NODE,
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    FetchRequest,
    FetchResponse,
    Message,
    SnapshotRequest,
    SnapshotResponse,
    SyncedEnd,
    VoteRequest,
    VoteResponse,
)
from penstock.core.raft.progress import Progress
from penstock.core.raft.voters import VoterSet
from penstock.core.raft.votes import are_voters, may_vote
from penstock.model.ids import ZERO_UUID, Uuid

# The state that a step may change. Votes are never mutated; nor is progress in a step with something to persist.
STATE = ("voters", "election", "role", "high_watermark", "deadline_ms", "progress", "_votes", "_leader_contacted_at")
_state = attrgetter(*STATE)


class Quorum:
    """The quorum as one voter or observer sees it."""

    def __init__(
        self,
        node_id: int,
        voters: VoterSet,
        election: Election,
        log: LogView,
        times: QuorumTimes,
        randomness: Randomness,
        directory_id: Uuid = ZERO_UUID,
        bootstrap_ids: tuple[int, ...] = (),
    ) -> None:
        self.node_id = node_id
        self.directory_id = directory_id
        self.voters = voters
        self.election = election
        self.role = Role.UNATTACHED
        # A snapshot only holds what was committed.
        self.high_watermark = log.snapshot().offset
        self.deadline_ms = NEVER_MS
        self._log = log
        self._times = times
        self._randomness = randomness
        self._deadlines = Deadlines(times, randomness)
        # Bootstrap servers that an observer may query for the leader, besides the voters it knows of.
        self._bootstrap_ids = bootstrap_ids
        self._votes: dict[int, bool] = {}
        # A leader's view of its followers.
        self.progress: Progress | None = None
        self._leader_contacted_at = -NEVER_MS

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self.election.epoch

    @property
    def leader_id(self) -> int:
        """The leader, as far as this node knows."""
        return self.election.leader_id

    @property
    def is_voter(self) -> bool:
        """Whether this node is a voter."""
        return self.voters.holds(self.node_id, self.directory_id)

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""
        return self.role is Role.LEADER

    def is_in_contact(self, within_ms: int, now_ms: int) -> bool:
        """Whether this node leads and a majority of the voters has been in contact of late."""
        return self.progress is not None and now_ms - self.progress.majority_contacted_at(now_ms) < within_ms

    @property
    def is_established(self) -> bool:
        """Whether this node leads and its epoch's first entry is committed."""
        progress = self.progress
        return self.is_leader and progress is not None and self.high_watermark > progress.epoch_start

    def save(self) -> tuple[object, ...]:
        """The current state, for `restore`."""
        return _state(self)

    def restore(self, saved: tuple[object, ...]) -> None:
        """Return to the state before a step until its `persist` is durable, and then to the state after it.

        If it cannot be made durable it is as if the event had been lost.
        """
        for name, value in zip(STATE, saved, strict=True):
            setattr(self, name, value)

    def step(self, event: Event, now_ms: int) -> Effects:
        """Handle one event; returns what the driver must do."""
        effects = Effects()
        before = self.election
        committed_before = self.high_watermark
        match event:
            case Started():
                self._start(effects, now_ms)
            case Tick():
                if now_ms >= self.deadline_ms:
                    self._timed_out(effects, now_ms)
            case Received(sender_id, message):
                self._received(sender_id, message, effects, now_ms)
            case RequestFailed(peer_id, message):
                self._unanswered(peer_id, message, effects, now_ms)
            case EntriesAppended(high_watermark):
                if self.role is Role.FOLLOWER:
                    self._raise_high_watermark(min(high_watermark, self._log.end().offset), effects)
            case FetchNext():
                if self.role is Role.FOLLOWER:
                    self._fetch(self.leader_id, effects)
            case Synced():
                self._synced(effects, now_ms)
            case VotersChanged(voters):
                self._change_voters(voters, effects, now_ms)
            case Stopping(for_good):
                self._stop(effects, now_ms, for_good=for_good)
        if self.election != before:
            effects.persist = self.election
        assert self.high_watermark >= committed_before, "what is committed stays so"
        self._check_election(before)
        self._check_effects(effects)
        return effects

    def _check_election(self, before: Election) -> None:
        """What holds after every step, whatever peers claim."""
        now, role = self.election, self.role
        assert now.epoch >= before.epoch, "an epoch never decreases"
        if now.epoch == before.epoch:
            assert before.voted_id in (NO_NODE, now.voted_id), "a vote counts for its whole epoch"
            assert now.leader_id == NO_NODE or before.leader_id in (NO_NODE, now.leader_id), "an epoch has one leader"
        assert self.progress is None or role in (Role.LEADER, Role.RESIGNED), "only a leader follows others' progress"
        if role is Role.LEADER:
            assert self.progress is not None
            assert now.leader_id == self.node_id
            assert now.voted_id == self.node_id, "a leader has voted for itself"
        elif role is Role.FOLLOWER:
            assert now.leader_id not in (NO_NODE, self.node_id), "a follower knows another node as leader"
        elif role is Role.CANDIDATE:
            assert now.leader_id == NO_NODE, "no vote is requested where a leader is known"
            assert now.voted_id == self.node_id, "a candidate has voted for itself"
            assert now.voted_directory_id == self.directory_id
        elif role is Role.RESIGNED:
            assert self.deadline_ms == NEVER_MS, "a node that stops does nothing on its own"
        if role in (Role.PROSPECTIVE, Role.CANDIDATE):
            assert self.is_voter, "only voters may win an election"
            assert self._votes[self.node_id], "a candidate counts itself"

    def _check_effects(self, effects: Effects) -> None:
        """The effects of one step, of which at most one changes the log."""
        changes = (effects.truncate_to is not None, effects.take_entries, effects.fetch_snapshot is not None)
        assert sum(changes) <= 1, "a response is entries, a divergence or a snapshot"
        if any(changes):
            assert self.role is Role.FOLLOWER, "only a leader's response changes the log"
            assert effects.append is None
        if effects.append is not None:
            assert self.role is Role.LEADER
            assert effects.append.epoch == self.epoch
            assert effects.persist is not None, "an epoch is on disk before its first entry"
        assert effects.truncate_to is None or effects.truncate_to >= self.high_watermark
        assert effects.committed in (None, self.high_watermark)
        if effects.persist is not None:
            assert effects.persist == self.election

    def _start(self, effects: Effects, now_ms: int) -> None:
        assert self._log.end().epoch <= self.epoch, "the log has a newer epoch than quorum-state"
        if self.voters.ids == (self.node_id,) and self.is_voter:
            self._become_candidate(effects, now_ms)
        elif self.leader_id not in (NO_NODE, self.node_id):
            self._follow(self.epoch, self.leader_id, effects, now_ms)
        else:
            # A leader that crashed does not lead again: another one may have been elected meanwhile.
            self._detach(self.epoch, now_ms)
            self.deadline_ms = self._deadlines.first_pre_vote(now_ms)

    def _change_voters(self, voters: VoterSet, effects: Effects, now_ms: int) -> None:
        self.voters = voters
        if self.progress is not None:
            self.progress.set_voters(voters, now_ms)
            self._commit(effects)
        elif self.role in (Role.PROSPECTIVE, Role.CANDIDATE) and not self.is_voter:
            self.role = Role.UNATTACHED

    def _stop(self, effects: Effects, now_ms: int, *, for_good: bool) -> None:
        if self.role is Role.LEADER and self.progress is not None:
            successors = self.progress.successors()
            resignation = EndEpochRequest(self.epoch, self.node_id, successors)
            effects.send = tuple((voter, resignation) for voter in successors)
        if for_good:
            self.role = Role.RESIGNED
            self.deadline_ms = NEVER_MS
        elif self.role is Role.LEADER:
            self._detach(self.epoch, now_ms)

    def _timed_out(self, effects: Effects, now_ms: int) -> None:
        match self.role:
            case Role.LEADER:
                self._check_quorum(effects, now_ms)
            case _ if self.is_voter:
                self._start_pre_vote(effects, now_ms)
            case _:
                # An observer queries any voter for the leader.
                self._find_leader(effects, now_ms)

    def _check_quorum(self, effects: Effects, now_ms: int) -> None:
        """A leader announces itself to silent voters, and resigns when it has lost contact with a majority."""
        assert self.progress is not None
        assert self.role is Role.LEADER
        if now_ms - self.progress.majority_contacted_at(now_ms) >= self._times.check_quorum_ms:
            self._detach(self.epoch, now_ms)
            return
        announcement = BeginEpochRequest(self.epoch, self.node_id)
        silent = self.progress.silent_voters(now_ms, self._times.fetch_ms // 2)
        effects.send = tuple((voter, announcement) for voter in silent)
        self.deadline_ms = now_ms + max(1, self._times.fetch_ms // 4)

    def _find_leader(self, effects: Effects, now_ms: int) -> None:
        others = [voter for voter in (*self.voters.ids, *self._bootstrap_ids) if voter != self.node_id]
        assert not self.is_voter, "a voter finds the leader by an election"
        if others:
            target = others[self._randomness.randrange(0, len(others))]
            self._fetch(target, effects)
        self.deadline_ms = self._next_search(now_ms)

    def _next_search(self, now_ms: int) -> int:
        """When an observer queries again who leads: soon, for a new controller waits only a moment for its brokers."""
        return now_ms + max(1, self._times.fetch_ms // 4)

    def _start_pre_vote(self, effects: Effects, now_ms: int) -> None:
        """Ask the others whether they would vote for this node."""
        self._ask_for_votes(Role.PROSPECTIVE, effects, now_ms)

    def _become_candidate(self, effects: Effects, now_ms: int) -> None:
        assert self.is_voter
        assert self.role is not Role.LEADER, "a leader does not start another epoch"
        self.election = Election(self.epoch + 1, NO_NODE, self.node_id, self.directory_id)
        self._ask_for_votes(Role.CANDIDATE, effects, now_ms)

    def _ask_for_votes(self, role: Role, effects: Effects, now_ms: int) -> None:
        assert self.is_voter, "only a voter's own vote counts"
        self.role = role
        self.progress = None
        self._votes = {self.node_id: True}
        self.deadline_ms = self._deadlines.election(now_ms)
        is_pre_vote = role is Role.PROSPECTIVE
        request = VoteRequest(self.epoch, self.node_id, self._log.end(), is_pre_vote, self.directory_id)
        effects.send = tuple((voter, request) for voter in self.voters.ids if voter != self.node_id)
        self._count(effects, now_ms)

    def _count(self, effects: Effects, now_ms: int) -> None:
        assert self.role in (Role.PROSPECTIVE, Role.CANDIDATE), "votes only count for a candidate"
        granted = [voter for voter, yes in self._votes.items() if yes]
        refused = len(self._votes) - len(granted)
        if len(granted) * 2 > len(self.voters):
            if self.role is Role.PROSPECTIVE:
                self._become_candidate(effects, now_ms)
            else:
                self._lead(tuple(sorted(granted)), effects, now_ms)
        elif refused * 2 < len(self.voters):
            return
        elif self.role is Role.PROSPECTIVE:
            if self.leader_id not in (NO_NODE, self.node_id):
                self.role = Role.FOLLOWER
                self._fetch(self.leader_id, effects)
            self.deadline_ms = min(self.deadline_ms, self._deadlines.leader_lost(now_ms))
        else:
            # The election is lost: wait a while before the next one, so that another candidate may win.
            self.deadline_ms = min(self.deadline_ms, self._deadlines.backoff(now_ms))

    def _lead(self, granting: tuple[int, ...], effects: Effects, now_ms: int) -> None:
        assert self.role is Role.CANDIDATE
        assert self.election.voted_id == self.node_id
        assert self.node_id in granting
        assert len(granting) * 2 > len(self.voters), "a majority has voted for the leader"
        assert self._log.end().epoch < self.epoch, "no entry of an epoch comes before its leader"
        self.election = Election(self.epoch, self.node_id, self.node_id, self.directory_id)
        self.role = Role.LEADER
        epoch_start = self._log.end().offset
        self.progress = Progress(self.node_id, self.directory_id, self.voters, epoch_start, now_ms)
        effects.append = LeaderChange(self.epoch, self.node_id, self.voters.ids, granting)
        self._check_quorum(effects, now_ms)

    def _detach(self, epoch: int, now_ms: int) -> None:
        """Have no leader in this epoch."""
        self.election = self._election_in(epoch, NO_NODE)
        self.role = Role.UNATTACHED
        self.progress = None
        self.deadline_ms = self._deadlines.election(now_ms) if self.is_voter else self._next_search(now_ms)
        assert self.deadline_ms > now_ms

    def _follow(self, epoch: int, leader_id: int, effects: Effects, now_ms: int) -> None:
        assert leader_id != self.node_id
        assert leader_id != NO_NODE
        assert epoch >= self.epoch
        if epoch == self.epoch and self.leader_id not in (NO_NODE, leader_id):
            raise Contradiction(f"two leaders in epoch {epoch}: {self.leader_id} and {leader_id}")
        self.election = self._election_in(epoch, leader_id)
        self.role = Role.FOLLOWER
        self.progress = None
        self._leader_contacted(now_ms)
        self._fetch(leader_id, effects)

    def _election_in(self, epoch: int, leader_id: int) -> Election:
        """The election of an epoch; our vote in the current one is kept."""
        if epoch != self.epoch:
            return Election(epoch, leader_id)
        return Election(epoch, leader_id, self.election.voted_id, self.election.voted_directory_id)

    def _leader_contacted(self, now_ms: int) -> None:
        assert self.role is Role.FOLLOWER
        self._leader_contacted_at = now_ms
        self.deadline_ms = now_ms + self._times.fetch_ms

    def _lose_leader(self, now_ms: int) -> None:
        """The leader cannot be reached at the moment; check soon whether others can reach it."""
        assert self.role is Role.FOLLOWER, "only a follower can lose its leader"
        self._leader_contacted_at = -NEVER_MS
        self.deadline_ms = min(self.deadline_ms, self._deadlines.leader_lost(now_ms))

    def _unanswered(self, peer_id: int, message: Message, effects: Effects, now_ms: int) -> None:
        match message:
            case FetchRequest() | SnapshotRequest():
                if self.role is Role.FOLLOWER and peer_id == self.leader_id and message.epoch == self.epoch:
                    self._lose_leader(now_ms)
            case VoteRequest(pre_vote=pre_vote):
                expected = Role.PROSPECTIVE if pre_vote else Role.CANDIDATE
                if self.role is expected and message.epoch == self.epoch and peer_id not in self._votes:
                    self._votes = {**self._votes, peer_id: False}
                    self._count(effects, now_ms)

    def _synced_end(self) -> SyncedEnd | None:
        """Where the log ends; None while a part of it is not on disk."""
        end, synced_offset = self._log.end(), self._log.synced_offset()
        assert synced_offset <= end.offset, "more is on disk than in the log"
        return SyncedEnd(end) if synced_offset == end.offset else None

    def _fetch(self, target: int, effects: Effects) -> None:
        """Fetch what comes after the log's end, or have the log synced first."""
        assert target != self.node_id, "a node has its own entries"
        end = self._synced_end()
        if end is None:
            effects.sync = True
        else:
            effects.send = (*effects.send, (target, FetchRequest(self.epoch, self.node_id, end, self.directory_id)))

    def _received(self, sender_id: int, message: Message, effects: Effects, now_ms: int) -> None:
        match message:
            case VoteRequest():
                self._vote(message, effects, now_ms)
            case VoteResponse():
                self._voted(sender_id, message, effects, now_ms)
            case BeginEpochRequest(epoch, leader_id):
                self._learn(epoch, leader_id, effects, now_ms)
                self._learn_from_leader(sender_id, epoch, effects, now_ms)
                effects.reply = BeginEpochResponse(self.epoch, self.leader_id)
            case BeginEpochResponse(epoch, leader_id):
                self._learn(epoch, leader_id, effects, now_ms)
            case EndEpochRequest():
                self._leader_resigned(message, effects, now_ms)
                effects.reply = EndEpochResponse(self.epoch, self.leader_id)
            case EndEpochResponse(epoch, leader_id):
                self._learn(epoch, leader_id, effects, now_ms)
            case FetchRequest():
                self._serve(message, effects, now_ms)
            case FetchResponse():
                self._fetched(sender_id, message, effects, now_ms)
            case SnapshotRequest():
                self._serve_snapshot(message, effects, now_ms)
            case SnapshotResponse():
                self._fetched_snapshot(message, effects, now_ms)

    def _learn(self, epoch: int, leader_id: int, effects: Effects, now_ms: int) -> None:
        """A peer knows of an epoch and perhaps its leader; the newest one counts."""
        if self.role is Role.RESIGNED:
            return
        if epoch > self.epoch:
            if leader_id in (NO_NODE, self.node_id):
                self._detach(epoch, now_ms)
            else:
                self._follow(epoch, leader_id, effects, now_ms)
        elif epoch == self.epoch and leader_id not in (NO_NODE, self.node_id) and self.leader_id == NO_NODE:
            self._follow(epoch, leader_id, effects, now_ms)

    def _learn_from_leader(self, sender_id: int, epoch: int, effects: Effects, now_ms: int) -> None:
        """The leader we had lost answers after all. What other voters still believe of it would prove nothing."""
        if epoch == self.epoch and self.role is Role.PROSPECTIVE and sender_id == self.leader_id:
            self._follow(epoch, sender_id, effects, now_ms)

    def _vote(self, request: VoteRequest, effects: Effects, now_ms: int) -> None:
        if not request.pre_vote:
            self._learn(request.epoch, NO_NODE, effects, now_ms)
        assert request.pre_vote or self.role is Role.RESIGNED or request.epoch <= self.epoch, (
            "it has just learned of it"
        )
        granted = request.log_end.is_as_new_as(self._log.end()) and are_voters(request, self.voters, self.is_voter)
        if request.pre_vote:
            follows_leader = self.is_leader or (
                self.role is Role.FOLLOWER and now_ms - self._leader_contacted_at < self._times.fetch_ms
            )
            granted = granted and request.epoch >= self.epoch and not follows_leader
        else:
            granted = granted and self.role is not Role.RESIGNED and may_vote(request, self.election)
        if granted and not request.pre_vote:
            assert request.epoch == self.epoch
            assert self.leader_id == NO_NODE, "no vote is granted where a leader is known"
            assert self.election.voted_id in (NO_NODE, request.candidate_id), "an epoch has one vote"
            self.election = Election(self.epoch, NO_NODE, request.candidate_id, request.directory_id)
            self.role = Role.UNATTACHED
            self.deadline_ms = self._deadlines.election(now_ms)
        effects.reply = VoteResponse(self.epoch, self.leader_id, granted, request.pre_vote)

    def _voted(self, sender_id: int, response: VoteResponse, effects: Effects, now_ms: int) -> None:
        self._learn(response.epoch, response.leader_id, effects, now_ms)
        if sender_id == response.leader_id:
            self._learn_from_leader(sender_id, response.epoch, effects, now_ms)
        expected = Role.PROSPECTIVE if response.pre_vote else Role.CANDIDATE
        if self.role is expected and response.epoch <= self.epoch and sender_id in self.voters:
            if response.granted and not response.pre_vote and response.epoch != self.epoch:
                return
            self._votes = {**self._votes, sender_id: response.granted}
            self._count(effects, now_ms)

    def _leader_resigned(self, request: EndEpochRequest, effects: Effects, now_ms: int) -> None:
        """The leader resigned: its first successor becomes a candidate at once, the others wait a moment."""
        self._learn(request.epoch, request.leader_id, effects, now_ms)
        effects.send = ()
        if request.epoch != self.epoch or self.role is not Role.FOLLOWER:
            return
        self._leader_contacted_at = -NEVER_MS
        if request.successors[:1] == (self.node_id,) and self.is_voter:
            self._become_candidate(effects, now_ms)
        else:
            rank = request.successors.index(self.node_id) if self.node_id in request.successors else len(self.voters)
            self.deadline_ms = now_ms + min(self._times.backoff_max_ms, 50 * (rank + 1))

    def _serve(self, request: FetchRequest, effects: Effects, now_ms: int) -> None:
        """Answer a follower's fetch, and note its progress."""
        if self.role is not Role.LEADER or request.epoch != self.epoch:
            effects.reply = FetchResponse(self.epoch, self.leader_id, is_refused=True)
            return
        assert self.progress is not None
        replica = (request.replica_id, request.directory_id)
        divergence = find_divergence(self._log, request.log_end)
        if divergence is None:
            assert request.log_end.offset <= self._log.end().offset, "a longer log would have diverged"
            assert request.log_end.epoch <= self.epoch
            self.progress.fetched(*replica, request.log_end.offset, self._log.end().offset, now_ms)
            self._commit(effects)
            effects.reply = FetchResponse(self.epoch, self.node_id, self.high_watermark)
        else:
            self.progress.contacted(*replica, now_ms)
            effects.reply = FetchResponse(self.epoch, self.node_id, self.high_watermark, *divergence)

    def _fetched(self, sender_id: int, response: FetchResponse, effects: Effects, now_ms: int) -> None:
        if response.epoch < self.epoch:
            return
        before = self.election
        self._learn(response.epoch, response.leader_id, effects, now_ms)
        if self.role is not Role.FOLLOWER:
            return
        if response.is_refused:
            if self.election == before and sender_id == self.leader_id:
                # The leader itself reports that it no longer leads.
                self._lose_leader(now_ms)
            return
        if response.leader_id != self.leader_id:
            return
        effects.send = ()
        self._leader_contacted(now_ms)
        if response.snapshot is not None:
            effects.fetch_snapshot = response.snapshot
        elif response.diverging is not None:
            effects.truncate_to = self._cut_at(common_end(self._log, response.diverging))
        else:
            effects.take_entries = True

    def _serve_snapshot(self, request: SnapshotRequest, effects: Effects, now_ms: int) -> None:
        refused = self.role is not Role.LEADER or request.epoch != self.epoch
        if self.progress is not None and not refused:
            self.progress.contacted(request.replica_id, request.directory_id, now_ms)
        effects.reply = SnapshotResponse(self.epoch, self.leader_id, is_refused=refused)

    def _fetched_snapshot(self, response: SnapshotResponse, effects: Effects, now_ms: int) -> None:
        if response.epoch < self.epoch:
            return
        self._learn(response.epoch, response.leader_id, effects, now_ms)
        if self.role is Role.FOLLOWER and not response.is_refused and response.leader_id == self.leader_id:
            self._leader_contacted(now_ms)

    def _cut_at(self, end: int) -> int:
        if end < self.high_watermark:
            raise Contradiction(
                f"node {self.leader_id} leads epoch {self.epoch} with a log that lacks committed entries: it diverges "
                f"from ours at offset {end}, but everything before {self.high_watermark} was committed"
            )
        return end

    def _synced(self, effects: Effects, now_ms: int) -> None:
        if self.role is Role.LEADER:
            assert self.progress is not None
            assert self._log.synced_offset() <= self._log.end().offset, "more is on disk than in the log"
            self.progress.synced(self._log.synced_offset(), self._log.end().offset, now_ms)
            self._commit(effects)

    def _commit(self, effects: Effects) -> None:
        assert self.progress is not None
        assert self.progress.committed_end() <= self._log.end().offset, "no other node has more than the leader"
        self._raise_high_watermark(self.progress.committed_end(), effects)

    def _raise_high_watermark(self, offset: int, effects: Effects) -> None:
        if offset > self.high_watermark:
            self.high_watermark = offset
            effects.committed = offset
