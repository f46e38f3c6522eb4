"""What to do next with a tiered partition: which segments to copy, and which to remove from object storage.

`retention.*` is about the whole log, wherever its segments are; `local.retention.*` only about the broker's disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock.core.tier.segments import EpochStart, RemoteSegment, SegmentState, is_within
from penstock.model.ids import Uuid

UNLIMITED = -1


class LocalSegment(Protocol):
    """A segment on disk; `end_offset` is the next one's first offset."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


LocalT = TypeVar("LocalT", bound=LocalSegment)


def segments_to_copy(
    local: Sequence[LocalT], highest_copied: int, last_stable_offset: int, start_offset: int
) -> list[LocalT]:
    """The rolled segments to copy, in order: all of their records are decided, and some are not in the tier."""
    return [
        segment
        for segment in local[:-1]
        if segment.size_bytes
        and segment.end_offset - 1 > highest_copied
        and segment.end_offset <= last_stable_offset
        and segment.end_offset > start_offset
    ]


@dataclass(frozen=True, slots=True)
class Expiry:
    """Segments to remove from object storage, and the log start offset that this makes necessary first."""

    delete: tuple[RemoteSegment, ...]
    start_offset: int


def plan_expiry(
    segments: Sequence[RemoteSegment],
    lineage: Sequence[EpochStart],
    local: Sequence[LocalSegment],
    *,
    start_offset: int,
    retention_ms: int,
    retention_bytes: int,
    now_ms: int,
    own_copies: frozenset[Uuid] = frozenset(),
) -> Expiry:
    """What retention removes from the tier, of all `segments` that are known.

    Removed are those before the log start offset, those that have expired, the oldest ones of a log that is too large,
    copies of no epoch that the leader knows, and copies that another leader began and never finished; `own_copies` are
    those that this leader is making.
    """
    doomed: dict[Uuid, RemoteSegment] = {}
    kept: list[RemoteSegment] = []
    for segment in segments:
        if segment.state is SegmentState.DELETE_SEGMENT_STARTED:
            doomed[segment.segment_id] = segment
        elif segment.state is SegmentState.COPY_SEGMENT_STARTED:
            if segment.segment_id not in own_copies:
                doomed[segment.segment_id] = segment
        elif segment.end_offset < start_offset or _is_of_a_lost_epoch(segment, lineage):
            doomed[segment.segment_id] = segment
        else:
            kept.append(segment)
    start = start_offset
    excess = _total_bytes(kept, lineage, local) - retention_bytes if retention_bytes != UNLIMITED else -1
    assert all(segment.is_readable for segment in kept), "only finished copies count for retention"
    for segment in kept:
        if not is_within(segment, lineage):
            continue
        is_expired = retention_ms != UNLIMITED and now_ms - segment.max_timestamp_ms > retention_ms
        if not is_expired and excess < segment.size_bytes:
            break
        excess -= segment.size_bytes
        doomed[segment.segment_id] = segment
        start = max(start, segment.end_offset + 1)
    assert start >= start_offset, "the log's start never moves back"
    unfinished = {one.segment_id for one in doomed.values() if one.state is SegmentState.COPY_SEGMENT_STARTED}
    assert not own_copies & unfinished, "a copy that is being made stays"
    return Expiry(tuple(doomed.values()), start)


def _is_of_a_lost_epoch(segment: RemoteSegment, lineage: Sequence[EpochStart]) -> bool:
    """Whether the leader's log has other records at its offsets. Where that log knows nothing, the tier is right.

    It knows nothing of epochs after its own either: then it is this leader that is behind.
    """
    if not lineage or segment.start_offset < lineage[0].start_offset or is_within(segment, lineage):
        return False
    return all(entry.epoch <= lineage[-1].epoch for entry in segment.epochs)


def _total_bytes(remote: Sequence[RemoteSegment], lineage: Sequence[EpochStart], local: Sequence[LocalSegment]) -> int:
    """The size of the log: what is only in the tier, and what is on disk."""
    local_start = local[0].base_offset if local else 0
    far = sum(one.size_bytes for one in remote if is_within(one, lineage) and one.start_offset < local_start)
    return far + sum(segment.size_bytes for segment in local)
