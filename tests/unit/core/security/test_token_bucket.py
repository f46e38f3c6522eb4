"""The bucket by which changes of the cluster are limited."""

from __future__ import annotations

import pytest

from penstock.core.security.quotas import TokenBucket, Windows

# Ten tokens at most, at one a second.
WINDOWS, LIMIT = Windows(10, 1_000), 1.0


@pytest.mark.parametrize(("taken", "throttle_ms"), [(0, 0), (9.5, 0), (10, 0), (10.5, 500), (25, 15_000)])
def test_a_debt_is_waited_for_and_what_is_left_is_not(taken: float, throttle_ms: int) -> None:
    bucket = TokenBucket(WINDOWS)
    bucket.take(taken, LIMIT, 0)
    assert bucket.throttle_ms(LIMIT, 0) == throttle_ms


def test_tokens_come_back_with_time_up_to_what_the_bucket_holds() -> None:
    bucket = TokenBucket(WINDOWS)
    bucket.take(15, LIMIT, 0)
    assert bucket.throttle_ms(LIMIT, 2_000) == 3_000
    assert bucket.throttle_ms(LIMIT, 5_000) == 0
    bucket.take(11, LIMIT, 1_000_000)
    assert bucket.throttle_ms(LIMIT, 1_000_000) == 1_000
    # A clock that goes back takes nothing away.
    assert bucket.throttle_ms(LIMIT, 999_000) == 1_000


def test_without_any_rate_a_debt_lasts_as_long_as_the_windows() -> None:
    bucket = TokenBucket(WINDOWS)
    bucket.take(1, 0.0, 0)
    assert bucket.throttle_ms(0.0, 0) == 10_000
