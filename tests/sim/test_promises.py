"""The promises about faults, each as runs of its own: what happens is fixed, everything else comes from the seed.

The figures that the promises name are measured in virtual time, with the timings that nodes come with, and held to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from sim.faults import HOUR_MS, STRIKES, Fault
from sim.schedule import Plan
from sim.shape import Shape
from sim.simulate import simulate
from sim.world import TOPIC, World
from support.history import Kind, Operation, Status

SEEDS = range(2)
STRIKE_S = 5.0
SHAPE = Shape(partitions=2, produce_pause_s=0.05, admin_pause_s=1.0, default_times=True)
APART = replace(SHAPE, controllers=3)


@dataclass(frozen=True, slots=True)
class Promise:
    """What happens, and for how long no partition may be without an acknowledgement meanwhile."""

    name: str
    faults: tuple[Fault, ...]
    seconds: float
    silence_s_max: float
    shape: Shape = field(default=SHAPE)
    keeps_leaders: bool = False
    admin_silence_s_max: float | None = None


def strike_leader(kind: str, duration_s: float) -> Fault:
    return Fault(STRIKE_S, "strike_leader", (), duration_s, STRIKES.index(kind))


def rolling_restarts(times: int) -> Iterable[Fault]:
    return (Fault(STRIKE_S + 18 * number, "stop", (1, 2, 3), 18.0) for number in range(times))


PROMISES = [
    Promise("1 kill -9 of the leader", (strike_leader("kill", 3.0),), 15, 5.0),
    Promise("1 clean stop of the leader", (strike_leader("stop", 6.0),), 15, 1.0),
    Promise("2 kill -9 of all", (Fault(STRIKE_S, "kill", (1, 2, 3), 0.5),), 20, 10.0),
    # A client may ask the silent node who leads, and waits its time-out for the answer.
    Promise("3 power cut of the leader", (strike_leader("power", 8.0),), 20, 10.0),
    Promise("5 the leader stopped for 30 s", (strike_leader("pause", 30.0),), 40, 10.0),
    Promise("6 the leader on the minority side", (strike_leader("isolate", 15.0),), 25, 7.0),
    Promise(
        "7 a link cut one way, then flapping",
        (Fault(STRIKE_S, "cut_one_way", (1, 2), 5.0), Fault(12, "flap", (2, 3), 6.0, 8)),
        22,
        7.0,
    ),
    Promise("8 a follower that the leader does not hear of", (Fault(STRIKE_S, "cut_link", (1, 2), 20.0),), 35, 35.0),
    Promise(
        "15 clocks an hour off",
        (Fault(STRIKE_S, "clock", (1,), 8.0, HOUR_MS), Fault(STRIKE_S + 1, "clock", (2,), 8.0, -HOUR_MS)),
        18,
        1.0,
        keeps_leaders=True,
    ),
    Promise(
        "16 the quorum lost",
        (Fault(STRIKE_S, "kill", (101, 102), 8.0),),
        22,
        1.0,
        APART,
        keeps_leaders=True,
        admin_silence_s_max=8.0 + 5.0,
    ),
    Promise("17 kill -9 of the active controller", (Fault(STRIKE_S, "strike_controller", (), 5.0, 0),), 15, 3.0, APART),
    Promise(
        "18 reassignment, kill and cut",
        (
            Fault(STRIKE_S, "reassign", (3, 2), 0.0, 0),
            Fault(STRIKE_S + 0.002, "kill", (3,), 2.0),
            Fault(STRIKE_S + 1, "cut_link", (1, 2), 2.0),
            Fault(10, "reassign", (1, 2, 3), 0.0, 0),
        ),
        20,
        15.0,
    ),
    Promise("32 rolling restarts", tuple(rolling_restarts(3)), 62, 1.0),
]


@pytest.mark.parametrize("promise", PROMISES, ids=[promise.name for promise in PROMISES])
@pytest.mark.parametrize("seed", SEEDS)
def test_promise(promise: Promise, seed: int, record_property: Callable[[str, object], None]) -> None:
    measured: dict[str, float] = {}

    def inspect(world: World) -> None:
        for partition in range(world.shape.partitions):
            sends = [one for one in world.history.operations if one.key == f"{TOPIC}-{partition}"]
            measured[f"{TOPIC}-{partition}"] = longest_silence(sends, STRIKE_S - 1, promise.seconds)
        changes = [one for one in world.history.operations if one.kind is Kind.CHANGE]
        measured["admin"] = longest_silence(changes, STRIKE_S - 1, promise.seconds)
        measured["leader epochs"] = sum(leader_epochs(world))

    plan = Plan(seed, replace(promise.shape, delay_ms_max=1 + seed), promise.faults, promise.seconds)
    outcome = simulate(plan, inspect=inspect)
    record_property("measured", measured)
    assert outcome.anomalies == []
    silence_s = max(measured[f"{TOPIC}-{partition}"] for partition in range(promise.shape.partitions))
    assert silence_s <= promise.silence_s_max, measured
    if promise.keeps_leaders:
        assert measured["leader epochs"] == 0
    if promise.admin_silence_s_max is not None:
        assert measured["admin"] <= promise.admin_silence_s_max


def longest_silence(operations: list[Operation], start_s: float, end_s: float) -> float:
    """The longest time without an acknowledgement between two moments."""
    done = sorted(one.completed for one in operations if one.status is Status.OK and one.completed is not None)
    moments = [start_s, *(moment for moment in done if start_s < moment < end_s)]
    after = [moment for moment in done if moment >= end_s]
    return max(later - earlier for earlier, later in pairwise([*moments, after[0] if after else end_s]))


def leader_epochs(world: World) -> list[int]:
    """The leader epochs of all partitions, as some node that runs has them."""
    node = next(machine.node for machine in world.machines.values() if machine.state == "up" and machine.node)
    return [state.leader_epoch for state in node._raft.image.topics[TOPIC].partitions]
