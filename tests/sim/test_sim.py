"""Seeds that CI runs; a seed always tells the same story."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from penstock.core.replica.fetch_session import FetchContext, SessionCache
from sim.faults import HOUR_MS, Fault
from sim.schedule import draw, draw_shared, draw_tiered, draw_transactional
from sim.shrink import shrink
from sim.simulate import simulate

REPOSITORY = Path(__file__).parents[2]
SINGLE_NODE_SEEDS = range(20)
SINGLE_NODE_TRANSACTIONAL_SEEDS = range(5)
SINGLE_NODE_SHARED_SEEDS = range(1)
SINGLE_NODE_TIERED_SEEDS = range(3)
# Two hundred clusters in all, of both kinds.
CLUSTER_SEEDS = 130
TRANSACTIONAL_SEEDS = 70
SHARED_SEEDS = 25
TIERED_SEEDS = 50
MOVING_SEEDS = 25
OPERATED_SEEDS = 20
STORAGE_SEEDS = 32
RECOVERY_SEEDS = 20


def test_a_single_node_keeps_its_promises() -> None:
    for seed in SINGLE_NODE_SEEDS:
        outcome = simulate(draw(seed, nodes=1))
        assert outcome.acknowledged > 0
        assert outcome.anomalies == [], f"python -m tests.sim --seed {seed} --nodes 1 --trace"


def test_a_single_node_keeps_its_promises_about_transactions() -> None:
    for seed in SINGLE_NODE_TRANSACTIONAL_SEEDS:
        outcome = simulate(draw_transactional(seed, nodes=1))
        assert outcome.acknowledged > 0
        assert outcome.anomalies == [], f"python -m tests.sim --transactions --seed {seed} --nodes 1 --trace"


def test_a_single_node_keeps_its_promises_about_share_groups() -> None:
    for seed in SINGLE_NODE_SHARED_SEEDS:
        outcome = simulate(draw_shared(seed, nodes=1, seconds=6.0))
        assert outcome.acknowledged > 0
        assert outcome.anomalies == [], f"python -m tests.sim --shares --seed {seed} --nodes 1 --trace"


def test_a_single_node_keeps_its_promises_about_tiered_storage() -> None:
    for seed in SINGLE_NODE_TIERED_SEEDS:
        outcome = simulate(draw_tiered(seed, nodes=1, seconds=6.0))
        assert outcome.acknowledged > 0
        assert outcome.anomalies == [], f"python -m tests.sim --tier --seed {seed} --nodes 1 --trace"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "options",
    [
        ("--seeds", str(CLUSTER_SEEDS)),
        ("--transactions", "--seeds", str(TRANSACTIONAL_SEEDS)),
        ("--shares", "--seeds", str(SHARED_SEEDS)),
        ("--tier", "--seeds", str(TIERED_SEEDS)),
        ("--moves", "--seeds", str(MOVING_SEEDS)),
        ("--operated", "--seeds", str(OPERATED_SEEDS)),
        ("--storage", "--seeds", str(STORAGE_SEEDS)),
        ("--recovery", "--seeds", str(RECOVERY_SEEDS)),
    ],
    ids=["plain", "transactional", "shared", "tiered", "moving", "operated", "storage", "recovery"],
)
def test_clusters_keep_their_promises(options: tuple[str, ...]) -> None:
    """Clusters of three nodes, over all cores."""
    command = [sys.executable, "-m", "tests.sim", *options]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=580)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    program = (
        "from sim.schedule import draw, draw_shared, draw_tiered, draw_transactional; "
        "from sim.simulate import simulate; from sim.world import silence_logs; silence_logs(); "
        "plans = draw(0), draw(1), draw_transactional(0), draw_shared(0, 1, 4.0), draw_tiered(0, 1, 4.0); "
        "print(*(simulate(plan).trace_hash for plan in plans))"
    )
    stories = []
    for hash_seed in ("1", "2"):
        path = os.pathsep.join((str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")))
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        ran = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        stories.append(ran.stdout)
    assert stories[0] == stories[1]
    assert len(set(stories[0].split())) == 5


def test_an_assertion_that_fails_in_a_handler_is_a_bug() -> None:
    """The node logs it and closes the connection, and the client tries again as after any other closed connection."""
    failed: list[int] = []
    open_session = SessionCache.open

    def fail_once(*arguments: Any, **options: Any) -> FetchContext:
        if not failed:
            failed.append(1)
            raise AssertionError("on purpose")
        return open_session(*arguments, **options)

    with patch.object(SessionCache, "open", fail_once):
        outcome = simulate(replace(draw(0, nodes=1), faults=()))
    assert [anomaly.kind for anomaly in outcome.anomalies] == ["bug"]
    assert "on purpose" in outcome.anomalies[0].text


def test_a_clock_that_jumped_is_right_again_when_everything_has_healed() -> None:
    offsets_ms: list[int] = []
    plan = draw(0, nodes=1)
    jump = Fault(plan.seconds - 1.0, "clock", (1,), 5.0, -HOUR_MS)
    outcome = simulate(
        replace(plan, faults=(jump,)),
        inspect=lambda world: offsets_ms.extend(machine.clock_offset_ms for machine in world.machines.values()),
    )
    assert (outcome.anomalies, offsets_ms) == ([], [0])


def test_a_story_shrinks_to_the_faults_that_matter() -> None:
    asked: list[list[int]] = []

    def fails(kept: list[int]) -> bool:
        asked.append(kept)
        return {2, 5} <= set(kept)

    assert shrink(list(range(8)), fails, 100) == [2, 5]
    assert shrink(list(range(8)), lambda _: True, 100) == []
    asked.clear()
    shrink(list(range(8)), fails, 4)
    assert len(asked) == 4
