"""Which part of a range is read from which tiered segment, and which from the brokers. Pure.

A bucket may hold more than the log: segments that overlap because several leaders copied the same offsets, and after an
unclean election records that were lost. The lineage decides, the leader epochs of the log that consumers read: a
segment is used only for offsets that it has in the epoch of the lineage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.tier.segments import EpochStart, RemotePartition, RemoteSegment, SegmentState
from penstock.spark.fetching import OffsetRange
from penstock.storage.producers.transaction_index import AbortedTransaction
from penstock.storage.tier.layout import LOG, TRANSACTION_INDEX, Manifest


class Section(NamedTuple):
    """The records with start <= offset < end, in a tiered segment; without one, they are read from the brokers."""

    start: int
    end: int
    segment: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How a range is read. `aborted` are the aborted transactions in the tiered part."""

    wanted: OffsetRange
    sections: tuple[Section, ...]
    aborted: tuple[AbortedTransaction, ...] = ()

    def part(self, wanted: OffsetRange) -> Plan:
        """How a smaller range of the same partition is read."""
        return Plan(
            wanted,
            tuple(
                Section(max(one.start, wanted.start), min(one.end, wanted.end), one.segment)
                for one in self.sections
                if one.start < wanted.end and one.end > wanted.start
            ),
            tuple(one for one in self.aborted if one.first_offset < wanted.end and one.last_offset >= wanted.start),
        )


def from_brokers(wanted: OffsetRange) -> Plan:
    """The plan without object storage."""
    return Plan(wanted, (Section(wanted.start, wanted.end),))


def find_sections(manifests: Iterable[Manifest], lineage: Sequence[EpochStart], start: int, end: int) -> list[Section]:
    """The sections of the offsets from `start` to the one before `end` that the segments contain."""
    by_id = {one.segment_id: one for one in manifests}
    remote = RemotePartition()
    for one in by_id.values():
        remote.begin(_segment(one))
    starts = sorted(first for one in remote.segments() for _, first, _ in one.spans())
    found: list[Section] = []
    position = start
    while position < end:
        until, segment = _reach(remote, lineage, position)
        if segment is None:
            # Nothing changes before the next segment or epoch starts.
            slot = bisect_right(starts, position)
            until = min([until, *starts[slot : slot + 1]])
        until = min(until, end)
        manifest = by_id[segment.segment_id] if segment is not None else None
        if found and found[-1].segment is manifest:
            found[-1] = found[-1]._replace(end=until)
        else:
            found.append(Section(position, until, manifest))
        position = until
    return found


def holds(manifest: Manifest, at: EpochStart) -> bool:
    """Whether a segment has the record of an epoch at an offset."""
    return any(
        epoch == at.epoch and first <= at.start_offset <= last for epoch, first, last in _segment(manifest).spans()
    )


def runs_in_tier(sections: Sequence[Section]) -> list[tuple[int, int]]:
    """The runs of consecutive offsets that are read from object storage, as start and end."""
    found: list[tuple[int, int]] = []
    for one in sections:
        if one.segment is None:
            continue
        if found and found[-1][1] == one.start:
            found[-1] = (found[-1][0], one.end)
        else:
            found.append((one.start, one.end))
    return found


def _reach(remote: RemotePartition, lineage: Sequence[EpochStart], position: int) -> tuple[int, RemoteSegment | None]:
    """The segment with the lineage's record at `position`, and the offset up to which it has the lineage's records."""
    slot = bisect_right(lineage, position, key=lambda entry: entry.start_offset)
    epoch_end = lineage[slot].start_offset if slot < len(lineage) else 1 << 63
    segment = remote.find(lineage, position)
    if segment is None:
        return epoch_end, None
    epoch = lineage[slot - 1].epoch
    last = next(last for one, first, last in segment.spans() if one == epoch and first <= position <= last)
    return min(epoch_end, last + 1), segment


def _segment(manifest: Manifest) -> RemoteSegment:
    return RemoteSegment(
        manifest.segment_id,
        manifest.start_offset,
        manifest.end_offset,
        manifest.objects[LOG].size_bytes,
        manifest.max_timestamp_ms,
        tuple(EpochStart(*entry) for entry in manifest.epochs),
        SegmentState.COPY_SEGMENT_FINISHED,
        has_aborted_transactions=TRANSACTION_INDEX in manifest.objects,
    )
