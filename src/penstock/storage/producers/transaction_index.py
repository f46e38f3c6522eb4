"""The aborted transactions of a segment, `<base offset>.txnindex` in Kafka's layout.

    version int16 = 0 · producer id int64 · first offset int64 · last offset int64 · last stable offset int64

A segment's index has the transactions whose abort marker is in it, so they are in the order of their last offsets, and
a transaction may have begun in an earlier segment. The last stable offset is the one after the marker: everything below
it is decided. A read_committed reader needs the aborted transactions that overlap what it reads, searches the indexes
from its first segment on, and stops at the first entry that was written when everything it reads was decided.

Unlike the other indexes this one is needed for correctness. It can be rebuilt from the log's markers.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import NamedTuple

from penstock.storage.indexes import DamagedIndexError

ENTRY_BYTES = 34

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """From the producer's first record to the abort marker, both included."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Overlap(NamedTuple):
    """Aborted transactions that overlap a range; unless `complete`, later segments may have more."""

    transactions: list[AbortedTransaction]
    complete: bool


class TransactionIndex:
    """The index of one segment, in memory; the owner of the file appends the bytes that `append` returns."""

    __slots__ = ("_entries", "_last_offsets")

    def __init__(self) -> None:
        self._entries: list[AbortedTransaction] = []
        self._last_offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        return tuple(self._entries)

    def append(self, aborted: AbortedTransaction) -> bytes:
        """Add a transaction whose marker was just appended; returns the bytes for the end of the file."""
        if self._last_offsets and aborted.last_offset <= self._last_offsets[-1]:
            raise ValueError(f"a marker at {aborted.last_offset} comes after one at {self._last_offsets[-1]}")
        self._entries.append(aborted)
        self._last_offsets.append(aborted.last_offset)
        return _ENTRY.pack(_VERSION, *aborted)

    def overlapping(self, offset: int, upper_bound: int) -> Overlap:
        """The aborted transactions with records from `offset` on and below `upper_bound`."""
        start = bisect_left(self._last_offsets, offset)
        found: list[AbortedTransaction] = []
        # Skipped entries may already show that everything below the bound was decided.
        for entry in self._entries[max(0, start - 1) :]:
            if entry.last_offset >= offset and entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return Overlap(found, True)
        return Overlap(found, False)

    def truncate(self, offset: int) -> int:
        """Forget transactions whose marker is at or after an offset; returns how many bytes of the file stay."""
        keep = bisect_left(self._last_offsets, offset)
        del self._entries[keep:]
        del self._last_offsets[keep:]
        return keep * ENTRY_BYTES

    def to_bytes(self) -> bytes:
        return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self._entries)

    @classmethod
    def from_bytes(cls, data: bytes, base_offset: int) -> TransactionIndex:
        """Read the index file of the segment that starts at `base_offset`."""
        if len(data) % ENTRY_BYTES:
            raise DamagedIndexError(f"{len(data)} bytes are no whole number of entries")
        index = cls()
        previous = base_offset - 1
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            if version != _VERSION:
                raise DamagedIndexError(f"unknown version {version}")
            if entry.last_offset <= previous:
                raise DamagedIndexError("entries are out of order or point outside the segment")
            if not 0 <= entry.first_offset <= entry.last_offset or entry.producer_id < 0:
                raise DamagedIndexError("an entry has impossible offsets")
            index.append(entry)
            previous = entry.last_offset
        return index
