"""Finds records by time, the one look-up that must read inside batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.storage.scan import header_at, valid_prefix, walk
from penstock.storage.segment import Segment
from penstock.wire.records import BatchHeader, Record, read_header, read_records

# A stored batch was within the size limits when it was appended; this bounds what a damaged one can decompress to.
DECOMPRESSED_BYTES_MAX = 2**30


class TimestampOffset(NamedTuple):
    """A record's timestamp, its offset, and the leader epoch that wrote it."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(segments: Sequence[Segment], timestamp: int, start_offset: int) -> TimestampOffset | None:
    """The first record from `start_offset` on that is not older than `timestamp`."""
    for segment in segments:
        with segment.visited():
            found = _first_in(segment, timestamp, start_offset)
        if found is not None:
            return found
    return None


def _first_in(segment: Segment, timestamp: int, start_offset: int) -> TimestampOffset | None:
    if segment.max_timestamp < timestamp:
        return None
    start = max(_position_before(segment, timestamp), segment.position_of(start_offset))
    for place in walk(segment.file, start, segment.size):
        if place.max_timestamp < timestamp:
            continue
        header, records = _read_batch(segment, place.position)
        for record in records:
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def _position_before(segment: Segment, timestamp: int) -> int:
    """Where a batch starts that is at most a few before the first one that is not older than `timestamp`.

    The time index grows with the offset index, and only if the largest timestamp has. So the first such batch lies
    between the same two entries of the offset index as the one that has the next larger timestamp of the time index.
    """
    times, index = segment.time_index(), segment.offset_index()
    slot = times.search(timestamp)
    youngest = times.offsets[slot] if slot < len(times) else segment.max_timestamp_offset - segment.base_offset
    entry = index.search(youngest)
    return index.positions[entry - 1] if entry else 0


def largest(segments: Sequence[Segment]) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all."""
    segment = max(segments, key=_max_timestamp)
    with segment.visited():
        return _largest_in(segment)


def _max_timestamp(segment: Segment) -> int:
    with segment.visited():
        return segment.max_timestamp


def _largest_in(segment: Segment) -> TimestampOffset | None:
    if segment.max_timestamp < 0:
        return None
    position = segment.position_of(segment.max_timestamp_offset)
    header, records = _read_batch(segment, position)
    for record in records:
        if record.timestamp >= header.max_timestamp:
            return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    # Compaction removed the record itself; its batch still has the timestamp.
    return TimestampOffset(header.max_timestamp, header.last_offset, header.partition_leader_epoch)


def _read_batch(segment: Segment, position: int) -> tuple[BatchHeader, list[Record]]:
    header = header_at(segment.file, position, segment.size)
    data = valid_prefix(segment.file.read(position, header.size_bytes), segment.file, position)
    return read_header(data), read_records(data, DECOMPRESSED_BYTES_MAX)
