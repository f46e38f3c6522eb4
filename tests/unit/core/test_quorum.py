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

from penstock.core.raft.messages import FetchRequest, FetchResponse, LogEnd, Message, VoteRequest, VoteResponse
from penstock.core.raft.quorum import (
    Effects,
    Election,
    Quorum,
    QuorumTimes,
    Received,
    Role,
    Started,
    Stopping,
    Synced,
    Tick,
)

TIMES = QuorumTimes(election_ms=1_000, fetch_ms=2_000, backoff_max_ms=500)
POLL_MS = 100


@dataclass
class FakeLog:
    """Entries are (epoch, value)."""

    entries: list[tuple[int, int]] = field(default_factory=list)
    synced: int = 0

    def end(self) -> LogEnd:
        return LogEnd(len(self.entries), self.entries[-1][0] if self.entries else 0)

    def end_of_epoch(self, epoch: int) -> LogEnd:
        offset = sum(1 for entry_epoch, _ in self.entries if entry_epoch <= epoch)
        return LogEnd(offset, self.entries[offset - 1][0] if offset else 0)

    def start(self) -> LogEnd:
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

    def start(self) -> None:
        self.log.entries = self.log.entries[: self.log.synced]
        self.quorum = Quorum(self.node_id, self.world.voters, self.disk_election, self.log, TIMES, self.world.random)
        self.carry_out(self.quorum.step(Started(), self.world.now_ms), None, None)

    def crash(self) -> None:
        self.quorum = None

    def step(self, event: object, sender: int | None = None, entries: list[tuple[int, int]] | None = None) -> None:
        if self.quorum is not None:
            self.carry_out(self.quorum.step(event, self.world.now_ms), sender, entries)  # type: ignore[arg-type]

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
            self.log.synced = len(self.log.entries)
        if effects.reply is not None and sender is not None:
            self.world.send(self, sender, effects.reply)
        for peer, message in effects.send:
            self.world.send(self, peer, message)
        if effects.committed is not None:
            self.world.committed(self, effects.committed)

    def append(self, entry: tuple[int, int]) -> None:
        self.log.entries.append(entry)
        if self.world.random.random() < self.world.sync_chance:
            self.sync()

    def sync(self) -> None:
        self.log.synced = len(self.log.entries)
        self.step(Synced(self.log.synced))


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
                node.sync()
            else:
                node.carry_out(quorum.fetch_again(), None, None)

    def disturb(self) -> None:
        node = self.nodes[self.random.choice(self.voters)]
        match self.random.randrange(5):
            case 0:
                node.crash()
            case 1 | 2:
                if node.quorum is None:
                    node.start()
            case 3:
                self.cut = {voter for voter in self.voters if self.random.random() < 0.5}
            case 4:
                self.cut = set()

    def heal(self) -> None:
        self.cut = set()
        self.loss = 0.0
        for node in self.nodes.values():
            if node.quorum is None:
                node.start()

    def leader(self) -> FakeNode:
        leading = [node for node in self.nodes.values() if node.quorum is not None and node.quorum.is_leader]
        newest = max(leading, key=lambda node: node.quorum.epoch if node.quorum else 0, default=None)
        assert newest is not None, "nobody leads"
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


def test_a_leader_cut_off_from_everybody_resigns() -> None:
    world = World(6, 3)
    world.loss = 0.0
    world.run(4_000)
    first = world.leader()
    world.cut = {first.node_id}
    world.run(world.now_ms + 8_000)
    assert first.quorum is not None
    assert not first.quorum.is_leader
    assert world.leader() is not first


def test_a_voter_that_comes_back_disturbs_nobody() -> None:
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


def test_a_fetch_in_an_old_epoch_is_refused_and_told_the_new_one() -> None:
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
    quorum = Quorum(1, (1, 2, 3), Election(3, -1, -1), log, TIMES, Random(1))
    quorum.step(Started(), 0)
    quorum.step(Tick(), quorum.deadline_ms)
    quorum.step(Received(2, VoteResponse(3, -1, True, pre_vote=True)), 5_000)
    effects = quorum.step(Received(2, VoteResponse(4, -1, True, pre_vote=False)), 5_010)
    assert effects.append is not None
    log.entries.append((4, -1))
    held_by_all = quorum.step(Received(2, FetchRequest(4, 2, LogEnd(2, 1))), 5_020)
    assert quorum.step(Synced(2), 5_030).committed is None
    assert held_by_all.committed is None
    quorum.step(Synced(3), 5_040)
    assert quorum.step(Received(3, FetchRequest(4, 3, LogEnd(3, 4))), 5_050).committed == 3
