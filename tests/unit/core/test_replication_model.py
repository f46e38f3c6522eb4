"""Random stories of one partition: whatever happens, what was committed is read by everybody, in one order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from replication_model import Broken, Model, Proposal

from penstock.core.replica.leader import LeaderState

SEEDS = 150
STEPS = 400

advance = LeaderState._advance


def run(seeds: int, steps: int = STEPS, *, loses_more: bool = False) -> tuple[int, int, int]:
    committed = elections = cuts = 0
    for seed in range(seeds):
        model = Model(seed, min_in_sync=1 + seed % 2, loses_more=loses_more)
        try:
            for _ in range(steps):
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


def test_nothing_is_lost_when_followers_lose_their_logs_and_proposals_their_answers() -> None:
    committed, elections, _ = run(SEEDS, 3 * STEPS, loses_more=True)
    assert committed > 4 * SEEDS
    assert elections > SEEDS


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


def name_the_newest_incarnations(_: Model, proposal: Proposal, state: LeaderState) -> Proposal:
    known = dict(proposal.incarnations)
    return proposal._replace(incarnations=state.incarnations(proposal.in_sync, known[proposal.leader]))


def test_a_follower_that_lost_its_records_before_it_was_accepted_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "sent_again", name_the_newest_incarnations)
    with pytest.raises(Broken, match="accepted as in sync and lacks"):
        run(10 * SEEDS, 3 * STEPS, loses_more=True)
