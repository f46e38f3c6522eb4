"""Runs a scenario with one thing going wrong, starts again twice, and compares with what was promised."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from enumerate.broker import META, STARTS_NOT, TOPIC_ID, Broker, Machine, checkpoints_of
from enumerate.disk import (
    SHORT,
    STALLS_MS,
    SYNCS,
    TAKES_DESCRIPTOR,
    TAKES_SPACE,
    Operation,
    Trouble,
    copy_disk,
    inode_at,
)
from enumerate.power import fingerprint, leftovers, lose_records, lose_unsynced
from enumerate.process import BEGIN_MS, Process, Stuck
from enumerate.promises import KILL, POWER, Anomaly, Found, Ledger, Promise, judge
from enumerate.scenarios import SCENARIOS, Scenario
from enumerate.tier import STORE
from penstock.runtime.tier.remote_logs import ABSENT_MS
from sim.disk import SimDisk

CRASHES = (KILL, POWER)
ERRORS = ("eio", "broken", "enospc", "full", "emfile", "short")
FAULTS = (*CRASHES, *ERRORS, "stall")
LATER_MS = 3_600_000
MOMENTS_PER_STRIDE = 40
# How long an error may take to have its effect, and how long it takes until checkpoints are written again.
AFTERMATH_S = 6.0
CHECKPOINT_S = 1.2
# How long what is of no use may stay in object storage, and what a deleted topic has left there.
REMOVED_S = 5.0
CLEARED_S = 2 * ABSENT_MS / 1000
# What is read from object storage is compared instead.
ANYWHERE = 1 << 60


class Case(NamedTuple):
    """One way for one scenario to go wrong."""

    scenario: str
    fault: str
    index: int
    variant: str = ""

    @property
    def command(self) -> str:
        """How to replay it."""
        variant = f' --variant "{self.variant}"' if self.variant else ""
        return (
            f"python -m tests.enumerate --operation {self.scenario} --fault {self.fault} --index {self.index}{variant}"
        )


@dataclass
class Outcome:
    """What a case came to."""

    case: Case
    operation: str
    anomalies: list[tuple[str, Anomaly]] = field(default_factory=list)

    @property
    def kinds(self) -> set[str]:
        return {anomaly.kind for _, anomaly in self.anomalies}

    def add(self, when: str, anomalies: list[Anomaly]) -> None:
        self.anomalies += [(when, anomaly) for anomaly in anomalies]

    def __str__(self) -> str:
        variant = f" ({self.case.variant})" if self.case.variant else ""
        lines = [
            f"{self.case.scenario}: {self.case.fault}{variant} at operation {self.case.index}, {self.operation}",
            *(f"  {one.kind} {when}: promised {one.promised}; found {one.found}" for when, one in self.anomalies),
            f"  replay: {self.case.command}",
        ]
        return "\n".join(lines)


class Moment(NamedTuple):
    """The machine just before an operation changes its disk, or after the last one."""

    operation: Operation | None
    data: bytes
    position: int
    machine: Machine
    promises: dict[int, Promise]


class Run:
    """One run of a scenario, with nothing or one thing going wrong."""

    def __init__(self, scenario: Scenario, trouble: Trouble | None = None, *, keeps_moments: bool = False) -> None:
        self.scenario = scenario
        self.machine = Machine(scenario.directories, scenario.topic, scenario.partitions, stores=scenario.stores)
        self.ledgers = {number: Ledger(compacted=scenario.topic.compacts) for number in self.machine.assigned}
        for ledger in self.ledgers.values() if scenario.stores else ():
            ledger.tiered = ANYWHERE
        self.moments: list[Moment] = []
        self.problems: list[Anomaly] = []
        self.has_started = True
        self.process = self.machine.process()
        self.broker = Broker(self.machine, self.process, self.ledgers)
        if scenario.within:
            self._take_over(moment_within(scenario.within, scenario.part))
        elif scenario.ends != "new":
            self.process.run(self._begin())
            assert not self.broker.reported, self.broker.reported
            if scenario.ends:
                self._end()
        steps = self.process.steps
        if keeps_moments:
            steps.on_change = self._keep
        steps.record(trouble)
        self._act(is_disturbed=trouble is not None)
        steps.stop_recording()
        self.operations, self.struck = steps.operations, steps.struck
        self.problems += [Anomaly("exception", "no failure of a task", text) for text in self.process.scheduler.errors]
        if keeps_moments:
            self._keep(None, b"", 0)

    async def _begin(self) -> None:
        await self.broker.start()
        await self.scenario.before(self.broker)

    def _end(self) -> None:
        """The process ends before the part that is disturbed; another one will begin."""
        scenario, machine = self.scenario, self.machine
        if scenario.ends == "clean":
            self.process.run(self.broker.stop())
        self.process.die()
        if scenario.ends == POWER:
            machine.disk = lose_unsynced(machine.disk)
            machine.boots += 1
            for ledger in self.ledgers.values():
                ledger.kept[KILL] = ledger.kept[POWER]
        scenario.damage(machine.disk)
        self.process = machine.process(BEGIN_MS + LATER_MS // 2)
        self.broker = Broker(machine, self.process, self.ledgers)

    def _take_over(self, moment: Moment) -> None:
        """The process was killed in the middle of another scenario; this broker is elected."""
        self.process.die()
        self.machine = moment.machine.after(copy_disk(moment.machine.disk), lost_power=False)
        self.machine.lead()
        for number, promise in moment.promises.items():
            self.ledgers[number] = Ledger.of(promise)
        self.process = self.machine.process(BEGIN_MS + LATER_MS // 2)
        self.broker = Broker(self.machine, self.process, self.ledgers)

    def _act(self, *, is_disturbed: bool) -> None:
        async def act() -> None:
            if self.scenario.ends:
                await self.broker.start()
            await self.scenario.action(self.broker)

        try:
            self.process.run(act())
        except STARTS_NOT as error:
            # A node that cannot start logs the reason, and ends.
            self.has_started = False
            self.broker.reported.append(error)
        except Stuck as error:
            self.problems.append(Anomaly("stuck", "the scenario ends", str(error)))
        except Exception as error:  # noqa: BLE001
            self.problems.append(Anomaly("exception", "an error that callers know", f"{type(error).__name__}: {error}"))
        self.early = self._moment(None, b"", 0)
        if is_disturbed and self.has_started and not self.scenario.is_over:
            self.process.run(asyncio.sleep(AFTERMATH_S))

    def _keep(self, operation: Operation | None, data: bytes, position: int) -> None:
        self.moments.append(self._moment(operation, data, position))

    def _moment(self, operation: Operation | None, data: bytes, position: int) -> Moment:
        promises = {number: ledger.freeze() for number, ledger in self.ledgers.items()}
        machine = self.machine.after(copy_disk(self.machine.disk), lost_power=False)
        return Moment(operation, data, position, machine, promises)


@cache
def moment_within(name: str, part: float) -> Moment:
    """The machine when some part of a scenario's changes was made."""
    run = Run(SCENARIOS[name], keeps_moments=True)
    run.process.die()
    return run.moments[int(part * (len(run.moments) - 1))]


class Seen(NamedTuple):
    """What was found of each partition: by a start after the crash, and by one more after another crash."""

    first: dict[int, Found]
    second: dict[str, dict[int, tuple[Found, Promise]]]
    problems: list[Anomaly]


def _look(before: Machine) -> Seen:
    machine = before.after(copy_disk(before.disk), lost_power=False)
    machine.lead()
    homes = dict(machine.assigned)
    checkpoints = {number: checkpoints_of(machine.disk, home, number) for number, home in homes.items()}
    process = machine.process(BEGIN_MS + LATER_MS)
    ledgers = {number: Ledger(compacted=machine.topic.compacts) for number in homes}
    broker = Broker(machine, process, ledgers)
    first: dict[int, Found] = {}
    problems: list[Anomaly] = []

    async def start() -> None:
        await broker.start()
        await broker.read_tier()
        for number in homes:
            recovery, clean = checkpoints[number]
            first[number] = broker.found(number)._replace(recovery_point=recovery, clean=clean)

    async def write() -> None:
        for number, found in first.items():
            if found.problem:
                continue
            ledger = ledgers[number]
            ledger.history = [*(found.tier_rows or ()), *(row for row in found.rows if row.offset >= found.local_start)]
            ledger.start_min = ledger.start_max = found.start
            if machine.segments is not None and machine.topic.retention_bytes >= 0:
                # It goes on.
                ledger.start_max = ANYWHERE
            ledger.tiered = found.local_start if machine.segments is None else ANYWHERE
            ledger.producers, ledger.aborted = found.producers, found.aborted
            ledger.written(found.end)
            if not await broker.produce(3, number=number):
                problems.append(Anomaly("unwritable", "a log that takes records", f"{broker.reported[-1]}"))

    try:
        process.run(start())
        process.run(write())
        killed = machine.after(copy_disk(machine.disk), lost_power=False)
        killed_promises = {number: ledger.freeze() for number, ledger in ledgers.items()}
        process.run(asyncio.sleep(CHECKPOINT_S))
        if machine.segments is not None:
            process.run(_settle_tier(broker, problems))
    except STARTS_NOT as error:
        process.die()
        return Seen(dict.fromkeys(homes, Found(problem=f"the broker does not start: {error}")), {}, [])
    except Exception as error:  # noqa: BLE001
        process.die()
        return Seen({}, {}, [Anomaly("exception", "a start", f"{type(error).__name__}: {error}")])
    problems += [Anomaly("exception", "no failure of a task", text) for text in process.scheduler.errors]
    cut = machine.after(lose_unsynced(machine.disk), lost_power=True)
    promises = {number: ledger.freeze() for number, ledger in ledgers.items()}
    process.die()
    second = {KILL: _look_again(killed, killed_promises), POWER: _look_again(cut, promises)}
    return Seen(first, second, problems)


async def _settle_tier(broker: Broker, problems: list[Anomaly]) -> None:
    """A while later, everything from the log's start on can be read, and the store has nothing that is of no use."""
    await asyncio.sleep(REMOVED_S if broker.machine.topic_id == TOPIC_ID else CLEARED_S)
    await broker.read_tier()
    for number, rows in broker.tier_rows.items():
        log = broker.partition(number).log
        missing = set(range(log.start_offset, log.local_start_offset)) - {row.offset for row in rows}
        if missing:
            problems.append(Anomaly("tier-lost", "all from the log's start on", f"{sorted(missing)} cannot be read"))
    if unused := broker.unused_objects():
        problems.append(Anomaly("leaked", "no object without a segment", f"{len(unused)}, such as {unused[0]}"))


def _look_again(machine: Machine, promises: dict[int, Promise]) -> dict[int, tuple[Found, Promise]]:
    machine.lead()
    process = machine.process(BEGIN_MS + 2 * LATER_MS)
    broker = Broker(machine, process, {})
    checkpoints = {number: checkpoints_of(machine.disk, home, number) for number, home in machine.assigned.items()}
    found = {}

    async def start() -> None:
        await broker.start(jobs=False)
        await broker.read_tier()
        for number, promise in promises.items():
            recovery, clean = checkpoints[number]
            found[number] = broker.found(number)._replace(recovery_point=recovery, clean=clean), promise

    try:
        process.run(start())
    except STARTS_NOT as error:
        why = Found(problem=f"the broker does not start: {error}")
        found = {number: (why, promise) for number, promise in promises.items()}
    process.die()
    return found


class Enumeration:
    """All cases of one scenario."""

    scenarios: Any = SCENARIOS

    def __init__(self, name: str) -> None:
        self.scenario: Scenario = self.scenarios[name]
        self.recorded = self._run(keeps_moments=True)
        # What is wrong although nothing went wrong.
        self.undisturbed = self._check_undisturbed()
        self.recorded.process.die()
        self._seen: dict[object, Seen] = {}

    @property
    def disk_count(self) -> int:
        """How many different disks were started from."""
        return len(self._seen)

    def _run(self, trouble: Trouble | None = None, *, keeps_moments: bool = False) -> Run:
        return Run(self.scenario, trouble, keeps_moments=keeps_moments)

    def _judge(self, found: Found, promise: Promise, survived: str) -> list[Anomaly]:
        return judge(found, promise, survived)

    def _look(self, machine: Machine) -> Seen:
        return _look(machine)

    def look(self, machine: Machine) -> Seen:
        """What two starts find after a crash; the same disk is looked at once."""
        # What other nodes know.
        elsewhere = getattr(machine, "topic_id", None), getattr(machine, "segments", None)
        key = fingerprint(machine.disk), machine.boots, tuple(sorted(machine.assigned.items())), elsewhere
        if key not in self._seen:
            self._seen[key] = self._look(machine)
        return self._seen[key]

    @property
    def sampling(self) -> int:
        """Of how many power cuts one is enough for a test that must not take long: 1 for small scenarios."""
        return 1 + len(self.recorded.moments) // MOMENTS_PER_STRIDE

    def run(
        self, fault: str, index: int | None = None, variant: str | None = None, *, stride: int = 1
    ) -> Iterator[Outcome]:
        """Every case of a fault, or some of them; of crashes every `stride`th."""
        if fault in CRASHES:
            cases = self._kills() if fault == KILL else self._power_cuts()
            for case, operation, moment, disk in islice(cases, 0, None, stride):
                if index in (None, case.index) and variant in (None, case.variant):
                    yield self._crashed(case, operation, moment, disk())
            return
        for case in self._troubles(fault):
            if index in (None, case.index) and variant in (None, case.variant):
                yield self._disturbed(case)

    def count(self, fault: str) -> int:
        """How many cases there are."""
        if fault in CRASHES:
            return sum(1 for _ in (self._kills() if fault == KILL else self._power_cuts()))
        return sum(1 for _ in self._troubles(fault))

    def _check_undisturbed(self) -> list[Anomaly]:
        run = self.recorded
        anomalies = list(run.problems)
        anomalies += [Anomaly("reported", "no error", str(error)) for error in run.broker.reported]
        for number, ledger in () if self.scenario.is_over else run.ledgers.items():
            anomalies += judge(run.broker.found(number), ledger.freeze(), KILL, checks_files=False)
        return anomalies

    def _kills(self) -> Iterator[tuple]:  # type: ignore[type-arg]
        for moment in self.recorded.moments:
            operation = moment.operation
            index = operation.index if operation is not None else len(self.recorded.operations)
            name = str(operation) if operation is not None else "the end"
            disk = moment.machine.disk
            yield Case(self.scenario.name, KILL, index), f"before {name}", moment, lambda disk=disk: copy_disk(disk)
            if operation is None or operation.action != "write to":
                continue
            size = len(moment.data)
            for kept in sorted({1, min(61, size), size // 2, size - 1} - {0, size}):
                case = Case(self.scenario.name, KILL, index, f"{kept} bytes written")
                yield case, name, moment, lambda moment=moment, kept=kept: _torn(moment, kept)

    def _power_cuts(self) -> Iterator[tuple]:  # type: ignore[type-arg]
        before: object = None
        for moment in self.recorded.moments:
            if (now := (fingerprint(moment.machine.disk), moment.promises)) == before:
                continue
            before = now
            operation = moment.operation
            index = operation.index if operation is not None else len(self.recorded.operations)
            name = f"before {operation}" if operation is not None else "the end"
            for variant, disk in leftovers(moment.machine.disk):
                yield Case(self.scenario.name, POWER, index, variant), name, moment, lambda disk=disk: disk

    def _troubles(self, fault: str) -> Iterator[Case]:
        name = self.scenario.name
        for operation in self.recorded.operations:
            index, action = operation.index, operation.action
            happens = {
                "eio": True,
                "broken": operation.changes,
                "enospc": action in TAKES_SPACE,
                "full": action in TAKES_SPACE,
                "emfile": action in TAKES_DESCRIPTOR,
            }
            if happens.get(fault, False):
                yield Case(name, fault, index)
            elif fault == "short" and action == "write to" and operation.size:
                yield from (Case(name, fault, index, variant) for variant in SHORT)
            elif fault == "stall" and action in SYNCS:
                yield from (Case(name, fault, index, str(duration_ms)) for duration_ms in STALLS_MS)

    def _crashed(self, case: Case, operation: str, moment: Moment, disk: SimDisk) -> Outcome:
        outcome = Outcome(case, operation)
        machine = moment.machine.after(disk, lost_power=case.fault == POWER)
        self._examine(outcome, machine, moment.promises, case.fault)
        return outcome

    def _examine(
        self,
        outcome: Outcome,
        machine: Machine,
        promises: dict[int, Promise],
        survived: str,
        after: str = "",
        *,
        drops_pages: bool = False,
    ) -> None:
        seen = self.look(machine)
        outcome.add(f"after {after}the restart", seen.problems)
        anomalies = []
        for number, found in sorted(seen.first.items()):
            anomalies += self._judge(found, promises[number], survived)
        outcome.add(f"after {after}the restart", anomalies)
        if anomalies or seen.problems:
            return
        for crash, partitions in seen.second.items():
            for number, (found, promise) in partitions.items():
                if seen.first[number].problem:
                    continue
                anomalies = self._judge(found, promise, crash)
                if drops_pages and crash == POWER:
                    # The kernel had dropped what it could not write; the cache had it still, and a start trusted that.
                    anomalies = [one._replace(kind="dropped-pages") for one in anomalies]
                outcome.add(f"after {after}the restart, three records and a {crash}", anomalies)

    def _disturbed(self, case: Case) -> Outcome:
        run = self._run(Trouble(case.fault, case.index, case.variant))
        operation = run.struck
        outcome = Outcome(case, str(operation))
        if operation is None:
            outcome.add(
                "", [Anomaly("nondeterministic", f"operation {case.index}", f"{len(run.operations)} operations")]
            )
            return outcome
        outcome.add("at once", run.problems)
        broker, process = run.broker, run.process
        if case.fault == "stall":
            self._check_stall(outcome, operation, broker)
        elif run.has_started:
            self._check_reaction(outcome, operation, run)
        if run.has_started and not self.scenario.is_over:
            self._check_alive(outcome, broker, process)
        late = run._moment(None, b"", 0)
        process.die()
        for when, moment in (("", run.early), ("some seconds, ", late)):
            if not outcome.anomalies:
                self._examine_after(outcome, moment, operation, when)
        return outcome

    def _examine_after(self, outcome: Outcome, moment: Moment, operation: Operation, when: str) -> None:
        """After an error the process is killed, or the power fails, or the disk is mended without what was unsynced."""
        machine, promises = moment.machine, moment.promises
        if outcome.case.fault == "broken":
            mended = machine.after(lose_unsynced(machine.disk, operation.path.parts[1]), lost_power=False)
            self._examine(outcome, mended, promises, POWER, f"{when}a mended disk and ")
            if len(machine.assigned_paths) < 2:
                # Nowhere else could it be recorded that this directory failed.
                return
            mended = machine.after(lose_records(machine.disk, operation.path.parts[1]), lost_power=False)
            self._examine(outcome, mended, promises, POWER, f"{when}a mended disk without its last records and ")
            return
        drops_pages = operation.action == "sync" and outcome.case.fault != "stall"
        killed = machine.after(copy_disk(machine.disk), lost_power=False)
        self._examine(outcome, killed, promises, KILL, f"{when}a kill and ", drops_pages=drops_pages)
        cut = machine.after(lose_unsynced(machine.disk), lost_power=True)
        self._examine(outcome, cut, promises, POWER, f"{when}a power cut and ")

    @staticmethod
    def _check_stall(outcome: Outcome, operation: Operation, broker: Broker) -> None:
        is_serving = operation.index >= broker.serves_from
        if operation.is_on_loop and operation.action in SYNCS and is_serving:
            text = f"{operation.action} {operation.path} held the event loop for {outcome.case.variant} ms"
            outcome.add("meanwhile", [Anomaly("loop-stall", "syncs off the event loop", text)])
        outcome.add("meanwhile", [Anomaly("failed", "no error", str(error)) for error in broker.reported])

    @staticmethod
    def _check_reaction(outcome: Outcome, operation: Operation, run: Run) -> None:
        """An error of a disk that may be broken must not be forgotten."""
        broker, path = run.broker, operation.path
        if outcome.case.fault not in ("eio", "broken") or path.parts[1] in (META.name, STORE.name):
            return
        again = (one for one in run.operations[operation.index + 1 :] if one.path == path)
        is_retried = outcome.case.fault == "eio" and any(one.action == operation.action for one in again)
        if broker.reported or broker.failed(path) or is_retried:
            return
        kind = "swallowed" if operation.changes else "swallowed-read"
        wanted = "another try, a directory that failed, or an error for the caller"
        outcome.add("afterwards", [Anomaly(kind, wanted, "none of them")])

    def _check_alive(self, outcome: Outcome, broker: Broker, process: Process) -> None:
        """What is served agrees with what was promised, and more is taken; or the directory has failed."""
        anomalies = []
        for number, home in broker.machine.assigned.items():
            if broker.failed(home):
                continue
            try:
                process.run(broker.opened(number))
                found = broker.found(number)
                anomalies += judge(found, broker.ledgers[number].freeze(), KILL, checks_files=False)
                if found.problem:
                    continue
                before = len(broker.reported)
                if broker.partition(number).is_leader:
                    process.run(broker.produce(1, number=number))
                elif broker.machine.leader is not None:
                    broker.machine.leader.append()
                    process.run(broker.fetched())
                has_failed = any(one.failure is not None for one in broker.directories.log_directories)
                if len(broker.reported) > before and not has_failed:
                    reason = f"{broker.reported[-1]!r}"
                    anomalies.append(Anomaly("stuck", "more records are taken, or the directory has failed", reason))
            except Stuck as error:
                anomalies.append(Anomaly("stuck", "an answer", str(error)))
        outcome.add("afterwards", anomalies)


def _torn(moment: Moment, kept: int) -> SimDisk:
    """The disk with only the first bytes of a write."""
    disk = copy_disk(moment.machine.disk)
    assert moment.operation is not None
    inode = inode_at(disk, moment.operation.path)
    if inode is not None:
        inode.data[moment.position : moment.position + kept] = moment.data[:kept]
        inode.dirty(moment.position)
        inode.writes.append(moment.position + kept)
    return disk
