"""Which segments retention lets go of."""

from __future__ import annotations

import pytest

from penstock.core.lifecycle.retention import RetentionPlan, RetentionSettings, SegmentFacts, plan_retention

NOW_MS = 1_000_000

# Four segments of ten records and 100 bytes, written 100 ms apart, the newest half full.
SEGMENTS = [
    SegmentFacts(0, 10, 100, NOW_MS - 400),
    SegmentFacts(10, 20, 100, NOW_MS - 300),
    SegmentFacts(20, 30, 100, NOW_MS - 200),
    SegmentFacts(30, 35, 50, NOW_MS - 100),
]


def plan(
    *,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    delete: bool = True,
    high_watermark: int = 35,
    start: int = 0,
    segments: list[SegmentFacts] = SEGMENTS,
) -> RetentionPlan:
    settings = RetentionSettings(retention_ms, retention_bytes, delete)
    return plan_retention(segments, settings, NOW_MS, high_watermark=high_watermark, log_start_offset=start)


def deleted(plan: RetentionPlan) -> list[int]:
    return sorted(plan.delete)


def test_without_limits_everything_stays() -> None:
    assert plan() == RetentionPlan(frozenset(), 0, 0)


@pytest.mark.parametrize(("retention_ms", "expected"), [(400, []), (399, [0]), (250, [0, 10]), (100, [0, 10, 20])])
def test_segments_older_than_the_limit_go(retention_ms: int, expected: list[int]) -> None:
    assert deleted(plan(retention_ms=retention_ms)) == expected


def test_the_newest_segment_goes_too_once_all_of_it_has_expired() -> None:
    assert plan(retention_ms=99) == RetentionPlan(frozenset({0, 10, 20, 30}), 35, 350)


def test_an_empty_newest_segment_never_goes() -> None:
    segments = [*SEGMENTS[:3], SegmentFacts(30, 30, 0, NOW_MS - 100)]
    assert deleted(plan(retention_ms=0, segments=segments)) == [0, 10, 20]


def test_a_young_segment_shields_what_lies_behind_it() -> None:
    segments = [SEGMENTS[0], SegmentFacts(10, 20, 100, NOW_MS), *SEGMENTS[2:]]
    assert deleted(plan(retention_ms=150, segments=segments)) == [0]


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [(350, []), (251, []), (250, [0]), (150, [0, 10]), (149, [0, 10]), (0, [0, 10, 20, 30])],
)
def test_segments_go_while_the_rest_still_fills_the_size(retention_bytes: int, expected: list[int]) -> None:
    assert deleted(plan(retention_bytes=retention_bytes)) == expected


def test_whichever_limit_comes_first() -> None:
    assert deleted(plan(retention_ms=350, retention_bytes=150)) == [0, 10]
    assert deleted(plan(retention_ms=150, retention_bytes=250)) == [0, 10, 20]


@pytest.mark.parametrize(("high_watermark", "expected"), [(9, []), (10, [0]), (34, [0, 10, 20]), (35, [0, 10, 20, 30])])
def test_records_that_are_not_replicated_stay(high_watermark: int, expected: list[int]) -> None:
    assert deleted(plan(retention_ms=0, high_watermark=high_watermark)) == expected


@pytest.mark.parametrize(
    ("start", "expected"), [(9, []), (10, [0]), (25, [0, 10]), (34, [0, 10, 20]), (35, [0, 10, 20, 30])]
)
def test_segments_before_the_start_offset_go_whatever_the_policy(start: int, expected: list[int]) -> None:
    got = plan(start=start, delete=False, retention_ms=0, retention_bytes=0)
    assert deleted(got) == expected
    assert got.start_offset == start


def test_a_log_of_no_segments_has_nothing_to_lose() -> None:
    assert deleted(plan(segments=[], retention_ms=0)) == []
