"""Which segments of a log to delete, by age, by size, and by the log's start offset.

Whole segments are deleted, the oldest first, and never one with records that are not yet replicated to all in-sync
replicas. The newest one is deleted too when all of it has expired or was deleted; the caller rolls it first. (Kafka
keeps one whose records were all deleted until it is rolled; a tenant whose storage is full would never roll it.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One segment: its offsets up to `end_offset` (the next segment's first), its size, and its newest timestamp.

    `max_timestamp_ms` is the file's modification time if its records carry no timestamps.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """Kafka's retention properties; -1 keeps forever. `delete` is whether cleanup.policy includes delete."""

    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = UNLIMITED
    delete: bool = True


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Base offsets of the segments to delete, and the log's start offset once they are gone.

    Of a tiered log, object storage has everything up to `copied_offset`.
    """

    delete: frozenset[int]
    start_offset: int
    bytes_freed: int = 0
    copied_offset: int = -1


def plan_retention(
    segments: Sequence[SegmentFacts],
    settings: RetentionSettings,
    now_ms: int,
    *,
    high_watermark: int,
    log_start_offset: int,
) -> RetentionPlan:
    """What to delete now, by whichever limit applies. `segments` are in order, the newest last."""
    doomed = _count_passed_by_start(segments, high_watermark, log_start_offset)
    if settings.delete:
        doomed = _count_over_size(segments, doomed, settings.retention_bytes, high_watermark)
        doomed = _count_expired(segments, doomed, settings.retention_ms, now_ms, high_watermark)
    assert 0 <= doomed <= len(segments)
    assert not doomed or segments[doomed - 1].end_offset <= high_watermark, "what is not replicated stays"
    gone = segments[:doomed]
    return RetentionPlan(
        frozenset(segment.base_offset for segment in gone),
        max(log_start_offset, gone[-1].end_offset) if gone else log_start_offset,
        sum(segment.size_bytes for segment in gone),
    )


def plan_local_retention(
    segments: Sequence[SegmentFacts],
    local: RetentionSettings,
    now_ms: int,
    *,
    high_watermark: int,
    log_start_offset: int,
    copied_offset: int,
) -> RetentionPlan:
    """What leaves the disk of a tiered log: segments that the tier has up to `copied_offset`, or that were deleted."""
    passed = plan_retention(
        segments,
        RetentionSettings(delete=False),
        now_ms,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
    )
    copied = plan_retention(
        segments,
        local,
        now_ms,
        high_watermark=min(high_watermark, copied_offset + 1),
        log_start_offset=log_start_offset,
    )
    assert passed.delete <= copied.delete or copied.delete <= passed.delete, "the oldest segments are deleted first"
    return replace(max(passed, copied, key=lambda plan: len(plan.delete)), copied_offset=copied_offset)


def _count_while(
    segments: Sequence[SegmentFacts], first: int, high_watermark: int, is_doomed: Callable[[SegmentFacts], bool]
) -> int:
    """How many segments, counted from the oldest, are deleted; an empty newest segment never is."""
    count = first
    for segment in segments[first:]:
        is_empty_newest = segment is segments[-1] and segment.size_bytes == 0
        if is_empty_newest or segment.end_offset > high_watermark or not is_doomed(segment):
            break
        count += 1
    assert first <= count <= len(segments)
    return count


def _count_passed_by_start(segments: Sequence[SegmentFacts], high_watermark: int, log_start_offset: int) -> int:
    return _count_while(segments, 0, high_watermark, lambda segment: segment.end_offset <= log_start_offset)


def _count_over_size(segments: Sequence[SegmentFacts], doomed: int, limit: int, high_watermark: int) -> int:
    """A segment is deleted while the remaining ones still reach the limit."""
    if limit < 0:
        return doomed
    excess = sum(segment.size_bytes for segment in segments[doomed:]) - limit

    def is_doomed(segment: SegmentFacts) -> bool:
        nonlocal excess
        excess -= segment.size_bytes
        return excess >= 0

    return _count_while(segments, doomed, high_watermark, is_doomed)


def _count_expired(
    segments: Sequence[SegmentFacts], doomed: int, retention_ms: int, now_ms: int, high_watermark: int
) -> int:
    if retention_ms < 0:
        return doomed
    return _count_while(
        segments, doomed, high_watermark, lambda segment: now_ms - segment.max_timestamp_ms > retention_ms
    )
