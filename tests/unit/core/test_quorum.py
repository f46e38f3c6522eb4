"""Voters in one thread, from one seed: messages that are late, lost or doubled, cuts, crashes that lose unsynced bytes.

What must hold, whatever happens:
- at most one leader in an epoch;
- what one node holds as committed, no other node's committed log contradicts, ever;
- an epoch never goes back on a node, nor does its high watermark but by a crash;
- a voter gives one vote an epoch, also across crashes (else two leaders of one epoch would be found).
When the network heals, a leader is found and everybody catches up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from penstock.core.raft.events import (
    Contradiction,
    Effects,
    Election,
    EntriesAppended,
    FetchNext,
    QuorumTimes,
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
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    FetchResponse,
    LogEnd,
    Message,
    VoteRequest,
    VoteResponse,
)
from penstock.core.raft.quorum import Quorum
from penstock.core.raft.voters import Voter, VoterSet

TIMES = QuorumTimes(election_ms=1_000, fetch_ms=2_000, backoff_max_ms=500)
POLL_MS = 100


@dataclass
class FakeLog:
    """Entries are (epoch, value)."""

    entries: list[tuple[int, int]] = field(default_factory=list)
    synced: int = 0

    def end(self) -> LogEnd:
        return LogEnd(len(self.entries), self.entries[-1][0] if self.entries else 0)

    def synced_offset(self) -> int:
        return self.synced

    def end_of_epoch(self, epoch: int) -> LogEnd:
        offset = sum(1 for entry_epoch, _ in self.entries if entry_epoch <= epoch)
        return LogEnd(offset, self.entries[offset - 1][0] if offset else 0)

    def start(self) -> LogEnd:
        return LogEnd(0, 0)

    def snapshot(self) -> LogEnd:
        return LogEnd(0, 0)


class FakeNode:
    """A voter with its disk; `quorum` is None while it is down."""

    def __init__(self, node_id: int, world: World) -> None:
        self.node_id = node_id
        self.world = world
        self.disk_election = Election()
        self.log = FakeLog()
        self.quorum: Quorum | None = None
        self.next_poll_ms = 0
        # Until then syncs do not complete.
        self.stalled_until_ms = 0
        self.is_fetch_due = False

    @property
    def is_stalled(self) -> bool:
        return self.world.now_ms < self.stalled_until_ms

    def start(self) -> None:
        self.log.entries = self.log.entries[: self.log.synced]
        self.is_fetch_due = False
        voters = VoterSet.of_ids(self.world.voters)
        self.quorum = Quorum(self.node_id, voters, self.disk_election, self.log, TIMES, self.world.random)
        self.carry_out(self.quorum.step(Started(), self.world.now_ms), None, None)

    def crash(self) -> None:
        self.quorum = None

    def step(self, event: object, sender: int | None = None, entries: list[tuple[int, int]] | None = None) -> None:
        if self.quorum is not None:
            self.carry_out(self.quorum.step(event, self.world.now_ms), sender, entries)  # type: ignore[arg-type]
            if isinstance(event, Received) and isinstance(event.message, FetchResponse):
                self.taken(event.message)

    def taken(self, response: FetchResponse) -> None:
        quorum = self.quorum
        if quorum is not None and quorum.epoch == response.epoch and not response.is_refused and not response.diverging:
            self.carry_out(quorum.step(EntriesAppended(response.high_watermark), self.world.now_ms), None, None)

    def carry_out(self, effects: Effects, sender: int | None, entries: list[tuple[int, int]] | None) -> None:
        assert self.quorum is not None
        if effects.persist is not None:
            assert effects.persist.epoch >= self.disk_election.epoch
            self.disk_election = effects.persist
        if effects.truncate_to is not None:
            self.log.entries = self.log.entries[: effects.truncate_to]
            self.log.synced = min(self.log.synced, effects.truncate_to)
        if effects.append is not None:
            self.world.leader_elected(effects.append.epoch, self.node_id)
            self.append((effects.append.epoch, -1))
        if effects.take_entries and entries:
            self.log.entries += entries
            if not self.is_stalled:
                self.log.synced = len(self.log.entries)
        if effects.sync:
            self.is_fetch_due = True
            if not self.is_stalled:
                self.sync()
        if effects.reply is not None and sender is not None:
            self.world.send(self, sender, effects.reply)
        for peer, message in effects.send:
            self.world.send(self, peer, message)
        if effects.committed is not None:
            self.world.committed(self, effects.committed)

    def append(self, entry: tuple[int, int]) -> None:
        self.log.entries.append(entry)
        if not self.is_stalled and self.world.random.random() < self.world.sync_chance:
            self.sync()

    def sync(self) -> None:
        self.log.synced = len(self.log.entries)
        self.step(Synced())
        if self.is_fetch_due and self.quorum is not None:
            self.is_fetch_due = False
            self.step(FetchNext())


class World:
    """The network, the clock and the checker."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = Random(seed)
        self.voters = tuple(range(1, size + 1))
        self.now_ms = 0
        self.loss = 0.1
        self.delay_ms = 50
        self.sync_chance = 0.7
        self.cut: set[int] = set()
        self.queue: list[tuple[int, int, int, int, Message, list[tuple[int, int]] | None]] = []
        self.sent = 0
        self.leaders: dict[int, int] = {}
        self.truth: list[tuple[int, int]] = []
        self.nodes = {voter: FakeNode(voter, self) for voter in self.voters}
        for node in self.nodes.values():
            node.start()

    def leader_elected(self, epoch: int, node_id: int) -> None:
        assert self.leaders.setdefault(epoch, node_id) == node_id, f"two leaders in epoch {epoch}"

    def committed(self, node: FakeNode, offset: int) -> None:
        known = node.log.entries[:offset]
        assert len(known) == offset, "committed past the end of the log"
        shared = min(len(known), len(self.truth))
        assert known[:shared] == self.truth[:shared], "committed histories differ"
        self.truth += known[shared:]

    def send(self, sender: FakeNode, target: int, message: Message) -> None:
        entries = None
        if isinstance(message, FetchResponse) and not message.is_refused and message.diverging is None:
            follower = self.nodes[target]
            entries = sender.log.entries[len(follower.log.entries) :]
        for _ in range(2 if self.random.random() < self.loss / 4 else 1):
            if self.random.random() >= self.loss and (sender.node_id in self.cut) == (target in self.cut):
                self.sent += 1
                at = self.now_ms + self.random.randrange(1, self.delay_ms + 1)
                self.queue.append((at, self.sent, sender.node_id, target, message, entries))

    def run(self, until_ms: int, disturb: float = 0.0) -> None:
        while self.now_ms < until_ms:
            self.now_ms += 10
            self.queue.sort(key=lambda row: row[:2])
            while self.queue and self.queue[0][0] <= self.now_ms:
                _, _, sender, target, message, entries = self.queue.pop(0)
                self.deliver(sender, target, message, entries)
            for node in self.nodes.values():
                self.turn(node)
            if self.random.random() < disturb:
                self.disturb()

    def deliver(self, sender: int, target: int, message: Message, entries: list[tuple[int, int]] | None) -> None:
        node = self.nodes[target]
        if isinstance(message, FetchResponse) and entries is not None:
            # A late answer fits only the log it was made for; the driver drops others by their request.
            leader = self.nodes[sender].log
            ours = node.log.entries
            fits = leader.entries[: len(ours)] == ours
            entries = leader.entries[len(ours) : len(ours) + len(entries)] if fits else None
            if not fits and message.diverging is None:
                return
        node.step(Received(sender, message), sender, entries)

    def turn(self, node: FakeNode) -> None:
        quorum = node.quorum
        if quorum is None:
            return
        if self.now_ms >= quorum.deadline_ms:
            node.step(Tick())
        if node.quorum is not None and self.now_ms >= node.next_poll_ms:
            node.next_poll_ms = self.now_ms + POLL_MS
            if quorum.role is Role.LEADER:
                node.append((quorum.epoch, self.random.randrange(1000)))
            if not node.is_stalled:
                node.sync()
            if quorum.role is not Role.LEADER:
                node.step(FetchNext())

    def disturb(self) -> None:
        node = self.nodes[self.random.choice(self.voters)]
        match self.random.randrange(6):
            case 0:
                node.crash()
            case 1 | 2:
                if node.quorum is None:
                    node.start()
            case 3:
                self.cut = {voter for voter in self.voters if self.random.random() < 0.5}
            case 4:
                self.cut = set()
            case 5:
                node.stalled_until_ms = self.now_ms + self.random.randrange(10_000)

    def heal(self) -> None:
        self.cut = set()
        self.loss = 0.0
        for node in self.nodes.values():
            node.stalled_until_ms = 0
            if node.quorum is None:
                node.start()

    def leader(self) -> FakeNode:
        leading = [node for node in self.nodes.values() if node.quorum is not None and node.quorum.is_leader]
        newest = max(leading, key=lambda node: node.quorum.epoch if node.quorum else 0, default=None)
        assert newest is not None, "there is no leader"
        return newest


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_committed_entries_stay_and_the_quorum_recovers(seed: int, size: int) -> None:
    world = World(seed, size)
    world.run(60_000, disturb=0.02)
    world.heal()
    world.run(world.now_ms + 15_000)
    leader = world.leader()
    assert leader.quorum is not None
    assert len(world.truth) > 0
    for node in world.nodes.values():
        assert node.quorum is not None
        assert node.quorum.epoch == leader.quorum.epoch
        assert node.quorum.leader_id == leader.node_id
        assert leader.quorum.high_watermark - node.quorum.high_watermark < 50
        assert node.log.entries[: node.quorum.high_watermark] == world.truth[: node.quorum.high_watermark]


def test_that_an_unsynced_entry_is_acknowledged_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the runs above are worth: a voter that acknowledges what its disk may lose is found within these seeds."""
    monkeypatch.setattr(Quorum, "_synced_end", lambda quorum: quorum._log.end())

    def run() -> None:
        for seed in range(200):
            test_whatever_happens_committed_entries_stay_and_the_quorum_recovers(seed, 3)

    with pytest.raises(AssertionError, match="committed histories differ"):
        run()


def test_a_lone_voter_leads_at_once() -> None:
    world = World(1, 1)
    assert world.leaders == {1: 1}
    world.nodes[1].sync()
    assert world.leader().quorum is not None
    assert world.truth == [(1, -1)]


def test_a_first_leader_is_found_within_three_seconds() -> None:
    world = World(3, 3)
    world.loss = 0.0
    world.run(3_000)
    assert world.leader()


def test_a_killed_leader_is_replaced() -> None:
    world = World(4, 3)
    world.loss = 0.0
    world.run(3_000)
    first = world.leader()
    first.crash()
    world.run(world.now_ms + 6_000)
    assert world.leader() is not first


def test_a_leader_that_resigns_is_replaced_within_half_a_second() -> None:
    world = World(5, 3)
    world.loss = 0.0
    world.run(4_000)
    first = world.leader()
    first.step(Stopping())
    first.crash()
    world.run(world.now_ms + 500)
    assert world.leader() is not first


def test_a_leader_cut_off_from_all_others_resigns() -> None:
    world = World(6, 3)
    world.loss = 0.0
    world.run(4_000)
    first = world.leader()
    world.cut = {first.node_id}
    world.run(world.now_ms + 8_000)
    assert first.quorum is not None
    assert not first.quorum.is_leader
    assert world.leader() is not first


def test_a_voter_that_comes_back_does_not_disrupt_the_leader() -> None:
    world = World(7, 3)
    world.loss = 0.0
    world.run(4_000)
    leader = world.leader()
    away = next(node for node in world.nodes.values() if node is not leader)
    world.cut = {away.node_id}
    world.run(world.now_ms + 20_000)
    assert away.quorum is not None
    assert leader.quorum is not None
    epoch = leader.quorum.epoch
    world.cut = set()
    world.run(world.now_ms + 5_000)
    assert world.leader() is leader
    assert leader.quorum.epoch == epoch == away.quorum.epoch


def test_a_vote_is_given_once_an_epoch() -> None:
    world = World(8, 3)
    node = world.nodes[1]
    assert node.quorum is not None
    end = LogEnd(0, 0)
    first = node.quorum.step(Received(2, VoteRequest(5, 2, end, pre_vote=False)), 0)
    second = node.quorum.step(Received(3, VoteRequest(5, 3, end, pre_vote=False)), 0)
    again = node.quorum.step(Received(2, VoteRequest(5, 2, end, pre_vote=False)), 0)
    assert first.persist == Election(5, -1, 2)
    granted = [effects.reply.granted for effects in (first, second, again) if isinstance(effects.reply, VoteResponse)]
    assert granted == [True, False, True]


def test_a_vote_in_an_epoch_that_was_known_before_is_remembered() -> None:
    node = World(8, 3).nodes[1]
    assert node.quorum is not None
    node.log.entries.append((0, 1))
    refused = node.quorum.step(Received(2, VoteRequest(5, 2, LogEnd(0, 0), pre_vote=False)), 0)
    assert refused.persist == Election(5)
    granted = node.quorum.step(Received(3, VoteRequest(5, 3, LogEnd(1, 0), pre_vote=False)), 0)
    assert isinstance(granted.reply, VoteResponse)
    assert granted.reply.granted
    assert granted.persist == Election(5, -1, 3), "after a crash it could vote for another candidate"


def test_a_fetch_in_an_old_epoch_is_refused_with_the_new_one() -> None:
    world = World(9, 3)
    world.loss = 0.0
    world.run(4_000)
    leader = world.leader()
    assert leader.quorum is not None
    request = FetchRequest(leader.quorum.epoch - 1, 2, LogEnd(0, 0))
    reply = leader.quorum.step(Received(2, request), world.now_ms).reply
    assert isinstance(reply, FetchResponse)
    assert reply.is_refused
    assert reply.epoch == leader.quorum.epoch


def test_entries_of_earlier_epochs_are_not_committed_before_one_of_this_epoch() -> None:
    """Raft's figure 8: a majority that holds an old entry may still lose it to a newer leader."""
    log = FakeLog([(1, -1), (1, 7)], synced=2)
    quorum = Quorum(1, VoterSet.of_ids((1, 2, 3)), Election(3, -1, -1), log, TIMES, Random(1))
    quorum.step(Started(), 0)
    quorum.step(Tick(), quorum.deadline_ms)
    quorum.step(Received(2, VoteResponse(3, -1, True, pre_vote=True)), 5_000)
    effects = quorum.step(Received(2, VoteResponse(4, -1, True, pre_vote=False)), 5_010)
    assert effects.append is not None
    log.entries.append((4, -1))
    held_by_all = quorum.step(Received(2, FetchRequest(4, 2, LogEnd(2, 1))), 5_020)
    assert quorum.step(Synced(), 5_030).committed is None
    assert held_by_all.committed is None
    log.synced = 3
    quorum.step(Synced(), 5_040)
    assert quorum.step(Received(3, FetchRequest(4, 3, LogEnd(3, 4))), 5_050).committed == 3


def follower(log: FakeLog | None = None, voters: VoterSet | None = None) -> Quorum:
    """Node 1, which follows node 2 in epoch 5."""
    quorum = Quorum(1, voters or VoterSet.of_ids((1, 2, 3)), Election(5), log or FakeLog(), TIMES, Random(1))
    quorum.step(Started(), 0)
    quorum.step(Received(2, BeginEpochRequest(5, 2)), 0)
    assert quorum.role is Role.FOLLOWER
    return quorum


def leader_of(voters: VoterSet, log: FakeLog) -> Quorum:
    """Node 1 leads epoch 2 by the vote of node 2; its first entry is on disk."""
    quorum = Quorum(1, voters, Election(1), log, TIMES, Random(1))
    quorum.step(Started(), 0)
    quorum.step(Tick(), quorum.deadline_ms)
    quorum.step(Received(2, VoteResponse(1, -1, True, pre_vote=True)), 500)
    assert quorum.step(Received(2, VoteResponse(2, -1, True, pre_vote=False)), 500).append is not None
    log.entries.append((2, -1))
    log.synced = 1
    quorum.step(Synced(), 500)
    return quorum


def test_a_follower_that_loses_its_connection_sounds_out_the_others_within_moments() -> None:
    quorum = follower()
    assert quorum.deadline_ms == TIMES.fetch_ms
    quorum.step(RequestFailed(2, FetchRequest(5, 1, LogEnd(0, 0))), 1_000)
    assert 1_100 <= quorum.deadline_ms <= 1_300
    asked = quorum.step(Tick(), quorum.deadline_ms)
    assert {(peer, message.pre_vote) for peer, message in asked.send if isinstance(message, VoteRequest)} == {
        (2, True),
        (3, True),
    }
    # The others still hear from the leader: back to fetching, and no node was disturbed.
    quorum.step(Received(2, VoteResponse(5, 2, False, pre_vote=True)), 1_400)
    assert quorum.role is Role.FOLLOWER
    assert quorum.epoch == 5


def test_a_follower_that_lost_its_leader_encourages_others_to_stand_and_one_that_hears_it_does_not() -> None:
    quorum = follower()
    request = VoteRequest(5, 3, LogEnd(0, 0), pre_vote=True)
    answer = quorum.step(Received(3, request), 1_000).reply
    assert isinstance(answer, VoteResponse)
    assert not answer.granted
    quorum.step(RequestFailed(2, FetchRequest(5, 1, LogEnd(0, 0))), 1_000)
    answer = quorum.step(Received(3, request), 1_010).reply
    assert isinstance(answer, VoteResponse)
    assert answer.granted


def test_a_leader_that_reports_it_no_longer_leads_is_given_up_soon() -> None:
    quorum = follower()
    quorum.step(Received(2, FetchResponse(5, -1, is_refused=True)), 1_000)
    assert quorum.deadline_ms <= 1_300


def test_voters_that_cannot_be_reached_do_not_hold_up_the_next_try() -> None:
    quorum = Quorum(1, VoterSet.of_ids((1, 2, 3)), Election(), FakeLog(), TIMES, Random(1))
    quorum.step(Started(), 0)
    assert quorum.deadline_ms <= 250
    quorum.step(Tick(), quorum.deadline_ms)
    for peer in (2, 3):
        quorum.step(RequestFailed(peer, VoteRequest(0, 1, LogEnd(0, 0), pre_vote=True)), 300)
    assert quorum.deadline_ms <= 600


def test_a_leader_without_what_was_committed_is_not_followed() -> None:
    quorum = follower(FakeLog([(1, -1), (5, -1)], synced=2))
    quorum.step(EntriesAppended(2), 10)
    assert quorum.high_watermark == 2
    with pytest.raises(Contradiction, match="diverges from ours at offset 1"):
        quorum.step(Received(2, FetchResponse(5, 2, 0, diverging=LogEnd(1, 1))), 20)


def test_a_follower_knows_of_commits_by_the_answer_that_brings_them() -> None:
    log = FakeLog()
    quorum = follower(log)
    effects = quorum.step(Received(2, FetchResponse(5, 2, 2)), 10)
    assert effects.take_entries
    assert effects.committed is None
    log.entries += [(5, -1), (5, 7)]
    assert quorum.step(EntriesAppended(2), 10).committed == 2


def test_a_replica_with_another_directory_is_an_observer_and_commits_nothing() -> None:
    voters = VoterSet([Voter(1), Voter(2, b"a" * 16), Voter(3, b"c" * 16)])
    quorum = leader_of(voters, FakeLog())
    wiped = FetchRequest(2, 2, LogEnd(1, 2), b"b" * 16)
    assert quorum.step(Received(2, wiped), 600).committed is None
    assert quorum.progress is not None
    assert [one.replica_id for one in quorum.progress.live_observers(600)] == [2]
    whole = FetchRequest(2, 2, LogEnd(1, 2), b"a" * 16)
    assert quorum.step(Received(2, whole), 610).committed == 1


def test_a_successor_that_does_not_know_yet_that_it_is_a_voter_does_not_vote_for_itself() -> None:
    """Its own vote and that of one voter are no majority: another candidate could get the votes of the two others."""
    quorum = Quorum(4, VoterSet.of_ids((1, 2, 3)), Election(5, 3), FakeLog(), TIMES, Random(1))
    quorum.step(Started(), 0)
    assert quorum.role is Role.FOLLOWER
    effects = quorum.step(Received(3, EndEpochRequest(5, 3, (4, 1, 2))), 10)
    assert (effects.send, quorum.role, quorum.epoch) == ((), Role.FOLLOWER, 5)
    assert quorum.deadline_ms <= 10 + TIMES.backoff_max_ms, "it looks for the next leader soon"


def test_a_new_set_of_voters_counts_at_once() -> None:
    log = FakeLog()
    quorum = leader_of(VoterSet.of_ids((1, 2)), log)
    observer = FetchRequest(2, 3, LogEnd(1, 2))
    assert quorum.step(Received(3, observer), 600).committed is None
    assert quorum.step(VotersChanged(VoterSet.of_ids((1, 2, 3))), 600).committed == 1
    log.entries.append((2, 8))
    quorum.step(VotersChanged(VoterSet.of_ids((1, 2))), 610)
    log.synced = 2
    quorum.step(Synced(), 610)
    assert quorum.step(Received(3, FetchRequest(2, 3, LogEnd(2, 2))), 620).committed is None
    assert quorum.step(Received(2, FetchRequest(2, 2, LogEnd(2, 2))), 630).committed == 2


@pytest.mark.parametrize("is_synced", [False, True])
@pytest.mark.parametrize(
    ("role", "event"),
    [
        ("prospective", Received(2, VoteResponse(5, 2, granted=False, pre_vote=True))),
        ("prospective", Received(2, BeginEpochRequest(5, 2))),
        ("prospective", Received(3, BeginEpochRequest(6, 3))),
        ("follower", Received(3, BeginEpochRequest(6, 3))),
        ("follower", Received(3, FetchResponse(6, 3))),
        ("follower", Received(3, EndEpochRequest(6, 3, (2, 1)))),
        ("observer", Tick()),
    ],
)
def test_a_fetch_waits_until_the_log_is_on_disk(role: str, event: Received | Tick, *, is_synced: bool) -> None:
    log = FakeLog([(1, -1), (5, -1)], synced=2 if is_synced else 1)
    if role == "observer":
        quorum = Quorum(4, VoterSet.of_ids((1, 2, 3)), Election(5), log, TIMES, Random(1))
        quorum.step(Started(), 0)
    else:
        quorum = follower(log)
    if role == "prospective":
        quorum.step(Tick(), quorum.deadline_ms)
        quorum.step(Received(3, VoteResponse(5, 2, granted=False, pre_vote=True)), quorum.deadline_ms - 1)
        quorum.role = Role.PROSPECTIVE
    effects = quorum.step(event, quorum.deadline_ms)
    again = quorum.step(FetchNext(), quorum.deadline_ms)
    sent = [message for _, message in (*effects.send, *again.send) if isinstance(message, FetchRequest)]
    assert {message.log_end for message in sent} == ({LogEnd(2, 5)} if is_synced else set())
    assert (effects.sync or again.sync) == (not is_synced)


def test_a_leader_counts_itself_only_as_far_as_its_log_is_on_disk() -> None:
    log = FakeLog()
    quorum = leader_of(VoterSet.of_ids((1, 2)), log)
    log.entries += [(2, 7), (2, 8)]
    quorum.step(Synced(), 600)
    assert quorum.step(Received(2, FetchRequest(2, 2, LogEnd(3, 2))), 610).committed == 1
    log.synced = 2
    assert quorum.step(Synced(), 620).committed == 2
    log.synced = 3
    assert quorum.step(Synced(), 630).committed == 3


def test_a_leader_makes_itself_known_to_voters_that_fell_silent() -> None:
    quorum = leader_of(VoterSet.of_ids((1, 2, 3)), FakeLog())
    for peer in (2, 3):
        quorum.step(Received(peer, FetchRequest(2, peer, LogEnd(1, 2))), 600)
    assert quorum.step(Tick(), 1_100).send == ()
    quorum.step(Received(2, FetchRequest(2, 2, LogEnd(1, 2))), 1_500)
    assert quorum.step(Tick(), 1_700).send == ((3, BeginEpochRequest(2, 1)),)
