"""Pauses between attempts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.backoff import Backoff, pause_after


def test_pause_doubles_with_each_failure_up_to_the_longest() -> None:
    backoff = Backoff(50, 300)
    assert [backoff.failed() for _ in range(5)] == [50, 100, 200, 300, 300]
    backoff.succeeded()
    assert backoff.failed() == 50


def test_pause_in_seconds() -> None:
    assert [pause_after(failures, 0.5, 30.0) for failures in (1, 2, 7, 100)] == [0.5, 1.0, 30.0, 30.0]


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(1, 10**9))
def test_pause_never_shrinks_nor_exceeds_the_longest(failures: int, first: int, longest: int) -> None:
    pause = pause_after(failures, first, longest)
    assert min(first, longest) <= pause <= longest
    assert pause <= pause_after(failures + 1, first, longest)
