"""Producers that wait for slow groups: how long, and when not."""

from __future__ import annotations

import pytest

from penstock.core.security.backpressure import GroupProgress, throttle_ms


@pytest.mark.parametrize(
    ("lag", "expected_ms"), [(0, 0), (100, 0), (101, 10), (150, 500), (199, 990), (200, 1000), (10**9, 1000)]
)
def test_the_throttle_grows_with_the_excess_up_to_a_bound(lag: int, expected_ms: int) -> None:
    assert throttle_ms(lag, 100, 1000) == expected_ms


def test_a_small_excess_over_a_large_limit_is_not_nothing() -> None:
    assert throttle_ms(1_000_001, 1_000_000, 1000) == 1
    assert throttle_ms(10**9, 1, 0) == 0


def test_the_slowest_group_counts_and_what_is_not_known_does_not() -> None:
    progress = GroupProgress()
    here = ("t", 0)
    assert progress.slowest(here, ["a"], 0, 5000) is None
    progress.heard("a", {here: 70}, 0)
    progress.heard("b", {here: 50}, 1000)
    progress.heard("c", {("t", 1): 1}, 1000)
    assert progress.slowest(here, ["a", "b", "c"], 1000, 5000) == 50
    assert progress.slowest(here, ["a"], 1000, 5000) == 70
    # Progress that was reported too long ago delays no produce.
    assert progress.slowest(here, ["a", "b"], 5001, 5000) == 50
    assert progress.slowest(here, ["a", "b"], 6001, 5000) is None
    progress.keep(["a"])
    assert progress.slowest(here, ["a", "b"], 5000, 5000) == 70
