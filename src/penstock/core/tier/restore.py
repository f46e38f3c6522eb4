"""What a partition of a lost cluster can be rebuilt from: which segments are there, how they continue each other.

Nothing is known but the segments with a manifest. The one with the highest epoch, and of those the one that ends last,
is where the log ended for sure; the epochs of the log up to there lie beside it and say which records count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.core.tier.segments import EpochStart, RemotePartition, RemoteSegment, SegmentState


class Hole(NamedTuple):
    """Offsets that no segment has, the first and the last."""

    first: int
    last: int


def last_segments(segments: Iterable[RemoteSegment]) -> list[RemoteSegment]:
    """The segments at whose end a restored log may continue, the best first."""
    known = [segment for segment in segments if segment.epochs]
    return sorted(known, key=lambda segment: (segment.epochs[-1].epoch, segment.end_offset), reverse=True)


def readable_partition(segments: Iterable[RemoteSegment]) -> RemotePartition:
    """A partition that has all of these segments."""
    partition = RemotePartition()
    for segment in segments:
        partition.begin(segment)
        partition.update(segment.segment_id, SegmentState.COPY_SEGMENT_FINISHED, segment.broker_id, 0)
    return partition


def holes(partition: RemotePartition, lineage: Sequence[EpochStart], end_offset: int) -> list[Hole]:
    """What is missing of this lineage between its first segment and `end_offset`."""
    starts = [segment.first_offset for segment in partition.along(lineage)]
    found: list[Hole] = []
    offset = min(starts, default=end_offset)
    while offset < end_offset:
        segment = partition.find(lineage, offset)
        if segment is not None:
            offset = _end_within(segment, lineage, offset)
            continue
        # The next segment or epoch may have it again.
        borders = [*starts, *(entry.start_offset for entry in lineage), end_offset]
        after = min(border for border in borders if border > offset)
        assert offset < after <= end_offset, "every step comes closer to the end"
        if found and found[-1].last == offset - 1:
            found[-1] = Hole(found[-1].first, after - 1)
        else:
            found.append(Hole(offset, after - 1))
        offset = after
    assert all(one.first <= one.last for one in found)
    assert all(earlier.last + 1 < later.first for earlier, later in pairwise(found)), "holes are apart and in order"
    return found


def _end_within(segment: RemoteSegment, lineage: Sequence[EpochStart], offset: int) -> int:
    """The offset after the last one that a segment has of the epoch that wrote `offset`."""
    number = max(number for number, entry in enumerate(lineage) if entry.start_offset <= offset)
    last = next(last for epoch, first, last in segment.spans() if epoch == lineage[number].epoch and last >= offset)
    return min(last + 1, lineage[number + 1].start_offset) if number + 1 < len(lineage) else last + 1
