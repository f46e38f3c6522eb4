"""The two sparse indexes of a segment, held as flat arrays and stored in Kafka's binary layout.

Offset index: an entry means that the batch at `position` ends with `last_offset`. Time index: an entry means that up
to and including `offset`, no timestamp in the segment is larger than `timestamp`. Both are sorted in each column,
and offsets are stored relative to the segment's base offset, which is why a segment spans at most 2^31 offsets.

Neither is ever needed for correctness: a missing or damaged one is rebuilt from the batches.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
RELATIVE_OFFSET_MAX = 2**31 - 1

_SWAP = sys.byteorder == "little"


class DamagedIndexError(Exception):
    """An index file that is incomplete or damaged; the index must be rebuilt."""


class OffsetIndex:
    """The positions of batches, every few kilobytes."""

    __slots__ = ("last_offsets", "positions")

    def __init__(self) -> None:
        self.last_offsets = array("i")
        self.positions = array("i")

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, relative_last_offset: int, position: int) -> None:
        assert not self.positions or position > self.positions[-1], "batches are indexed in their order"
        assert position >= 0
        self.last_offsets.append(relative_last_offset)
        self.positions.append(position)

    def search(self, relative_offset: int) -> int:
        """How many entries are entirely before an offset: the batch that holds it starts after the last of them."""
        assert len(self.last_offsets) == len(self.positions)
        return bisect_left(self.last_offsets, relative_offset)

    def search_position(self, position: int) -> int:
        """How many entries start at or before a file position."""
        return bisect_right(self.positions, position)

    def truncate(self, position: int) -> None:
        """Forget entries for batches at or after a file position."""
        keep = bisect_left(self.positions, position)
        del self.last_offsets[keep:]
        del self.positions[keep:]
        assert len(self.last_offsets) == len(self.positions)
        assert not self.positions or self.positions[-1] < position

    def to_bytes(self) -> bytes:
        words = array("i", bytes(OFFSET_ENTRY_BYTES * len(self)))
        words[0::2] = self.last_offsets
        words[1::2] = self.positions
        if _SWAP:
            words.byteswap()
        return words.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, log_size: int) -> OffsetIndex:
        """Read an index file that belongs to a log file of `log_size` bytes."""
        if len(data) % OFFSET_ENTRY_BYTES:
            raise DamagedIndexError(f"{len(data)} bytes are no whole number of entries")
        words = array("i", data)
        if _SWAP:
            words.byteswap()
        index = cls()
        index.last_offsets = words[0::2]
        index.positions = words[1::2]
        if not (_is_increasing(index.last_offsets) and _is_increasing(index.positions)):
            raise DamagedIndexError("entries are out of order")
        if len(index) and (index.last_offsets[0] < 0 or index.positions[0] < 0 or index.positions[-1] >= log_size):
            raise DamagedIndexError("an entry points outside the segment")
        return index


class TimeIndex:
    """How the largest timestamp grows along the segment."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry; one that adds no information is left out."""
        if self.timestamps and timestamp <= self.timestamps[-1]:
            return
        assert timestamp >= 0, "records without a timestamp have no entry"
        self.timestamps.append(timestamp)
        self.offsets.append(relative_offset)

    def search(self, timestamp: int) -> int:
        """How many entries have a timestamp before this one."""
        return bisect_left(self.timestamps, timestamp)

    def lower_bound(self, timestamp: int) -> int:
        """A relative offset before which every record is older than `timestamp`."""
        slot = self.search(timestamp)
        assert len(self.timestamps) == len(self.offsets)
        return self.offsets[slot - 1] + 1 if slot else 0

    def truncate(self, relative_offset: int) -> None:
        """Forget entries for offsets at or after this one."""
        keep = bisect_left(self.offsets, relative_offset)
        del self.timestamps[keep:]
        del self.offsets[keep:]
        assert len(self.timestamps) == len(self.offsets)

    def to_bytes(self) -> bytes:
        count = len(self)
        times = self.timestamps[:]
        offsets = self.offsets[:]
        if _SWAP:
            times.byteswap()
            offsets.byteswap()
        halves = array("i", times.tobytes())
        words = array("i", bytes(TIME_ENTRY_BYTES * count))
        words[0::3] = halves[0::2]
        words[1::3] = halves[1::2]
        words[2::3] = offsets
        return words.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> TimeIndex:
        if len(data) % TIME_ENTRY_BYTES:
            raise DamagedIndexError(f"{len(data)} bytes are no whole number of entries")
        words = array("i", data)
        halves = array("i", bytes(len(words) // 3 * 8))
        halves[0::2] = words[0::3]
        halves[1::2] = words[1::3]
        index = cls()
        index.timestamps = array("q", halves.tobytes())
        index.offsets = words[2::3]
        if _SWAP:
            index.timestamps.byteswap()
            index.offsets.byteswap()
        if not (_is_increasing(index.timestamps) and _is_increasing(index.offsets)):
            raise DamagedIndexError("entries are out of order")
        if len(index) and index.offsets[0] < 0:
            raise DamagedIndexError("an entry points outside the segment")
        return index


def _is_increasing(column: array[int]) -> bool:
    return all(map(int.__lt__, column, column[1:]))
