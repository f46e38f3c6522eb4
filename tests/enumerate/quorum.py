"""The metadata log of one voter: the real driver, with peers that follow a script; and what it promised."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from enumerate.cases import AFTERMATH_S, LATER_MS, Enumeration, Moment, Outcome, Seen
from enumerate.disk import Operation, Trouble, copy_disk
from enumerate.power import lose_unsynced
from enumerate.process import BEGIN_MS, Process, Stuck
from enumerate.promises import KILL, POWER, Anomaly
from penstock.api.context import settled
from penstock.core.metadata.image import Image
from penstock.core.raft.events import QuorumTimes
from penstock.core.raft.messages import FetchRequest, FetchResponse, LogEnd
from penstock.model.errors import ApiError
from penstock.runtime.raft import driver
from penstock.runtime.raft.driver import RaftDriver
from penstock.runtime.raft.metadata_files import DamagedMetadata, SnapshotId, encode_records, write_snapshot
from penstock.runtime.raft.wire import TOPIC, RaftReply
from penstock.storage.files import StorageError
from penstock.storage.settings import LogSettings
from penstock.wire.messages import begin_quorum_epoch as begin
from penstock.wire.messages import fetch_snapshot as snapshots
from penstock.wire.messages import vote
from penstock.wire.messages.metadata_records import TopicRecord
from sim.disk import SimDisk

DATA = Path("/data")
HERE, FIRST, SECOND = 1, 2, 3
SETTINGS = LogSettings(segment_bytes=250, index_interval_bytes=100)
TIMES = QuorumTimes(election_ms=60_000, fetch_ms=60_000, request_ms=20_000)
ANSWER_S = 30.0

Entry = tuple[int, str]
Script = Callable[["Voter"], Awaitable[object]]


class QuorumPromise(NamedTuple):
    """What holds at one moment: entries that others count on, and the vote."""

    histories: tuple[tuple[Entry, ...], ...]
    kept: int
    epoch: int
    voted: int


class QuorumLedger:
    """What this voter has told others."""

    def __init__(self) -> None:
        self.history: list[Entry] = []
        self.others: list[list[Entry]] = []
        self.kept = 0
        self.epoch, self.voted = 0, -1

    def freeze(self) -> QuorumPromise:
        histories = tuple(tuple(one) for one in (self.history, *self.others))
        return QuorumPromise(histories, self.kept, self.epoch, self.voted)

    def offer(self, offset: int, name: str) -> None:
        if (offset, name) in self.history:
            return
        if self.history and self.history[-1][0] >= offset:
            self.others.append(list(self.history))
            self.history = [one for one in self.history if one[0] < offset]
        self.history.append((offset, name))


class QuorumFound(NamedTuple):
    """What a start finds."""

    problem: str = ""
    names: tuple[str, ...] = ()
    start: int = 0
    end: int = 0
    epoch: int = 0
    voted: int = -1


def judge(found: QuorumFound, promise: QuorumPromise) -> list[Anomaly]:
    """Everything that is wrong."""
    if found.problem:
        return [Anomaly("refused", "the metadata opens", found.problem)]
    anomalies = []
    if found.end < promise.kept:
        anomalies.append(
            Anomaly("lost", f"entries before {promise.kept}, which others count on", f"it ends at {found.end}")
        )
    names = set(found.names)
    if not any(_is_beginning(names, history, promise.kept) for history in promise.histories):
        known = [name for offset, name in promise.histories[0] if name]
        lacking = [
            name for offset, name in promise.histories[0] if offset < promise.kept and name and name not in names
        ]
        text = f"{sorted(names)}: {lacking} missing, {sorted(names.difference(known))} too many"
        anomalies.append(Anomaly("different", f"the first of {known}, and those before {promise.kept}", text))
    forgot = found.epoch == promise.epoch and promise.voted >= 0 and found.voted != promise.voted
    if found.epoch < promise.epoch or forgot:
        cast = f"epoch {promise.epoch} and a vote for {promise.voted}"
        anomalies.append(Anomaly("vote-forgotten", cast, f"epoch {found.epoch} and a vote for {found.voted}"))
    return anomalies


def _is_beginning(names: set[str], history: Sequence[Entry], kept: int) -> bool:
    """Whether these are the first entries of a history, and all that count among them."""
    first = {name for _, name in [one for one in history if one[1]][: len(names)]}
    return names == first and all(name in names for offset, name in history if offset < kept and name)


class QuorumMachine:
    """What outlives the process."""

    def __init__(self, voters: tuple[int, ...], snapshot_bytes: int) -> None:
        self.disk = SimDisk()
        self.voters, self.snapshot_bytes = voters, snapshot_bytes
        self.boots = 0
        self.assigned = {0: DATA}
        self.assigned_paths = (DATA,)

    def after(self, disk: SimDisk, *, lost_power: bool) -> QuorumMachine:
        other = QuorumMachine(self.voters, self.snapshot_bytes)
        other.disk, other.boots = disk, self.boots + lost_power
        return other

    def process(self, begin_ms: int = BEGIN_MS) -> Process:
        return Process(self.disk, f"boot-{self.boots}", begin_ms)


class ScriptedLeader:
    """A leader elsewhere."""

    def __init__(self, node_id: int, epoch: int) -> None:
        self.node_id, self.epoch = node_id, epoch
        self.entries: dict[int, tuple[str, int, bytes]] = {}
        self.start = 0
        self.snapshot: tuple[SnapshotId, bytes] | None = None
        # Entries before this one have a majority.
        self.committed = 1 << 60
        # How far the voter here has everything, by its last request.
        self.copied = -1
        self.more = asyncio.Event()

    @property
    def end(self) -> int:
        return max(self.entries, default=self.start - 1) + 1

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            offset = self.end
            name = f"topic-{offset}-{self.epoch}"
            record = TopicRecord(name, offset.to_bytes(8, "big") + self.epoch.to_bytes(8, "big"))
            self.entries[offset] = name, self.epoch, encode_records([record], offset, self.epoch, BEGIN_MS)
        self.more.set()

    def next(self, node_id: int, epoch: int, diverging_at: int) -> ScriptedLeader:
        other = ScriptedLeader(node_id, epoch)
        other.entries = {offset: entry for offset, entry in self.entries.items() if offset < diverging_at}
        return other

    def make_snapshot(self, end: int) -> None:
        """The log begins after a snapshot."""
        process = Process(SimDisk(), "")
        records = [
            TopicRecord(name, offset.to_bytes(16, "big"))
            for offset, (name, _, _) in self.entries.items()
            if offset < end
        ]
        snapshot = SnapshotId(end, self.entries[end - 1][1])
        write_snapshot(process.filesystem, DATA, snapshot, records, BEGIN_MS)
        self.snapshot = snapshot, process.filesystem.read_file(DATA / snapshot.file_name)
        self.start = end


class ScriptedTransport:
    """Delivers fetches to the scripted leaders; nothing else is ever answered."""

    def __init__(self, voter: Voter) -> None:
        self._voter = voter

    def send(self, peer_id: int, message: Any) -> None:
        """There are no listeners."""

    def fetch(self, peer_id: int, message: FetchRequest, high_watermark: int) -> asyncio.Future[Any]:  # noqa: ARG002
        return asyncio.ensure_future(self._fetch(peer_id, message))

    async def _fetch(self, peer_id: int, message: FetchRequest) -> RaftReply:
        leader, ledger = self._voter.leaders[peer_id], self._voter.ledger
        end = message.log_end
        await asyncio.sleep(0.001)
        if message.epoch != leader.epoch:
            return RaftReply(FetchResponse(leader.epoch, leader.node_id))
        if end.offset < leader.start:
            assert leader.snapshot is not None
            found = leader.snapshot[0]
            ledger.others.append(ledger.history)
            ledger.history = [
                (offset, entry[0]) for offset, entry in leader.entries.items() if offset < found.end_offset
            ]
            return RaftReply(
                FetchResponse(leader.epoch, leader.node_id, snapshot=LogEnd(found.end_offset, found.epoch))
            )
        last = leader.entries.get(end.offset - 1)
        if end.offset and (last is None or last[1] != end.epoch) and end.offset != leader.start:
            same = [offset for offset, entry in leader.entries.items() if entry[1] <= end.epoch and offset < end.offset]
            at = same[-1] + 1 if same else 0
            ledger.kept = min(ledger.kept, at)
            ledger.others.append(list(ledger.history))
            return RaftReply(
                FetchResponse(
                    leader.epoch, leader.node_id, diverging=LogEnd(at, leader.entries[at - 1][1] if at else 0)
                )
            )
        # The leader counts this voter's copy from here on.
        leader.copied = end.offset
        ledger.kept = max(ledger.kept, end.offset)
        ledger.others = []
        if end.offset >= leader.end:
            leader.more.clear()
            try:
                async with asyncio.timeout(0.2):
                    await leader.more.wait()
            except TimeoutError:
                pass
        sent = [(offset, *entry) for offset, entry in leader.entries.items() if offset >= end.offset][:3]
        for offset, name, _, _ in sent:
            ledger.offer(offset, name)
        reply = FetchResponse(leader.epoch, leader.node_id, high_watermark=min(end.offset, leader.committed))
        return RaftReply(reply, b"".join(data for *_, data in sent))

    def ask(self, peer_id: int, request: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._piece(peer_id, request))

    async def _piece(self, peer_id: int, request: Any) -> Any:
        await asyncio.sleep(0.001)
        leader = self._voter.leaders[peer_id]
        assert leader.snapshot is not None
        wanted = request.topics[0].partitions[0]
        found, data = leader.snapshot
        piece = data[wanted.position : wanted.position + min(request.max_bytes, 150)]
        row = snapshots.FetchSnapshotResponsePartitionSnapshot(
            0,
            0,
            snapshots.SnapshotId(found.end_offset, found.epoch),
            snapshots.LeaderIdAndEpoch(leader.node_id, leader.epoch),
            len(data),
            wanted.position,
            piece,
        )
        return snapshots.FetchSnapshotResponse(topics=[snapshots.FetchSnapshotResponseTopicSnapshot(TOPIC, [row])])

    @staticmethod
    def read_reply(answer: asyncio.Future[Any], message: Any) -> RaftReply:  # noqa: ARG004
        reply: RaftReply = answer.result()
        return reply

    async def settle(self, timeout_s: float) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing is open."""


class Voter:
    """The driver in one process."""

    def __init__(self, machine: QuorumMachine, process: Process, ledger: QuorumLedger) -> None:
        self.machine, self.process, self.ledger = machine, process, ledger
        self.leaders: dict[int, ScriptedLeader] = {}
        self.reported: list[Exception] = []
        self.serves_from = 0
        self.made = 0
        self.raft: RaftDriver

    async def start(self) -> None:
        machine = self.machine
        raft = RaftDriver(
            self.process,
            DATA,
            HERE,
            machine.voters,
            machine.snapshot_bytes,
            SETTINGS,
            addresses={voter: ("host", voter) for voter in machine.voters},
            cluster_id="enumerate",
            times=TIMES,
        )
        with patch.object(driver, "Transport", lambda *_: ScriptedTransport(self)):
            await raft.start()
        # Until then a node neither serves a client nor answers another voter.
        self.serves_from = len(self.process.steps.operations)
        self.raft = raft

    def failed(self, _: Path) -> bool:
        return self.raft.is_failed

    async def attempt(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Whether there was an answer that is no error."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await work()
        except (ApiError, TimeoutError) as error:
            self.reported.append(error)
            return False
        return True

    async def decide(self, count: int = 1) -> bool:
        """Decide as the active controller, and wait until it is committed."""
        for _ in range(count):
            self.made += 1
            name = f"decided-{self.made}-{self.raft.epoch}"

            async def work(name: str = name) -> None:
                refusal = self.raft.refusal
                if refusal is not None:
                    raise refusal
                end = self.raft.log.end_offset
                self.ledger.offer(end, name)
                await self.raft.append([TopicRecord(name, self.made.to_bytes(16, "big"))])
                self.ledger.kept = max(self.ledger.kept, end + 1)

            if not await self.attempt(work):
                return False
        return True

    async def led(self) -> None:
        """Wait as long as a voter that resigned may take to be elected again."""
        for _ in range(2 * TIMES.election_ms // 100):
            if self.raft.is_leader or self.raft.is_failed:
                return
            await asyncio.sleep(0.1)

    def begin(self, leader: ScriptedLeader) -> None:
        """A leader announces itself."""
        self.leaders[leader.node_id] = leader
        row = begin.BeginQuorumEpochRequestPartitionData(0, bytes(16), leader.node_id, leader.epoch)
        request = begin.BeginQuorumEpochRequest(
            "enumerate", HERE, [begin.BeginQuorumEpochRequestTopicData(TOPIC, [row])]
        )
        self.raft.requests.begin_epoch(request, "CONTROLLER")

    async def vote(self, candidate: int, epoch: int) -> bool:
        """A candidate asks for this voter's vote; what is granted must not be forgotten."""
        end = self.raft.metadata_log.end()
        row = vote.VoteRequestPartitionData(0, epoch, candidate, bytes(16), bytes(16), end.epoch, end.offset)
        request = vote.VoteRequest("enumerate", HERE, [vote.VoteRequestTopicData(TOPIC, [row])])
        answer = (await settled(self.raft.requests.vote(request, "CONTROLLER"))).topics[0].partitions[0]
        if answer.vote_granted:
            self.ledger.epoch, self.ledger.voted = epoch, candidate
        return bool(answer.vote_granted)

    async def fetched(self) -> bool:
        """Wait until the newest leader counts everything as copied."""
        leader = max(self.leaders.values(), key=lambda one: one.epoch)
        leader.more.set()

        async def work() -> None:
            while leader.copied < leader.end:
                if self.raft.is_failed:
                    raise StorageError("the metadata log failed")
                if self.raft.epoch < leader.epoch:
                    # A leader announces itself until it is heard.
                    self.begin(leader)
                await asyncio.sleep(0.01)

        return await self.attempt(work)

    def found(self) -> QuorumFound:
        try:
            return self._found()
        except (ApiError, DamagedMetadata, FileNotFoundError) as error:
            return QuorumFound(problem=f"it cannot be read: {error}")

    def _found(self) -> QuorumFound:
        log = self.raft.metadata_log
        election = self.raft.quorum.election
        image = Image()
        for batch in log.newest_snapshot():
            for record in batch.records:
                image.replay(record)
        for record in log.records_after(max(log.snapshot().offset, log.start().offset)):
            if isinstance(record, TopicRecord):
                image.replay(record)
        names = tuple(sorted(image.topics))
        return QuorumFound("", names, log.start().offset, log.end().offset, election.epoch, election.voted_id)


@dataclass(frozen=True)
class QuorumScenario:
    """A script for one voter."""

    name: str
    before: Script
    action: Script
    voters: tuple[int, ...] = (HERE, FIRST, SECOND)
    snapshot_bytes: int = 1 << 30
    ends: str = ""
    is_over: bool = False


QUORUM_SCENARIOS: dict[str, QuorumScenario] = {}


def scenario(name: str, before: Script, **options: Any) -> Callable[[Script], Script]:
    def declare(action: Script) -> Script:
        QUORUM_SCENARIOS[name] = QuorumScenario(name, before, action, **options)
        return action

    return declare


class QuorumRun:
    """One run of a scenario."""

    def __init__(
        self, scenario: QuorumScenario, trouble: Trouble | None = None, *, keeps_moments: bool = False
    ) -> None:
        self.scenario = scenario
        self.machine = QuorumMachine(scenario.voters, scenario.snapshot_bytes)
        self.ledger = QuorumLedger()
        self.moments: list[Moment] = []
        self.problems: list[Anomaly] = []
        self.has_started = True
        self.process = self.machine.process()
        self.broker = Voter(self.machine, self.process, self.ledger)
        self.process.run(self._begin())
        assert not self.broker.reported, self.broker.reported
        if scenario.ends:
            self.process.die()
            self.process = self.machine.process(BEGIN_MS + LATER_MS // 2)
            self.broker = Voter(self.machine, self.process, self.ledger)
        steps = self.process.steps
        if keeps_moments:
            steps.on_change = lambda *change: self.moments.append(self._moment(*change))
        steps.record(trouble)
        self._act(is_disturbed=trouble is not None)
        steps.stop_recording()
        self.operations, self.struck = steps.operations, steps.struck
        self.problems += [Anomaly("exception", "no failure of a task", text) for text in self.process.scheduler.errors]
        if keeps_moments:
            self.moments.append(self._moment(None, b"", 0))

    async def _begin(self) -> None:
        await self.broker.start()
        await self.scenario.before(self.broker)

    def _act(self, *, is_disturbed: bool) -> None:
        async def act() -> None:
            if self.scenario.ends:
                await self.broker.start()
            await self.scenario.action(self.broker)

        try:
            self.process.run(act())
        except (StorageError, DamagedMetadata, FileNotFoundError) as error:
            self.has_started = False
            self.broker.reported.append(error)
        except Stuck as error:
            self.problems.append(Anomaly("stuck", "the scenario ends", str(error)))
        except Exception as error:  # noqa: BLE001
            self.problems.append(Anomaly("exception", "an error that callers know", f"{type(error).__name__}: {error}"))
        self.early = self._moment(None, b"", 0)
        if is_disturbed and self.has_started:
            self.process.run(asyncio.sleep(AFTERMATH_S))

    def _moment(self, operation: Operation | None, data: bytes, position: int) -> Moment:
        machine: Any = self.machine.after(copy_disk(self.machine.disk), lost_power=False)
        promises: Any = {0: self.ledger.freeze()}
        return Moment(operation, data, position, machine, promises)


class QuorumEnumeration(Enumeration):
    """All cases of one scenario of the metadata log."""

    scenarios: Any = QUORUM_SCENARIOS

    def _run(self, trouble: Trouble | None = None, *, keeps_moments: bool = False) -> Any:
        return QuorumRun(self.scenario, trouble, keeps_moments=keeps_moments)  # type: ignore[arg-type]

    def _judge(self, found: Any, promise: Any, survived: str) -> list[Anomaly]:  # noqa: ARG002
        return judge(found, promise)

    def _check_undisturbed(self) -> list[Anomaly]:
        run: Any = self.recorded
        anomalies = [*run.problems, *(Anomaly("reported", "no error", repr(error)) for error in run.broker.reported)]
        return anomalies + judge(run.broker.found(), run.ledger.freeze())

    def _look(self, before: Any) -> Seen:
        machine = before.after(copy_disk(before.disk), lost_power=False)
        process = machine.process(BEGIN_MS + LATER_MS)
        voter = Voter(machine, process, QuorumLedger())
        first: Any = {}
        problems: list[Anomaly] = []

        async def start() -> None:
            await voter.start()
            first[0] = voter.found()
            if voter.raft.quorum.is_leader:
                voter.ledger.history = [(-1, name) for name in first[0].names]
                if not await voter.decide(2):
                    problems.append(Anomaly("unwritable", "a controller that decides", f"{voter.reported[-1]}"))

        try:
            process.run(start())
        except (StorageError, DamagedMetadata, FileNotFoundError) as error:
            process.die()
            refused: Any = {0: QuorumFound(problem=f"{type(error).__name__}: {error}")}
            return Seen(refused, {}, [])
        except Exception as error:  # noqa: BLE001
            process.die()
            return Seen({}, {}, [Anomaly("exception", "a start", f"{type(error).__name__}: {error}")])
        problems += [Anomaly("exception", "no failure of a task", text) for text in process.scheduler.errors]
        ledger = voter.ledger
        ledger.history = ledger.history or [(-1, name) for name in first[0].names]
        ledger.kept = max(ledger.kept, first[0].end)
        ledger.epoch, ledger.voted = first[0].epoch, first[0].voted
        promise = ledger.freeze()
        killed = machine.after(copy_disk(machine.disk), lost_power=False)
        cut = machine.after(lose_unsynced(machine.disk), lost_power=True)
        process.die()
        second: Any = {KILL: {0: (self._again(killed), promise)}}
        if voter.raft.log.flushed_offset == voter.raft.log.end_offset:
            second[POWER] = {0: (self._again(cut), promise)}
        return Seen(first, second, problems)

    @staticmethod
    def _again(machine: QuorumMachine) -> QuorumFound:
        process = machine.process(BEGIN_MS + 2 * LATER_MS)
        voter = Voter(machine, process, QuorumLedger())
        try:
            process.run(voter.start())
            return voter.found()
        except (StorageError, DamagedMetadata, FileNotFoundError) as error:
            return QuorumFound(problem=f"{type(error).__name__}: {error}")
        finally:
            process.die()

    def _check_alive(self, outcome: Outcome, broker: Any, process: Process) -> None:
        voter: Voter = broker
        if voter.raft.is_failed:
            return
        anomalies: list[Anomaly] = judge(voter.found(), voter.ledger.freeze())
        before = len(voter.reported)
        if voter.machine.voters == (HERE,):
            process.run(voter.led())
        if voter.raft.quorum.is_leader:
            process.run(voter.decide())
        elif any(one.epoch == voter.raft.epoch for one in voter.leaders.values()):
            max(voter.leaders.values(), key=lambda one: one.epoch).append()
            process.run(voter.fetched())
        if len(voter.reported) > before and not voter.raft.is_failed:
            reason = f"{voter.reported[-1]!r}"
            anomalies.append(Anomaly("stuck", "more entries are taken, or the log has failed", reason))
        outcome.add("afterwards", anomalies)


# The scripts.


async def some_decisions(voter: Voter) -> None:
    voter.ledger.offer(0, "")
    await voter.decide(4)


@scenario("raft-append", some_decisions, voters=(HERE,))
async def append(voter: Voter) -> None:
    await voter.decide(4)


@scenario("raft-snapshot", some_decisions, voters=(HERE,), snapshot_bytes=250)
async def snapshot(voter: Voter) -> None:
    """Snapshots are written, and what is before the second newest goes."""
    for _ in range(3):
        await voter.decide(2)
        await asyncio.sleep(0.1)


@scenario("raft-start", some_decisions, voters=(HERE,), ends=KILL)
async def start(voter: Voter) -> None:
    await voter.decide(1)


async def following(voter: Voter) -> None:
    leader = ScriptedLeader(FIRST, 3)
    leader.append(8)
    voter.begin(leader)
    await voter.fetched()


@scenario("raft-follow", following)
async def follow(voter: Voter) -> None:
    voter.leaders[FIRST].append(5)
    await voter.fetched()


async def following_a_minority(voter: Voter) -> None:
    """Most of what the leader has sent has no other voter."""
    leader = ScriptedLeader(FIRST, 3)
    leader.committed = 3
    leader.append(8)
    voter.begin(leader)
    await voter.fetched()


@scenario("raft-truncate", following_a_minority)
async def truncate(voter: Voter) -> None:
    """Another leader has less, and then more."""
    other = voter.leaders[FIRST].next(SECOND, 5, 3)
    other.append(4)
    voter.begin(other)
    await voter.fetched()


@scenario("raft-reelect", following)
async def reelect(voter: Voter) -> None:
    """A leader is replaced while what it sent is not on disk."""
    leader = voter.leaders[FIRST]
    leader.append(3)
    for _ in range(100):
        if voter.raft.log.end_offset < leader.end:
            await asyncio.sleep(0.0001)
    other = leader.next(SECOND, 5, leader.end)
    voter.begin(other)
    other.append(1)
    await voter.fetched()


@scenario("raft-install", following)
async def install(voter: Voter) -> None:
    """The leader's log begins after the end of this one."""
    other = voter.leaders[FIRST].next(SECOND, 5, 8)
    other.append(8)
    other.make_snapshot(14)
    voter.begin(other)
    await voter.fetched()


@scenario("raft-vote", following)
async def cast_votes(voter: Voter) -> None:
    await voter.vote(SECOND, 6)
    await asyncio.sleep(0.01)
    await voter.vote(FIRST, 6)
    await voter.vote(FIRST, 8)
