"""What compaction must know of transactions: which records were aborted, and which markers are still needed.

Records of an aborted transaction supersede nothing and can be removed at once. A marker stays until a cleaning finds
none of its transaction's batches any more; from then on it is treated like a tombstone. Nothing is read for a log
without transactions: outcomes are looked up when the first transactional batch is found, in the batches themselves,
since a marker may be far after the part being cleaned.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

from penstock.storage.files import File
from penstock.storage.producers.replay import read_end_marker
from penstock.storage.scan import walk_headers
from penstock.wire.records import BatchHeader

# By producer, the first and last offsets of its aborted transactions in their order.
AbortedRanges = dict[int, list[tuple[int, int]]]


def find_aborted(files: Iterable[tuple[File, int]]) -> AbortedRanges:
    """The aborted transactions of segments, given in order as file and size."""
    aborted: AbortedRanges = {}
    first_offsets: dict[int, int] = {}
    for file, size in files:
        for position, header in walk_headers(file, 0, size):
            if not header.is_transactional:
                continue
            if not header.is_control:
                first_offsets.setdefault(header.producer_id, header.base_offset)
                continue
            marker = read_end_marker(file.read(position, header.size_bytes))
            first_offset = first_offsets.pop(header.producer_id, None) if marker is not None else None
            if marker is not None and marker.aborted and first_offset is not None:
                aborted.setdefault(header.producer_id, []).append((first_offset, header.base_offset))
    return aborted


class OpenTransactions:
    """One pass over a log's batches in order."""

    def __init__(self, find: Callable[[], AbortedRanges]) -> None:
        self._find = find
        self._aborted: AbortedRanges | None = None
        # Producers with a batch since their last marker.
        self._met: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of records belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        if self._aborted is None:
            self._aborted = self._find()
        self._met.add(header.producer_id)
        ranges = self._aborted.get(header.producer_id, [])
        slot = bisect_right(ranges, (header.base_offset, 1 << 63))
        return slot > 0 and header.base_offset <= ranges[slot - 1][1]

    def is_spent(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a control batch ends a transaction of which no batch was found."""
        if header.records_count == 0:
            return True
        if read_end_marker(batch) is None:
            return False
        if header.producer_id in self._met:
            self._met.remove(header.producer_id)
            return False
        return True
