"""One run from beginning to end, and its verdict."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from sim import tier_checks
from sim.faults import Faults
from sim.invariants import Watch, compare_decisions, compare_deletions, compare_logs, rot_is_found
from sim.loop_work import counted_headers
from sim.schedule import LOST_EVERYWHERE, READ_BEFORE_SYNCED, Plan
from sim.world import World, without_collector
from support.history import Anomaly
from support.history_checks import check

START_S = 15.0
SETTLE_S = 40.0
SCRUB_S = 300.0
# A segment at a time, and some are tiny.
READ_S = 60.0
# A follower whose leader lost power and came back at once waits out replica.socket.timeout.ms for an old answer.
IN_SYNC_S = 45.0

PARTITION = re.compile(r"[a-z_]+-\d+(?:-\d+)?")


@dataclass(slots=True)
class Outcome:
    """What became of a run."""

    plan: Plan
    anomalies: list[Anomaly]
    trace_hash: int = 0
    virtual_s: float = 0.0
    real_s: float = 0.0
    steps: int = 0
    acknowledged: int = 0

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(anomaly.kind for anomaly in self.anomalies)


def simulate(
    plan: Plan, tell: Callable[[str], None] | None = None, inspect: Callable[[World], None] | None = None
) -> Outcome:
    """Run a plan; the same plan gives the same outcome. `inspect` is called with the world at the end."""
    with counted_headers():
        outcome: Outcome = without_collector(lambda: _simulate(plan, tell, inspect))
    return outcome


def _simulate(plan: Plan, tell: Callable[[str], None] | None, inspect: Callable[[World], None] | None) -> Outcome:
    started = perf_counter()
    world = World(str(plan.seed), plan.shape, tell)
    watch = Watch(world)
    anomalies = _live(world, plan, watch)
    anomalies += watch.anomalies
    anomalies += [Anomaly("bug", text) for text in world.scheduler.errors[:5]]
    found = [one for one in anomalies if not _is_excused(one, plan, world)]
    acknowledged = sum(one.status.value == "ok" and one.kind.value == "send" for one in world.history.operations)
    outcome = Outcome(
        plan,
        found,
        world.trace_hash,
        world.now_s,
        perf_counter() - started,
        world.scheduler.steps,
        acknowledged,
    )
    if inspect is not None:
        inspect(world)
    world.close()
    return outcome


def _is_excused(anomaly: Anomaly, plan: Plan, world: World) -> bool:
    """Replicas in a directory that failed may be gone, as after a power cut; and two may take what only the two had."""
    if anomaly.kind in plan.excused:
        return True
    named = set(PARTITION.findall(anomaly.text))
    lacking = [machine for machine in world.machines.values() if machine.lacking and not named - machine.lacking]
    if not lacking:
        return False
    if any(machine.power_cuts for machine in world.machines.values() if machine not in lacking):
        return anomaly.kind in LOST_EVERYWHERE
    return anomaly.kind in READ_BEFORE_SYNCED and plan.shape.min_insync_replicas == 1


def _live(world: World, plan: Plan, watch: Watch) -> list[Anomaly]:
    """Start, work while things go wrong, heal, settle, read everything, and judge."""
    world.start_nodes()
    if not world.call(world.create_topic(), START_S):
        return [Anomaly("unavailable", f"no topic {START_S} s after the start: {world.states()}")]
    world.start_clients()
    faults = Faults(world)
    for fault in plan.faults:
        faults.schedule(fault)
    watch.run(plan.seconds - world.now_s)
    faults.end()
    world.tell("everything heals")
    world.stop_changes()
    if not watch.run(SETTLE_S, world.is_drained):
        return [*world.history.noticed, Anomaly("unavailable", f"{SETTLE_S} s after healing: {world.unfinished()}")]
    if not watch.run(SETTLE_S, world.is_settled):
        return [
            *world.history.noticed,
            Anomaly("unavailable", f"metadata differs {SETTLE_S} s later: {world.states()}"),
        ]
    if not watch.run(SETTLE_S, world.groups_are_whole):
        return [
            *world.history.noticed,
            Anomaly("unavailable", f"groups do not share the partitions {SETTLE_S} s later: {world.shares()}"),
        ]
    if plan.shape.local_bytes is not None and not watch.run(SETTLE_S, lambda: tier_checks.is_settled(world)):
        return [*world.history.noticed, Anomaly("unavailable", f"not all is in object storage {SETTLE_S} s later")]
    if world.office is not None and not watch.run(SETTLE_S, world.jobs_are_done):
        return [*world.history.noticed, Anomaly("unavailable", f"records are unfinished {SETTLE_S} s later")]
    world.members_stop()
    for what, work, limit_s in (
        ("consumers did not reach the end", world.catch_up, READ_S),
        ("not everything could be read again", world.read_everything, READ_S),
        ("not all replicas were in sync again", world.get_in_sync, IN_SYNC_S),
        ("metadata and committed offsets could not be read", world.read_metadata, READ_S),
    ):
        if not world.call(work(), limit_s):
            return [*world.history.noticed, Anomaly("unavailable", f"{what} {limit_s} s later: {world.states()}")]
    if world.office is not None and not world.call(world.office.read_letters(), READ_S):
        return [Anomaly("unavailable", f"the dead letters could not be read {READ_S} s later: {world.states()}")]
    # A slow scrubber may not have come by what has rotted; it is found at last.
    watch.run(SCRUB_S, lambda: rot_is_found(world))
    watch.run(1.0)
    watch.look_at_sessions()
    return [
        *(world.jobs.check(world.values()) if world.office is not None else ()),
        *(world.guard.look_at(world.machines.values()) if world.guard is not None else ()),
        *check(world.history),
        *watch.deletions(any(fault.kind == "clock" for fault in plan.faults)),
        *compare_logs(world),
        *compare_deletions(world),
        *compare_decisions(world),
        *(tier_checks.compare_tier(world) if plan.shape.local_bytes is not None else ()),
    ]
