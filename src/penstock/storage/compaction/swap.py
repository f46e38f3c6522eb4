"""Replaces segments by the cleaned one made from them: a crash at any point leaves one or the other.

    1. The cleaner writes and syncs the `.cleaned` files. A start finds them and removes them.
    2. `Log.begin_swap` renames them to `.swap`, and the directory is synced. From here on the swap is decided: a start
       finishes it.
    3. `Log.apply_swap` renames the old files to `.deleted` and reads go to the new segment. The directory is synced.
    4. `Log.finish_swap` takes the suffix away.

The second sync keeps the order where a file system does not: no old segment may reappear beside a new one that has
already lost its suffix. The renames are quick and happen on the log's thread; the syncs belong in a worker.

A start would finish what an error has left under the suffix, also when the log is another one by then. So a swap that
is not applied is given up, and one that is applied is finished, before any segment is removed, truncated or swapped
again: `Segments.settle_swap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.storage.names import CLEANED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, file_name
from penstock.storage.partition_files import PartitionFiles
from penstock.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class CleanedSegment:
    """A complete, synced `.cleaned` segment, and the base offset and size of each segment that it replaces."""

    base_offset: int
    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    replaces: tuple[tuple[int, int], ...]


class SegmentSwap:
    """A replacement in progress. `sync` may run in any thread, between the steps of the log."""

    __slots__ = ("_home", "due_ms", "old", "replaced", "segment")

    def __init__(
        self, home: PartitionFiles, cleaned: CleanedSegment, finished: Sequence[Segment], interval_bytes: int
    ) -> None:
        bases = {base_offset for base_offset, _ in cleaned.replaces}
        self._home = home
        self.old = [segment for segment in finished if segment.base_offset in bases]
        assert len(self.old) <= len(cleaned.replaces)
        created_ms = self.old[0].created_ms if self.old else 0
        self.segment = Segment(home, cleaned.base_offset, cleaned.size_bytes, created_ms, interval_bytes)
        self.segment.know_times(cleaned.max_timestamp, cleaned.max_timestamp_offset)
        self.segment.suffix = CLEANED_SUFFIX
        # Once it is applied, the names of the old files, and when they are to be removed.
        self.replaced: list[str] | None = None
        self.due_ms = 0

    def fits(self, cleaned: CleanedSegment) -> bool:
        """Whether the log still has what the cleaned segment was made from."""
        return tuple((segment.base_offset, segment.size) for segment in self.old) == cleaned.replaces

    def sync(self) -> None:
        """Block until the renames so far are durable. Raises StorageError, FileNotFoundError if the log is gone."""
        self._home.filesystem.sync_directory(self._home.path)

    def abandon(self) -> None:
        """Remove the new files: the log has changed meanwhile."""
        assert self.replaced is None, "what readers use is not removed"
        for kind in SEGMENT_SUFFIXES:
            for suffix in (SWAP_SUFFIX, CLEANED_SUFFIX):
                self._home.unlink(file_name(self.segment.base_offset, kind) + suffix)
