"""Which part of a log may be cleaned, when it is time to, and which segments become one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lifecycle.compaction import (
    CompactionPlan,
    CompactionSettings,
    first_dirty_offset,
    group_segments,
    max_segment_ms,
    plan_compaction,
)
from penstock.core.lifecycle.retention import SegmentFacts

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
    first_dirty: int = 0,
    stable: int = 35,
    ratio: float = 0.5,
    min_lag: int = 0,
    max_lag: int = 2**63 - 1,
    earliest: int | None = None,
    tombstones_expired: bool = False,
    segments: list[SegmentFacts] = SEGMENTS,
) -> CompactionPlan:
    return plan_compaction(
        segments,
        CompactionSettings(ratio, min_lag, max_lag),
        NOW_MS,
        first_dirty=first_dirty,
        last_stable_offset=stable,
        earliest_dirty_timestamp_ms=earliest,
        tombstones_expired=tombstones_expired,
    )


def test_a_log_that_was_never_cleaned_is_dirty_up_to_its_newest_segment() -> None:
    assert plan() == CompactionPlan(0, 30, 0, 300, is_forced=False, is_due=True)


def test_a_log_of_one_segment_has_nothing_to_clean() -> None:
    found = plan(segments=SEGMENTS[-1:], first_dirty=30)
    assert (found.end_offset, found.dirty_bytes, found.is_due) == (30, 0, False)


def test_the_dirty_ratio_must_be_exceeded() -> None:
    assert plan(first_dirty=20, ratio=1 / 3).dirty_ratio == 1 / 3
    assert not plan(first_dirty=20, ratio=1 / 3).is_due
    assert plan(first_dirty=20, ratio=0.33).is_due


def test_a_clean_log_is_not_compacted_even_with_a_ratio_of_zero() -> None:
    assert not plan(first_dirty=30, ratio=0.0).is_due


def test_undecided_or_unreplicated_records_keep_their_whole_segment_and_what_follows() -> None:
    assert plan(stable=20).end_offset == 20
    assert plan(stable=19).end_offset == 10
    assert plan(stable=5).dirty_bytes == 0


def test_young_records_keep_their_segment_and_what_follows() -> None:
    assert plan(min_lag=250).end_offset == 20
    assert plan(min_lag=301).end_offset == 10
    assert plan(min_lag=300).end_offset == 20


def test_a_segment_that_is_clean_already_may_be_young() -> None:
    assert plan(min_lag=350, first_dirty=20).end_offset == 20
    old_after_young = [SegmentFacts(0, 10, 100, NOW_MS), SegmentFacts(10, 20, 100, 0), SEGMENTS[2]]
    assert plan(min_lag=350, first_dirty=10, segments=old_after_young).end_offset == 20


def test_the_end_never_lies_before_the_first_dirty_offset() -> None:
    assert plan(first_dirty=25, stable=12).end_offset == 25


def test_a_head_that_ends_within_a_segment_counts_that_as_clean_and_dirty() -> None:
    found = plan(first_dirty=15)
    assert (found.clean_bytes, found.dirty_bytes) == (200, 200)


def test_the_longest_lag_forces_a_cleaning_below_the_ratio() -> None:
    assert not plan(first_dirty=20, max_lag=200, earliest=NOW_MS - 200).is_due
    late = plan(first_dirty=20, max_lag=200, earliest=NOW_MS - 201)
    assert (late.is_due, late.is_forced) == (True, True)
    assert not plan(first_dirty=30, max_lag=200, earliest=NOW_MS - 999).is_due


def test_tombstones_whose_time_has_come_force_a_cleaning_of_the_head() -> None:
    assert plan(first_dirty=30, tombstones_expired=True).is_due
    assert not plan(first_dirty=0, stable=0, tombstones_expired=True).is_due


def test_forced_logs_come_first_then_the_dirtiest() -> None:
    forced = plan(first_dirty=20, max_lag=200, earliest=0)
    dirty, dirtier = plan(first_dirty=10), plan()
    assert sorted([dirtier, forced, dirty], key=lambda each: each.urgency) == [dirty, dirtier, forced]


def test_a_checkpoint_outside_the_log_is_not_believed() -> None:
    assert first_dirty_offset(None, 5, 50) == 5
    assert first_dirty_offset(4, 5, 50) == 5
    assert first_dirty_offset(51, 5, 50) == 5
    assert first_dirty_offset(5, 5, 50) == 5
    assert first_dirty_offset(50, 5, 50) == 50


def test_the_longest_lag_bounds_the_age_of_the_newest_segment() -> None:
    assert max_segment_ms(1000, 2**63 - 1) == 1000
    assert max_segment_ms(1000, 10) == 10
    assert max_segment_ms(1000, 0) == 1000


def bases(groups: list[list[SegmentFacts]]) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in groups]


def test_neighbours_are_grouped_up_to_a_segment_s_size() -> None:
    assert bases(group_segments(SEGMENTS, 200)) == [[0, 10], [20, 30]]
    assert bases(group_segments(SEGMENTS, 199)) == [[0], [10], [20, 30]]
    assert bases(group_segments(SEGMENTS, 10)) == [[0], [10], [20], [30]]
    assert bases(group_segments(SEGMENTS, 10_000, 3)) == [[0, 10, 20], [30]]


def test_a_group_spans_less_than_two_to_the_31_offsets() -> None:
    far = 2**31
    fits = [SegmentFacts(0, 10, 1, 0), SegmentFacts(10, far, 1, 0)]
    too_far = [SegmentFacts(0, 10, 1, 0), SegmentFacts(10, far + 1, 1, 0)]
    assert bases(group_segments(fits, 100)) == [[0, 10]]
    assert bases(group_segments(too_far, 100)) == [[0], [10]]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=20), st.integers(1, 500))
def test_groups_lose_and_reorder_nothing(sizes: list[int], size_max: int) -> None:
    segments = [SegmentFacts(10 * number, 10 * number + 10, size, 0) for number, size in enumerate(sizes)]
    groups = group_segments(segments, size_max)
    assert [segment for group in groups for segment in group] == segments
    assert all(len(group) == 1 or sum(each.size_bytes for each in group) <= size_max for group in groups)
