"""Random stories of one partition: whatever happens, what was committed is read by everybody, in one order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from replication_model import Broken, Model

from penstock.core.replica.leader import LeaderState

SEEDS = 150
STEPS = 400

advance = LeaderState._advance


def run(seeds: int) -> tuple[int, int, int]:
    committed = elections = cuts = 0
    for seed in range(seeds):
        model = Model(seed, min_in_sync=1 + seed % 2)
        try:
            for _ in range(STEPS):
                model.step()
        except Broken as broken:
            raise Broken(f"seed {seed}: {broken}") from broken
        committed += len(model.committed)
        elections += model.elections
        cuts += model.cuts
    return committed, elections, cuts


def test_nothing_committed_is_lost_and_logs_agree_below_the_high_watermark() -> None:
    committed, elections, cuts = run(SEEDS)
    # The stories are worth telling.
    assert committed > 4 * SEEDS
    assert elections > SEEDS
    assert cuts > SEEDS // 10


def commit_at_once(state: LeaderState) -> bool:
    moved = state._end_offset > state.high_watermark
    state.high_watermark = max(state.high_watermark, state._end_offset)
    return moved


def trust_proposals(state: LeaderState) -> bool:
    in_sync = state.in_sync_replicas
    state.in_sync_replicas = state._proposed or in_sync
    moved = advance(state)
    state.in_sync_replicas = in_sync
    return moved


def commit_below_the_minimum(state: LeaderState) -> bool:
    minimum, state._min_in_sync = state._min_in_sync, 0
    moved = advance(state)
    state._min_in_sync = minimum
    return moved


@pytest.mark.parametrize("mistake", [commit_at_once, trust_proposals, commit_below_the_minimum])
def test_a_leader_that_commits_too_early_is_found_out(
    mistake: Callable[[LeaderState], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeaderState, "_advance", mistake)
    with pytest.raises(Broken):
        run(SEEDS)
