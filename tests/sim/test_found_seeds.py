"""Seeds that found a bug once, as long as the simulator still draws the same story from them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.schedule import (
    Plan,
    draw,
    draw_failing,
    draw_moving,
    draw_shared,
    draw_stalled,
    draw_tiered,
    draw_transactional,
)
from sim.schedule_recovery import draw_recovery
from sim.schedule_storage import draw_storage
from sim.simulate import simulate

FOUND: dict[str, tuple[Callable[[int], Plan], int]] = {
    "a batch behind refused ones of which the first is stored": (draw, 200148),
    "a topic deleted while its broker closes logs": (draw_moving, 200015),
    "a directory that failed while a replica moved there": (draw_moving, 4),
    "a replica that stayed where it was, announced in a directory that failed": (draw_moving, 208),
    "a disk that failed and came back without its last writes": (draw_failing, 17),
    "an acknowledgement of the quorum that was on no disk": (draw_stalled, 4),
    "a directory taken offline for a lack of descriptors": (draw_storage, 1),
    "a log failed for a lack of descriptors when its directory was synced": (draw_storage, 2000065),
    "a new log failed for a lack of descriptors at its first sync": (draw_storage, 2000169),
    "a damaged length that took in the rest of a log": (draw_storage, 2000418),
    "a damaged last batch that was taken for a torn one": (draw_storage, 2000482),
    "producers of a long segment read in one turn when it was truncated": (draw_recovery, 19),
    "a broken disk noticed only when a replica was placed": (draw_recovery, 208),
    "a disk that failed under a move alone": (draw_failing, 47),
    "a replica that came back before its former log was removed": (draw_moving, 730049),
    "a broker distrusted as a whole because of one disk": (draw_moving, 712055),
    "a partition moved away while a segment is copied": (draw_tiered, 200146),
    "a refused batch forgotten because a clock jumped": (draw, 1000383),
    "the others removed before the only replica left had synced": (draw_transactional, 1102046),
    "the others removed although the only replica left had lost power": (draw, 1006846),
    "segments deleted by the leader before": (draw_tiered, 400027),
    "a record accepted by a member that held it under the leader before": (draw_shared, 400394),
    "records handed out by a broker that is cut off and was replaced": (draw_shared, 610409),
    "a producer shut out by a coordinator that was replaced": (draw_transactional, 500117),
    "a copy of a marker that came late and ended the next transaction": (draw_transactional, 1103558),
    "a copy of a marker that came late and committed the next offsets": (draw_transactional, 1103799),
    "share state deleted for a snapshot that a full disk refused": (draw_shared, 400115),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(name: str) -> None:
    draw_plan, seed = FOUND[name]
    assert not simulate(draw_plan(seed)).anomalies
