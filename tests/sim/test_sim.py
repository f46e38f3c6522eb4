"""Seeds that CI runs, and what makes them worth something: a seed always tells the same story, and slips are found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from sim.broken import VARIANTS
from sim.schedule import draw
from sim.shrink import shrink
from sim.simulate import simulate

REPOSITORY = Path(__file__).parents[2]
SINGLE_NODE_SEEDS = range(20)
CLUSTER_SEEDS = 200
# A slip must be found within a thousand seeds; that most are found within thirty keeps this quick.
SEEDS_TO_FIND_MAX = 1_000


def test_a_single_node_keeps_its_promises() -> None:
    for seed in SINGLE_NODE_SEEDS:
        outcome = simulate(draw(seed, nodes=1))
        assert outcome.acknowledged > 0
        assert outcome.anomalies == [], f"python -m tests.sim --seed {seed} --nodes 1 --trace"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_clusters_keep_their_promises() -> None:
    """Two hundred clusters of three nodes, over all cores."""
    command = [sys.executable, "-m", "tests.sim", "--seeds", str(CLUSTER_SEEDS)]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=580)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    program = (
        "from sim.schedule import draw; from sim.simulate import simulate; from sim.world import silence_logs; "
        "silence_logs(); print(*(simulate(draw(seed)).trace_hash for seed in range(3)))"
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
    assert len(set(stories[0].split())) == 3


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("slip", VARIANTS, ids=[slip.__name__ for slip in VARIANTS])
def test_slips_are_found(slip: Callable[[], AbstractContextManager[None]]) -> None:
    for seed in range(SEEDS_TO_FIND_MAX):
        with slip():
            found = simulate(draw(seed)).anomalies
        # It is the slip that was found only where the seed is fine without it.
        if found and not simulate(draw(seed)).anomalies:
            return
    pytest.fail(f"no seed below {SEEDS_TO_FIND_MAX} shows {slip.__name__}")


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
