"""Plans which offsets a micro-batch reads and how they are split into tasks. Pure: no cluster needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from penstock.model.ids import TopicPartition
from penstock.spark.fetching import OffsetRange

# The form of offsets in a checkpoint: {"topic": {"0": 23}}, as in Spark's own connector.
Stored = dict[str, dict[str, int]]
Offsets = dict[TopicPartition, int]


def to_stored(offsets: Mapping[TopicPartition, int]) -> Stored:
    """Offsets in a checkpoint's form."""
    stored: Stored = {}
    for partition, offset in sorted(offsets.items()):
        stored.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return stored


def from_stored(stored: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets from a checkpoint."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in stored.items()
        for partition, offset in partitions.items()
    }


def rate_limited(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """End offsets that read at most about `limit` records, in proportion to each partition's backlog.

    A partition with a backlog gets at least one offset, so that none starves.
    """
    waiting = {each: end - start.get(each, 0) for each, end in latest.items() if end > start.get(each, 0)}
    total = sum(waiting.values())
    if total <= limit:
        return dict(latest)
    ends = dict(latest)
    for each, count in waiting.items():
        share = limit * count // total
        ends[each] = min(start.get(each, 0) + max(share, 1), latest[each])
    return ends


def ranges_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The non-empty ranges. A partition that is not in `start` is new and read from its beginning."""
    return [
        OffsetRange(each.topic, each.partition, start.get(each, 0), until)
        for each, until in sorted(end.items())
        if until > start.get(each, 0)
    ]


def split_ranges(
    ranges: Sequence[OffsetRange], partitions_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """The same records in more, smaller ranges: at least `partitions_min` in all, none larger than `records_max`."""
    wanted = list(ranges)
    if records_max is not None:
        pieces = [(each, -(-(each.end - each.start) // records_max)) for each in wanted]
        wanted = [part for each, count in pieces for part in _cut(each, count)]
    if partitions_min is None or len(wanted) >= partitions_min:
        return wanted
    total = sum(each.end - each.start for each in wanted)
    counts = {each: max(1, partitions_min * (each.end - each.start) // total) for each in wanted}
    # Rounding down leaves some over; the ranges with the largest pieces get them.
    for _ in range(partitions_min - sum(counts.values())):
        largest = max(counts, key=lambda each: (each.end - each.start) / counts[each])
        counts[largest] += 1
    return [part for each in wanted for part in _cut(each, counts[each])]


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    size = whole.end - whole.start
    count = max(1, min(count, size))
    edges = [whole.start + size * index // count for index in range(count + 1)]
    return [OffsetRange(whole.topic, whole.partition, low, high) for low, high in pairwise(edges) if high > low]
