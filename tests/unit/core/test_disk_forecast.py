"""When a disk will be full at the rate of the last hours."""

from __future__ import annotations

from penstock.core.lifecycle.disk_forecast import SAMPLE_MS, SPAN_MS_MIN, WINDOW_MS, DiskForecast

MB = 10**6
HOUR_MS = 3_600_000


def forecast(growths: list[int], used: int = 1_000 * MB) -> tuple[DiskForecast, int]:
    """A disk that was looked at once a minute, with what it grew by in each."""
    made = DiskForecast()
    now_ms = 0
    made.note(now_ms, used)
    for growth in growths:
        now_ms += SAMPLE_MS
        used += growth
        made.note(now_ms, used)
    return made, used


def test_there_is_no_forecast_before_it_has_seen_enough() -> None:
    made, used = forecast([MB] * (SPAN_MS_MIN // SAMPLE_MS - 1))
    assert made.bytes_per_second() is None
    assert made.full_in_ms(used, 2_000 * MB) is None


def test_a_steady_rate_reaches_the_limit_in_time() -> None:
    made, used = forecast([6 * MB] * 60)
    assert made.bytes_per_second() == 6 * MB / 60
    assert made.full_in_ms(used, used + 9 * 60 * 6 * MB) == 9 * HOUR_MS
    assert made.full_in_ms(used, used - 1) == 0


def test_one_large_deletion_does_not_hide_the_rate() -> None:
    made, _ = forecast([6 * MB] * 30 + [-900 * MB] + [6 * MB] * 29)
    assert made.bytes_per_second() == 6 * MB / 60


def test_deletions_that_come_regularly_are_part_of_the_rate() -> None:
    made, used = forecast(([6 * MB] * 4 + [-24 * MB]) * 12)
    assert made.bytes_per_second() == 0
    assert made.full_in_ms(used, 10_000 * MB) is None
    made, _ = forecast(([6 * MB] * 4 + [-18 * MB]) * 12)
    assert made.bytes_per_second() == 6 * MB / 300


def test_only_the_last_hours_count_and_one_look_a_minute() -> None:
    made, used = forecast([60 * MB] * 60 + [MB] * (WINDOW_MS // SAMPLE_MS))
    assert made.bytes_per_second() == MB / 60
    made.note(WINDOW_MS * 2, used)
    made.note(WINDOW_MS * 2 + 5_000, used + 500 * MB)
    assert made.bytes_per_second() is not None
    assert (made.bytes_per_second() or 0) < MB / 60


def test_a_disk_that_does_not_fill_is_never_full() -> None:
    made, used = forecast([0] * 60)
    assert made.full_in_ms(used, 2_000 * MB) is None


def test_two_looks_that_are_far_apart_are_enough() -> None:
    made = DiskForecast()
    assert made.bytes_per_second() is None
    made.note(0, 0)
    made.note(SPAN_MS_MIN, SPAN_MS_MIN // 1000 * MB)
    assert made.bytes_per_second() == MB
