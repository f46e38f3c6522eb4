"""What retention and compaction need to know: each segment's offsets, size and times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from penstock.core.lifecycle.retention import SegmentFacts
from penstock.storage.segment import Segment


def facts_of(segments: Sequence[Segment], end_offset: int) -> list[SegmentFacts]:
    """The facts of a log's segments, oldest first. May load indexes from disk, and releases them again."""
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    return [_facts(segment, end) for segment, end in zip(segments, ends, strict=True)]


def _facts(segment: Segment, end_offset: int) -> SegmentFacts:
    with segment.visited():
        timestamp = segment.max_timestamp if segment.size else -1
    if timestamp < 0:
        timestamp = segment.modified_ms()
    return SegmentFacts(segment.base_offset, end_offset, segment.size, timestamp)


def earliest_timestamp(segments: Sequence[Segment], offset: int) -> int | None:
    """The smallest first timestamp of the rolled segments that reach past `offset`."""
    timestamps = []
    for segment, following in pairwise(segments):
        if following.base_offset > offset and segment.size:
            with segment.visited():
                timestamps.append(segment.begin_timestamp())
    return min((timestamp for timestamp in timestamps if timestamp > 0), default=None)
