"""Seeds that CI runs, and what makes them worth something: a seed always tells the same story."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sim.schedule import draw
from sim.shrink import shrink
from sim.simulate import simulate
from sim.world import SILENCED, silence_logs

SINGLE_NODE_SEEDS = range(20)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in SILENCED}
    silence_logs()
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def test_a_single_node_keeps_its_promises() -> None:
    for seed in SINGLE_NODE_SEEDS:
        outcome = simulate(draw(seed, nodes=1))
        assert outcome.acknowledged > 0
        assert outcome.anomalies == [], f"python -m tests.sim --seed {seed} --nodes 1 --trace"


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
