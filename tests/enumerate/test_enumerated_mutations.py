"""The enumeration finds bugs: each mutation reverts something that was mended, and breaks a promise in a scenario."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from enumerate.every import enumeration_of
from sim.broken_quorum import answer_before_votes_are_durable
from sim.broken_recovery import (
    delete_before_the_start_is_durable,
    keep_clean_what_is_truncated,
    keep_directories_without_checkpoints,
    truncate_oldest_first,
)
from sim.broken_storage import drop_refused_logs_from_checkpoints


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("mutation", "scenario", "fault", "kind"),
    [
        (keep_directories_without_checkpoints, "checkpoint", "broken", "lost-but-trusted"),
        (drop_refused_logs_from_checkpoints, "damaged", "power", "lost"),
        (truncate_oldest_first, "truncate", "kill", "hole"),
        (delete_before_the_start_is_durable, "follow-deletion-tiered", "kill", "hole"),
        (keep_clean_what_is_truncated, "truncate-cleaned", "kill", "cleaner-checkpoint"),
        (answer_before_votes_are_durable, "raft-vote", "kill", "vote-forgotten"),
    ],
)
def test_mutations_are_found(
    mutation: Callable[[], AbstractContextManager[None]], scenario: str, fault: str, kind: str
) -> None:
    assert kinds(scenario, fault) == set()
    with mutation():
        assert kinds(scenario, fault) == {kind}


def kinds(scenario: str, fault: str) -> set[str]:
    return {kind for outcome in enumeration_of(scenario).run(fault) for kind in outcome.kinds}
