"""Burrow's rules, one test each."""

from __future__ import annotations

from penstock.core.group.offsets.lag import WINDOW_MS_MIN, LagStatus, judge, worst
from penstock.core.group.offsets.offsets import Commit

NOW = 1_000_000_000
MOVING = [Commit(100, NOW - 50_000), Commit(150, NOW - 25_000), Commit(200, NOW - 1_000)]
STANDING = [Commit(100, NOW - 50_000), Commit(100, NOW - 25_000), Commit(100, NOW - 1_000)]


def test_a_consumer_at_the_end_is_ok_however_long_ago_it_committed() -> None:
    assert judge([Commit(100, NOW - 10**9)], 50, 0, NOW) is LagStatus.OK


def test_a_consumer_that_moves_on_with_a_steady_lag_is_ok() -> None:
    assert judge(MOVING, 50, 50, NOW) is LagStatus.OK


def test_a_consumer_that_moves_on_and_falls_behind_is_warned_of() -> None:
    assert judge(MOVING, 50, 51, NOW) is LagStatus.WARN


def test_a_consumer_that_commits_the_same_offset_stalls() -> None:
    assert judge(STANDING, 50, 60, NOW) is LagStatus.STALL


def test_a_consumer_that_had_caught_up_at_the_start_of_the_window_is_ok() -> None:
    assert judge(STANDING, 0, 60, NOW) is LagStatus.OK


def test_a_consumer_that_fell_silent_has_stopped() -> None:
    late = MOVING[-1].timestamp_ms + WINDOW_MS_MIN + 1
    assert judge(MOVING, 50, 50, late) is LagStatus.STOP
    assert judge(MOVING, 50, 50, late - 1) is not LagStatus.STOP


def test_a_slow_pace_of_commits_earns_a_longer_patience() -> None:
    slow = [Commit(100, NOW - 600_000), Commit(200, NOW - 100_000)]
    assert judge(slow, 50, 50, NOW) is LagStatus.OK
    assert judge(slow, 50, 50, NOW + 400_001) is LagStatus.STOP


def test_a_group_is_as_well_as_its_worst_partition() -> None:
    assert worst([]) is LagStatus.OK
    assert worst([LagStatus.OK, LagStatus.STALL, LagStatus.WARN]) is LagStatus.STALL
