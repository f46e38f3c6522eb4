"""The segments of one partition in object storage, as `__remote_log_metadata` describes them (KIP-405).

A segment is known by an id of its own, since leaders may copy the same offsets more than once. It goes through

    COPY_SEGMENT_STARTED ──▶ COPY_SEGMENT_FINISHED ──▶ DELETE_SEGMENT_STARTED ──▶ DELETE_SEGMENT_FINISHED
             └──────────────────────────────────────────────▲

and only a finished one is read. Updates that don't follow the arrows are ignored: they come from a broker that no
longer leads the partition. Giving up a copy is recorded: if the copy was finished before that record, it stays,
since replicas rely on it by then. What is deleted is forgotten but for its id, so that a late repetition of its first
record does not bring it back; of the ids the last thousand are kept.

A segment lists the leader epochs of its records. After an unclean election two segments may hold different records
under the same offsets, so one is always looked up by offset and epoch, along the epochs of the leader's log.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from penstock.model.ids import Uuid

NOTHING_COPIED = -1
_AFTER_ALL = 2**63 - 1
# A record is repeated within seconds.
GONE_KEPT_MAX = 1_000


class SegmentState(IntEnum):
    """Kafka's RemoteLogSegmentState."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class PartitionDeleteState(IntEnum):
    """Kafka's RemotePartitionDeleteState."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


_NEXT = {
    SegmentState.COPY_SEGMENT_STARTED: (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED),
    SegmentState.COPY_SEGMENT_FINISHED: (SegmentState.DELETE_SEGMENT_STARTED,),
    SegmentState.DELETE_SEGMENT_STARTED: (SegmentState.DELETE_SEGMENT_FINISHED,),
    SegmentState.DELETE_SEGMENT_FINISHED: (),
}


class EpochStart(NamedTuple):
    """`epoch` begins with the record at `start_offset`."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A copied segment: its first and last offset, both included, and where its epochs start."""

    segment_id: Uuid
    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    epochs: tuple[EpochStart, ...]
    state: SegmentState = SegmentState.COPY_SEGMENT_STARTED
    # The broker of the last event, and its time.
    broker_id: int = -1
    event_timestamp_ms: int = 0
    has_aborted_transactions: bool = True
    # Whether its objects are compressed or encrypted; `size_bytes` is that of the log before.
    is_sealed: bool = False

    @property
    def is_readable(self) -> bool:
        """Whether all of it is in object storage."""
        return self.state is SegmentState.COPY_SEGMENT_FINISHED

    @property
    def first_offset(self) -> int:
        """The first offset that is read of it: what is before its first epoch was deleted when it was copied."""
        return max(self.start_offset, self.epochs[0].start_offset) if self.epochs else self.start_offset

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """Each epoch of the segment with its first and last offset in it."""
        for number, (epoch, start) in enumerate(self.epochs):
            last = self.epochs[number + 1].start_offset - 1 if number + 1 < len(self.epochs) else self.end_offset
            yield epoch, max(start, self.start_offset), last


class RemotePartition:
    """The segments of one partition, by id and by epoch."""

    __slots__ = ("_by_epoch", "_by_id", "_gone", "deletion", "has_deleted", "topic")

    def __init__(self, topic: str = "") -> None:
        self.topic = topic
        self.deletion: PartitionDeleteState | None = None
        self._by_id: dict[Uuid, RemoteSegment] = {}
        # Whether segments were deleted, and the ids of the last ones.
        self.has_deleted = False
        self._gone: dict[Uuid, None] = {}
        # By epoch, the first offset of each readable segment in that epoch, its last, and its id; in order.
        self._by_epoch: dict[int, list[tuple[int, int, Uuid]]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, segment_id: Uuid) -> RemoteSegment | None:
        """A segment that is not deleted."""
        return self._by_id.get(segment_id)

    def segments(self) -> list[RemoteSegment]:
        """Every segment that is not deleted, in the order of their first offsets."""
        return sorted(self._by_id.values(), key=lambda segment: (segment.start_offset, segment.end_offset))

    def size_before(self, offset: int) -> int:
        """The bytes of all segments that begin before `offset`, finished or not."""
        return sum(segment.size_bytes for segment in self._by_id.values() if segment.start_offset < offset)

    def begin(self, segment: RemoteSegment) -> bool:
        """A copy was begun; False when the segment is known, or was deleted."""
        if segment.segment_id in self._by_id or segment.segment_id in self._gone:
            return False
        self._put(segment)
        return True

    def update(
        self,
        segment_id: Uuid,
        state: SegmentState,
        broker_id: int,
        timestamp_ms: int,
        *,
        only_unfinished: bool = False,
    ) -> bool:
        """A segment's state changed, or with `only_unfinished` a copy is given up; False when that is not possible."""
        known = self._by_id.get(segment_id)
        if known is None or state not in _NEXT[known.state]:
            return False
        if only_unfinished and known.state is not SegmentState.COPY_SEGMENT_STARTED:
            return False
        assert state > known.state, "states only go forward"
        assert segment_id not in self._gone
        self._take_out(known)
        if state is SegmentState.DELETE_SEGMENT_FINISHED:
            self.has_deleted = True
            self._gone[segment_id] = None
            if len(self._gone) > GONE_KEPT_MAX:
                del self._gone[next(iter(self._gone))]
        else:
            self._put(replace(known, state=state, broker_id=broker_id, event_timestamp_ms=timestamp_ms))
        return True

    def find(self, lineage: Sequence[EpochStart], offset: int) -> RemoteSegment | None:
        """The readable segment with the record at `offset` that the epochs of `lineage` wrote."""
        slot = bisect_right(lineage, offset, key=lambda entry: entry.start_offset)
        return self.find_in_epoch(lineage[slot - 1].epoch, offset) if slot else None

    def extended(self, lineage: Sequence[EpochStart], start_offset: int) -> Sequence[EpochStart]:
        """The lineage of a log that starts at `start_offset`, with epochs that only the tier knows of.

        A log may know less of its beginning than it should: it was cut, or lost what it knew of deleted records.
        """
        if lineage and lineage[0].start_offset <= start_offset:
            return lineage
        first = lineage[0] if lineage else EpochStart(_AFTER_ALL, _AFTER_ALL)
        starts: dict[int, int] = {}
        for segment in self._by_id.values():
            if segment.is_readable:
                for epoch, begin, _ in segment.spans():
                    if epoch <= first.epoch and begin < first.start_offset:
                        starts[epoch] = min(begin, starts.get(epoch, begin))
        found = [EpochStart(first.epoch, starts.pop(first.epoch, first.start_offset))] if lineage else []
        for epoch in sorted(starts, reverse=True):
            if not found or starts[epoch] < found[-1].start_offset:
                found.append(EpochStart(epoch, starts[epoch]))
        assert all(later.start_offset < earlier.start_offset for earlier, later in pairwise(found)), (
            "epochs are in order"
        )
        return [*reversed(found), *lineage[1:]]

    def find_in_epoch(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The readable segment with an epoch's record at `offset`; of several, the one that starts last."""
        rows = self._by_epoch.get(epoch, ())
        for number in range(bisect_right(rows, offset, key=lambda row: row[0]) - 1, -1, -1):
            if rows[number][1] >= offset:
                assert rows[number][0] <= offset <= rows[number][1]
                assert self._by_id[rows[number][2]].is_readable, "only finished copies are listed by epoch"
                return self._by_id[rows[number][2]]
        return None

    def highest_offset(self, lineage: Sequence[EpochStart]) -> int:
        """The last offset up to which the tier has this lineage's records; -1 when it has none."""
        for number in range(len(lineage) - 1, -1, -1):
            rows = self._by_epoch.get(lineage[number].epoch)
            if rows:
                highest = max(last for _, last, _ in rows)
                if number + 1 < len(lineage):
                    highest = min(highest, lineage[number + 1].start_offset - 1)
                if highest >= lineage[number].start_offset:
                    return highest
        return NOTHING_COPIED

    def earliest_offset(self) -> int | None:
        """The first offset in the tier, of whatever epoch; None when it has nothing."""
        return min((one.first_offset for one in self._by_id.values() if one.is_readable), default=None)

    def along(self, lineage: Sequence[EpochStart]) -> list[RemoteSegment]:
        """The readable segments with records of this lineage, in order."""
        return [segment for segment in self.segments() if segment.is_readable and is_within(segment, lineage)]

    def _put(self, segment: RemoteSegment) -> None:
        self._by_id[segment.segment_id] = segment
        assert segment.segment_id not in self._gone, "nothing brings a deleted segment back"
        if segment.is_readable:
            for epoch, first, last in segment.spans():
                if first <= last:
                    insort(self._by_epoch.setdefault(epoch, []), (first, last, segment.segment_id))

    def _take_out(self, segment: RemoteSegment) -> None:
        del self._by_id[segment.segment_id]
        if segment.is_readable:
            for epoch, first, last in segment.spans():
                if first <= last:
                    self._by_epoch[epoch].remove((first, last, segment.segment_id))


def is_within(segment: RemoteSegment, lineage: Sequence[EpochStart]) -> bool:
    """Whether a segment has any record of this lineage."""
    ends = {entry.epoch: following.start_offset for entry, following in pairwise(lineage)}
    starts = {entry.epoch: entry.start_offset for entry in lineage}
    return any(
        epoch in starts and last >= starts[epoch] and (epoch not in ends or first < ends[epoch])
        for epoch, first, last in segment.spans()
    )
