"""Slices of whole batches in one segment file, located but not yet read."""

from __future__ import annotations

from penstock.storage.files import CorruptLogError, File
from penstock.storage.indexes import DamagedIndexError
from penstock.storage.scan import SMALL_WALK_BYTES, header_at, valid_prefix, walk
from penstock.storage.segment import Segment


class LogSlice:
    """`size` bytes at `position` of `file`; stays readable after its segment is closed or deleted.

    `must_verify` means that the bytes were on disk before this start: `read` then checks them and returns only valid
    batches. Send the file's bytes directly only where it is False.
    """

    __slots__ = ("file", "must_verify", "position", "size")

    def __init__(self, file: File | None, position: int, size: int, must_verify: bool) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.must_verify = must_verify

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The batches. Raises CorruptLogError when the first of them is damaged, StorageError when the disk fails."""
        if self.file is None:
            return b""
        data = self.file.read(self.position, self.size)
        return valid_prefix(data, self.file, self.position) if self.must_verify else data


EMPTY_SLICE = LogSlice(None, 0, 0, False)


def limit_before(segment: Segment, offset: int, start: int) -> int:
    """Where batches from `start` on must end so that none reaches `offset`, or runs into damage on the way."""
    try:
        return segment.position_of(offset)
    except CorruptLogError as error:
        if error.position > start:
            return error.position
        raise


def end_before(segment: Segment, position: int) -> int:
    """The offset after the last batch that lies before a batch's start."""
    index = segment.offset_index()
    slot = index.search_position(position - 1)
    end_offset = segment.base_offset
    for place in walk(segment.file, index.positions[slot - 1] if slot else 0, position):
        end_offset = place.last_offset + 1
    return end_offset


def cut(segment: Segment, start: int, limit: int, size_max: int, minimum_one_batch: bool) -> int:
    """Where a slice from `start` of at most `size_max` bytes ends: always at the end of a batch."""
    bound = start + size_max
    try:
        index = segment.offset_index()
        slot = index.search_position(bound)
        end = index.positions[slot - 1] if slot else 0
        if end > start:
            header = header_at(segment.file, end, segment.size)
            if header.last_offset != segment.base_offset + index.last_offsets[slot - 1]:
                raise DamagedIndexError(f"the batch at {end} ends with offset {header.last_offset}")
            assert start < end <= bound < limit, "a cut is between two batches of the slice"
            segment.leave_hint(header.base_offset, end)
            return end
    except (DamagedIndexError, CorruptLogError) as error:
        segment.distrust_indexes(error)
        return cut(segment, start, limit, size_max, minimum_one_batch)
    return _cut_by_walking(segment, start, limit, bound, minimum_one_batch)


def _cut_by_walking(segment: Segment, start: int, limit: int, bound: int, minimum_one_batch: bool) -> int:
    end = start
    next_offset = segment.base_offset
    try:
        for place in walk(segment.file, start, limit, SMALL_WALK_BYTES):
            next_position = place.position + place.size
            if next_position > bound and not (minimum_one_batch and end == start):
                break
            end = next_position
            next_offset = place.last_offset + 1
            if end >= bound:
                break
    except CorruptLogError:
        if end == start:
            raise
    assert start <= end <= limit
    segment.leave_hint(next_offset, end)
    return end
