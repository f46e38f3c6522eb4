"""Which segments of a tiered log leave the disk."""

from __future__ import annotations

import pytest

from penstock.core.lifecycle.retention import RetentionPlan, RetentionSettings, SegmentFacts, plan_local_retention

DAY_MS = 24 * 3_600_000
NOW_MS = 1_000 * DAY_MS
# Ten records and a hundred bytes each, from a month, a week and a day ago, and now.
AGES = (30, 8, 1, 0)
SEGMENTS = [SegmentFacts(10 * number, 10 * number + 10, 100, NOW_MS - age * DAY_MS) for number, age in enumerate(AGES)]


def plan(
    *, days: int = -1, size: int = -1, copied: int = -1, high_watermark: int = 40, start: int = 0
) -> RetentionPlan:
    local = RetentionSettings(days * DAY_MS if days >= 0 else -1, size)
    return plan_local_retention(
        SEGMENTS, local, NOW_MS, high_watermark=high_watermark, log_start_offset=start, copied_offset=copied
    )


def test_what_the_tier_does_not_have_stays_however_old_and_large_it_is() -> None:
    assert plan(days=0, size=0) == RetentionPlan(frozenset(), 0)


@pytest.mark.parametrize(("copied", "leaving"), [(8, []), (9, [0]), (18, [0]), (19, [0, 10]), (29, [0, 10])])
def test_segments_leave_that_are_copied_whole_and_old_enough(copied: int, leaving: list[int]) -> None:
    found = plan(days=5, copied=copied)
    assert sorted(found.delete) == leaving
    assert (found.start_offset, found.bytes_freed) == (10 * len(leaving), 100 * len(leaving))


def test_segments_leave_that_are_copied_while_the_rest_is_large_enough() -> None:
    assert sorted(plan(size=200, copied=29).delete) == [0, 10]
    assert sorted(plan(size=200, copied=9).delete) == [0]
    assert sorted(plan(copied=29).delete) == [], "without limits all of it stays"


def test_what_is_not_committed_stays() -> None:
    assert sorted(plan(days=0, copied=29, high_watermark=15).delete) == [0]


def test_deleted_records_leave_without_a_copy() -> None:
    found = plan(start=20)
    assert (sorted(found.delete), found.start_offset) == ([0, 10], 20)
    assert sorted(plan(days=5, copied=9, start=20).delete) == [0, 10]
    assert sorted(plan(days=5, copied=19, start=10).delete) == [0, 10]
