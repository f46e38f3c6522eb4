"""Plays a script of the metadata quorum and writes down what happens.

A script is a list of events, one a line, each followed by its indented effects in the order in which a driver carries
them out: what is persisted, what happens to the log, what is answered and sent. Nodes are called by their numbers, the
first line says which are voters. Messages stay on their way until they are delivered, entries are on disk when they are
synced, timers come when the script says so. Where a log ends is shown as offset@epoch. Random picks are the least.

    voters N ...                 the voters, with empty logs, before the first event; with `carried` the log names them
    observer N ...               nodes without a vote
    log N EPOCH ...              what a node that is down has in its log, an epoch an entry
    snapshot N OFFSET            a node that is down has a snapshot up to here, and no entries before it
    start N ...                  nodes start, with what is on their disk
    lead N [with M ...]          an election that N wins, told in one line: all who are up, or those named, vote for it
                                 and follow; what is on its way to others is lost
    crash N                      gone, and with it what was not synced; what it sent is still on its way
    wipe N                       a node that is down gets an empty disk
    stop N, resign N             a leader that leaves, and one that only ceases to lead
    tick N ...                   the node's timer comes; time moves on to it
    wait TIME                    time passes, and no timer comes
    deliver [N>M ...]            messages arrive, all that are on their way unless named; new ones wait
    drop [N>M ...]               messages are lost
    unanswered N>M               the sender hears that a request got nowhere
    fetch N                      a follower that took an answer asks for more
    append N COUNT               a leader appends entries
    voters-change N M ...        a leader appends another set of voters
    sync N                       what a node appended reaches its disk
    stall N, unstall N           what a follower takes does not reach its disk until `sync`; it does again at once
    install N                    a follower has fetched the snapshot that it needs
    full N, free N               a node's disk keeps nothing any more; it does again
    show                         who is what
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from play import Play, number

from penstock.core.raft.events import (
    Contradiction,
    Effects,
    Election,
    EntriesAppended,
    Event,
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
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    FetchRequest,
    FetchResponse,
    LogEnd,
    Message,
    VoteRequest,
    VoteResponse,
)
from penstock.core.raft.quorum import Quorum
from penstock.core.raft.voters import Voter, VoterSet

NOTHING = LogEnd(0, 0)
TIMES = QuorumTimes(election_ms=1_000, fetch_ms=2_000, backoff_max_ms=500)


class Entry(NamedTuple):
    """One entry of a log: the epoch that wrote it, and the voters that it names, if it does."""

    epoch: int
    voters: VoterSet | None = None


class LeastRandom:
    """Always picks the least."""

    def randrange(self, start: int, stop: int) -> int:  # noqa: ARG002
        return start


@dataclass
class ScriptLog:
    """Entries from `begin` on; what lies before is in a snapshot."""

    begin: LogEnd = NOTHING
    entries: list[Entry] = field(default_factory=list)
    synced: int = 0

    @property
    def end_offset(self) -> int:
        return self.begin.offset + len(self.entries)

    def end(self) -> LogEnd:
        return LogEnd(self.end_offset, self.entries[-1].epoch if self.entries else self.begin.epoch)

    def synced_offset(self) -> int:
        return self.synced

    def end_of_epoch(self, epoch: int) -> LogEnd:
        if epoch < self.begin.epoch:
            return self.begin
        kept = [entry for entry in self.entries if entry.epoch <= epoch]
        return LogEnd(self.begin.offset + len(kept), kept[-1].epoch if kept else self.begin.epoch)

    def start(self) -> LogEnd:
        return self.begin

    def snapshot(self) -> LogEnd:
        return self.begin

    def cut(self, offset: int) -> None:
        del self.entries[offset - self.begin.offset :]
        self.synced = min(self.synced, offset)


class Sent(NamedTuple):
    """A message on its way. Beside a leader's answer go the entries, and where the log ended that it is for."""

    source: int
    target: int
    message: Message
    entries: tuple[Entry, ...] = ()
    log_end: LogEnd | None = None


@dataclass
class Node:
    """One node with its disk; `quorum` is None while it is down."""

    node_id: int
    fixed: VoterSet
    election: Election = field(default_factory=Election)
    log: ScriptLog = field(default_factory=ScriptLog)
    quorum: Quorum | None = None
    disk_is_full: bool = False
    disk_stalls: bool = False
    # A fetch waits until the log is on disk.
    fetch_waits: bool = False

    @property
    def running(self) -> Quorum:
        assert self.quorum is not None, f"node {self.node_id} is down"
        return self.quorum

    @property
    def voters(self) -> VoterSet:
        """The set in force: the last one that the log names."""
        return next((entry.voters for entry in reversed(self.log.entries) if entry.voters is not None), self.fixed)


class RaftScript(Play):
    """A few nodes, and the messages between them."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.nodes: dict[int, Node] = {}
        self.voters = VoterSet(())
        self.sent: list[Sent] = []

    def _voters(self, arguments: list[str]) -> None:
        ids = [int(word) for word in arguments if word != "carried"]
        self.voters = VoterSet(map(_carried, ids)) if "carried" in arguments else VoterSet.of_ids(ids)
        self.nodes = {node_id: Node(node_id, self.voters) for node_id in ids}

    def _observer(self, arguments: list[str]) -> None:
        self.nodes |= {int(word): Node(int(word), self.voters) for word in arguments}

    def _log(self, arguments: list[str]) -> None:
        node, *epochs = map(int, arguments)
        log = self.nodes[node].log
        log.entries = [Entry(epoch) for epoch in epochs]
        log.synced = log.end_offset
        # A voter that wrote in an epoch knew of it.
        self.nodes[node].election = Election(log.end().epoch)

    def _snapshot(self, arguments: list[str]) -> None:
        node, offset = map(int, arguments)
        log = self.nodes[node].log
        log.begin, log.entries = LogEnd(offset, log.entries[offset - 1].epoch), log.entries[offset:]

    def _start(self, arguments: list[str]) -> None:
        for node in map(self._node, arguments):
            directory = _carried(node.node_id).directory_id
            node.quorum = Quorum(node.node_id, node.voters, node.election, node.log, TIMES, LeastRandom(), directory)
            self._step(node, Started())

    def _lead(self, arguments: list[str]) -> None:
        node, *others = map(self._node, [word for word in arguments if word != "with"])
        others = others or [one for one in self.nodes.values() if one.quorum is not None and one is not node]
        self._tick(arguments[:1])
        self._talk(node, *others)
        self._sync(arguments[:1])
        for _ in range(3):
            for other in others:
                self._fetch([str(other.node_id)])
            self._talk(node, *others)
        assert node.running.is_established
        assert all(other.running.high_watermark == node.log.end_offset for other in others)
        known = ", ".join(str(other.node_id) for other in others)
        followed = f"{node.node_id} leads epoch {node.running.epoch}, followed by {known}"
        self.lines = [f"{followed}, all at {_end(node.log.end())}"]

    def _talk(self, *nodes: Node) -> None:
        """Deliver what these say to each other, until they are silent; what they say to others is lost."""
        among = {node.node_id for node in nodes}
        while self.sent:
            for sent in self._take([]):
                if {sent.source, sent.target} <= among:
                    self._receive(self.nodes[sent.target], sent)

    def _crash(self, arguments: list[str]) -> None:
        node = self._node(arguments[0])
        node.quorum = None
        node.fetch_waits = False
        node.log.cut(node.log.synced)

    def _wipe(self, arguments: list[str]) -> None:
        node = self._node(arguments[0])
        node.election, node.log = Election(), ScriptLog()

    def _stop(self, arguments: list[str]) -> None:
        self._step(self._node(arguments[0]), Stopping())

    def _resign(self, arguments: list[str]) -> None:
        self._step(self._node(arguments[0]), Stopping(for_good=False))

    def _tick(self, arguments: list[str]) -> None:
        for node in map(self._node, arguments):
            self.now_ms = max(self.now_ms, node.running.deadline_ms)
            self._step(node, Tick())

    def _wait(self, arguments: list[str]) -> None:
        self.now_ms += number(arguments[0])

    def _deliver(self, arguments: list[str]) -> None:
        for sent in self._take(arguments):
            node = self.nodes[sent.target]
            if node.quorum is not None:
                self._receive(node, sent)

    def _drop(self, arguments: list[str]) -> None:
        self._take(arguments)

    def _unanswered(self, arguments: list[str]) -> None:
        for sent in self._take(arguments):
            self._step(self.nodes[sent.source], RequestFailed(sent.target, sent.message))

    def _fetch(self, arguments: list[str]) -> None:
        node = self._node(arguments[0])
        self._step(node, FetchNext())

    def _append(self, arguments: list[str]) -> None:
        node = self._node(arguments[0])
        node.log.entries += [Entry(node.running.epoch)] * int(arguments[1])
        self.lines.append(f"{node.node_id}: its log ends at {_end(node.log.end())}")

    def _voters_change(self, arguments: list[str]) -> None:
        node = self._node(arguments[0])
        node.log.entries.append(Entry(node.running.epoch, VoterSet(_carried(int(word)) for word in arguments[1:])))
        self.lines.append(f"{node.node_id}: its log ends at {_end(node.log.end())}")
        self._check_voters(node)

    def _sync(self, arguments: list[str]) -> None:
        node = self._node(arguments[0])
        node.log.synced = node.log.end_offset
        self._step(node, Synced())
        if node.fetch_waits:
            node.fetch_waits = False
            self._step(node, FetchNext())

    def _install(self, arguments: list[str]) -> None:
        node = self._node(arguments[0])
        leader = self.nodes[node.running.leader_id]
        node.log = ScriptLog(leader.log.snapshot(), [], leader.log.snapshot().offset)
        node.running._log = node.log
        self.lines.append(f"{node.node_id}: its log begins and ends at {_end(node.log.end())}")
        self._step(node, EntriesAppended(node.log.begin.offset))

    def _full(self, arguments: list[str]) -> None:
        self._node(arguments[0]).disk_is_full = True

    def _free(self, arguments: list[str]) -> None:
        self._node(arguments[0]).disk_is_full = False

    def _stall(self, arguments: list[str]) -> None:
        self._node(arguments[0]).disk_stalls = True

    def _unstall(self, arguments: list[str]) -> None:
        self._node(arguments[0]).disk_stalls = False

    def _show(self, arguments: list[str]) -> None:  # noqa: ARG002
        for node in self.nodes.values():
            quorum = node.quorum
            if quorum is None:
                self.lines.append(f"{node.node_id} is down")
                continue
            role = quorum.role.value if quorum.is_voter or quorum.is_leader else "observer"
            leader = f", follows {quorum.leader_id}" if quorum.role is Role.FOLLOWER else ""
            self.lines.append(
                f"{node.node_id} {role} in epoch {quorum.epoch}{leader}, "
                f"log {_end(node.log.end())}, committed {quorum.high_watermark}"
            )

    def _receive(self, node: Node, sent: Sent) -> None:
        message = sent.message
        if isinstance(message, FetchResponse) and sent.log_end != node.log.end():
            self.lines.append(f"{node.node_id}: passes over an answer for a log that ended at {_end(sent.log_end)}")
            return
        effects = self._step(node, Received(sent.source, message), sent)
        if effects is None or not isinstance(message, FetchResponse):
            return
        if effects.fetch_snapshot is not None:
            self.lines.append(f"{node.node_id}: needs the snapshot {_end(effects.fetch_snapshot)}")
        elif effects.take_entries:
            node.log.entries += sent.entries
            if not node.disk_stalls:
                node.log.synced = node.log.end_offset
            if sent.entries:
                self.lines.append(f"{node.node_id}: takes {len(sent.entries)}, its log ends at {_end(node.log.end())}")
            self._check_voters(node)
            self._step(node, EntriesAppended(message.high_watermark))

    def _check_voters(self, node: Node) -> None:
        if node.voters != node.running.voters:
            self.lines.append(f"{node.node_id}: the voters are {', '.join(map(str, node.voters.ids))}")
            self._step(node, VotersChanged(node.voters))

    def _step(self, node: Node, event: Event, answered: Sent | None = None) -> Effects | None:
        quorum = node.running
        before = quorum.save()
        role = quorum.role
        try:
            effects = quorum.step(event, self.now_ms)
        except Contradiction as error:
            self.lines.append(f"{node.node_id}: does not follow: {error}")
            return None
        if effects.persist is not None and node.disk_is_full:
            quorum.restore(before)
            self.lines.append(f"{node.node_id}: cannot persist, as if nothing had come")
            return None
        if effects.persist is not None:
            node.election = effects.persist
            self.lines.append(f"{node.node_id}: persists {_election(effects.persist)}")
        if quorum.role is not role:
            self.lines.append(f"{node.node_id}: {role.value} -> {quorum.role.value}")
        self._carry_out(node, effects, answered)
        return effects

    def _carry_out(self, node: Node, effects: Effects, answered: Sent | None) -> None:
        if effects.truncate_to is not None:
            node.log.cut(effects.truncate_to)
            self.lines.append(f"{node.node_id}: cuts its log back to {_end(node.log.end())}")
            self._check_voters(node)
        if effects.append is not None:
            node.log.entries.append(Entry(effects.append.epoch))
            granted = ", ".join(map(str, effects.append.granting))
            self.lines.append(f"{node.node_id}: opens epoch {effects.append.epoch} with the votes of {granted}")
        if effects.reply is not None:
            assert answered is not None
            self._reply(node, answered, effects.reply)
        if effects.sync:
            node.fetch_waits = True
            self.lines.append(f"{node.node_id}: fetches once its log is on disk, which has {node.log.synced} so far")
        for peer_id, message in effects.send:
            self._send(node, peer_id, message)
        if effects.committed is not None:
            self.lines.append(f"{node.node_id}: has committed everything before {effects.committed}")

    def _reply(self, node: Node, request: Sent, message: Message) -> None:
        entries: tuple[Entry, ...] = ()
        log_end = None
        if isinstance(request.message, FetchRequest) and isinstance(message, FetchResponse):
            log_end = request.message.log_end
            if not message.is_refused and message.diverging is None and message.snapshot is None:
                entries = tuple(node.log.entries[log_end.offset - node.log.begin.offset :])
        self.sent.append(Sent(node.node_id, request.source, message, entries, log_end))
        self.lines.append(f"{node.node_id} > {request.source}: {_words(message, len(entries))}")

    def _send(self, node: Node, target: int, message: Message) -> None:
        self.sent.append(Sent(node.node_id, target, message))
        self.lines.append(f"{node.node_id} > {target}: {_words(message, 0)}")

    def _take(self, arguments: list[str]) -> list[Sent]:
        """Messages on their way, all or those that are named; they are on their way no longer when they are used."""
        named = [tuple(map(int, word.split(">"))) for word in arguments]
        taken = [sent for sent in self.sent if not named or (sent.source, sent.target) in named]
        if not taken:
            self.lines.append("nothing is on its way")
        self.sent = [sent for sent in self.sent if sent not in taken]
        return taken

    def _node(self, word: str) -> Node:
        return self.nodes[int(word)]


def _carried(voter_id: int) -> Voter:
    return Voter(voter_id, bytes([voter_id]) * 16)


def _end(end: LogEnd | None) -> str:
    return "?" if end is None else f"{end.offset}@{end.epoch}"


def _election(election: Election) -> str:
    leader = f", leader {election.leader_id}" if election.leader_id >= 0 else ""
    vote = f", voted for {election.voted_id}" if election.voted_id >= 0 else ""
    return f"epoch {election.epoch}{leader}{vote}"


def _knows(epoch: int, leader_id: int) -> str:
    return f"epoch {epoch}" + (f", leader {leader_id}" if leader_id >= 0 else "")


def _words(message: Message, entries: int) -> str:
    match message:
        case VoteRequest(epoch, _, log_end, pre_vote):
            return f"{'would you vote' if pre_vote else 'vote'} for me in epoch {epoch}, my log ends at {_end(log_end)}"
        case VoteResponse(epoch, leader_id, granted):
            return f"{'yes' if granted else 'no'} ({_knows(epoch, leader_id)})"
        case BeginEpochRequest(epoch):
            return f"I lead epoch {epoch}"
        case EndEpochRequest(epoch, _, successors):
            return f"I resign in epoch {epoch}, next {', '.join(map(str, successors))}"
        case BeginEpochResponse(epoch, leader_id) | EndEpochResponse(epoch, leader_id):
            return f"noted ({_knows(epoch, leader_id)})"
        case FetchRequest(epoch, _, log_end):
            return f"fetch in epoch {epoch} from {_end(log_end)}"
        case FetchResponse(epoch, leader_id, is_refused=True):
            return f"refused ({_knows(epoch, leader_id)})"
        case FetchResponse(diverging=LogEnd() as diverging):
            return f"your log parts from mine: I have {_end(diverging)}"
        case FetchResponse(snapshot=LogEnd() as snapshot):
            return f"my log begins behind yours: take the snapshot {_end(snapshot)}"
        case FetchResponse(_, _, high_watermark):
            return f"{'1 entry' if entries == 1 else f'{entries} entries'}, committed {high_watermark}"
    raise AssertionError(message)
