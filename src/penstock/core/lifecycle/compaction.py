"""Which part of a log may be compacted, whether that is worthwhile, and which segments are merged.

A compacted log has a clean head, where every key has at most one record, a dirty part after it, and an uncleanable
tail: the newest segment, everything not yet replicated or in an open transaction, and records younger than
`min.compaction.lag.ms`. Cleaning reads the dirty part to learn each key's latest offset, then copies head and dirty
part without the superseded records. The boundaries lie between segments; only the end of the head may lie inside one,
where the map of keys was full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.lifecycle.retention import SegmentFacts

INT64_MAX = 2**63 - 1
RELATIVE_OFFSET_MAX = 2**31 - 1

# Segments are swapped on the event loop, a few renames each; this bounds how long one swap takes.
GROUP_SEGMENTS_MAX = 64


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Kafka's compaction properties, with its defaults."""

    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What can be cleaned: `first_dirty_offset` up to `end_offset`, and the bytes before and between them.

    `is_forced` is set if `max.compaction.lag.ms` or expired tombstones do not allow waiting for a higher dirty ratio.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_forced: bool
    is_due: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def urgency(self) -> tuple[bool, float]:
        """Of several logs, the one with the largest urgency is cleaned first."""
        return self.is_forced, self.dirty_ratio


def first_dirty_offset(checkpoint: int | None, start_offset: int, end_offset: int) -> int:
    """Where the dirty part begins. A checkpoint outside the log's offsets is ignored."""
    if checkpoint is None or not start_offset <= checkpoint <= end_offset:
        return start_offset
    return checkpoint


def plan_compaction(
    segments: Sequence[SegmentFacts],
    settings: CompactionSettings,
    now_ms: int,
    *,
    first_dirty: int,
    last_stable_offset: int,
    earliest_dirty_timestamp_ms: int | None = None,
    tombstones_expired: bool = False,
) -> CompactionPlan:
    """What can be cleaned, and whether it is time to. `segments` are in order, the newest last.

    `earliest_dirty_timestamp_ms` is the smallest timestamp of a dirty segment's first batch, if
    `max.compaction.lag.ms` needs it. `tombstones_expired` is set if the head holds some that may go.
    """
    cleanable = _count_cleanable(segments, settings, now_ms, first_dirty, last_stable_offset)
    assert 0 <= cleanable < max(1, len(segments)), "the newest segment is never cleaned"
    end_offset = max(first_dirty, segments[cleanable - 1].end_offset if cleanable else first_dirty)
    clean_bytes = sum(segment.size_bytes for segment in segments[:cleanable] if segment.base_offset < first_dirty)
    dirty_bytes = sum(segment.size_bytes for segment in segments[:cleanable] if segment.end_offset > first_dirty)
    is_late = (
        dirty_bytes > 0
        and earliest_dirty_timestamp_ms is not None
        and earliest_dirty_timestamp_ms < now_ms - max(settings.max_compaction_lag_ms, 0)
    )
    assert end_offset >= first_dirty
    assert not cleanable or segments[cleanable - 1].end_offset <= last_stable_offset, "only what is decided is cleaned"
    is_forced = is_late or (tombstones_expired and clean_bytes > 0)
    total_bytes = clean_bytes + dirty_bytes
    is_dirty = dirty_bytes > settings.min_cleanable_dirty_ratio * total_bytes
    return CompactionPlan(first_dirty, end_offset, clean_bytes, dirty_bytes, is_forced, is_forced or is_dirty)


def _count_cleanable(
    segments: Sequence[SegmentFacts],
    settings: CompactionSettings,
    now_ms: int,
    first_dirty: int,
    last_stable_offset: int,
) -> int:
    """How many segments, counted from the oldest, may be cleaned; never the newest."""
    for number, segment in enumerate(segments[:-1]):
        is_young = (
            settings.min_compaction_lag_ms > 0
            and segment.end_offset > first_dirty
            and segment.max_timestamp_ms > now_ms - settings.min_compaction_lag_ms
        )
        if is_young or segment.end_offset > last_stable_offset:
            return number
    return max(len(segments) - 1, 0)


def max_segment_ms(segment_ms: int, max_compaction_lag_ms: int) -> int:
    """How old the newest segment of a compacted log may get: its records cannot be cleaned before it is rolled."""
    return min(segment_ms, max_compaction_lag_ms) if max_compaction_lag_ms > 0 else segment_ms


def group_segments(
    segments: Sequence[SegmentFacts], size_bytes_max: int, segment_count_max: int = GROUP_SEGMENTS_MAX
) -> list[list[SegmentFacts]]:
    """Neighbouring segments to be cleaned into one: at most `size_bytes_max` together, and within 2^31 offsets."""
    groups: list[list[SegmentFacts]] = []
    size_bytes = 0
    for segment in segments:
        size_bytes += segment.size_bytes
        group = groups[-1] if groups else []
        if (
            group
            and size_bytes <= size_bytes_max
            and len(group) < segment_count_max
            and segment.end_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
        ):
            group.append(segment)
        else:
            groups.append([segment])
            size_bytes = segment.size_bytes
    assert sum(map(len, groups)) == len(segments), "every segment is in one group"
    assert all(len(group) <= segment_count_max for group in groups)
    return groups
