"""How many workers there should be."""

from __future__ import annotations

import pytest

from penstock.app.policy import RetryPolicy
from penstock.app.running.scaling import Bounds, Scaler


def test_scales_out_at_once_and_in_after_a_delay_within_bounds() -> None:
    scaler = Scaler(Bounds(1, 4, lag_records=1000, shrink_after_s=60))
    assert scaler.wanted(1, 500, 0, now=0) == 1
    assert scaler.wanted(1, 2500, 0, now=1) == 3
    assert scaler.wanted(3, 90_000, 0, now=2) == 4
    assert scaler.wanted(4, 10, 0, now=3) == 4
    assert scaler.wanted(4, 10, 0, now=62) == 4
    assert scaler.wanted(4, 10, 0, now=63) == 3
    assert scaler.wanted(3, 3000, 0, now=64) == 3
    assert scaler.wanted(3, 10, 0, now=65) == 3
    assert scaler.wanted(3, 10, 0, now=125) == 2
    assert scaler.wanted(2, 0, 0, now=185) == 1
    assert scaler.wanted(1, 0, 0, now=999) == 1


def test_old_records_add_one_worker() -> None:
    scaler = Scaler(Bounds(1, 3, lag_records=0, lag_s=30))
    assert scaler.wanted(1, 5, 10, now=0) == 1
    assert scaler.wanted(1, 5, 31, now=1) == 2
    assert scaler.wanted(2, 0, 31, now=2) == 2


@pytest.mark.parametrize(
    ("backoff", "pauses"), [("exponential", [1, 2, 4, 8, 10, 10]), ("fixed", [1] * 6), ("none", [0] * 6)]
)
def test_pauses_between_tries(backoff: str, pauses: list[float]) -> None:
    policy = RetryPolicy(6, backoff, 1.0, 10.0)  # type: ignore[arg-type]
    assert [policy.pause_s(attempt) for attempt in range(1, 7)] == pauses
    assert RetryPolicy(6, lambda attempt: attempt / 2).pause_s(3) == 1.5
