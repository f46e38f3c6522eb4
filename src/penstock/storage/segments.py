"""All segments of one log: which of them holds an offset, which have open files, and how they are removed.

A segment leaves its log in one of three ways. Truncated ones are removed at once. Those deleted by retention are
renamed at once, so that a crash cannot bring them back, and removed later, so that current readers can finish.
Compacted ones are replaced; `compaction/swap` describes the order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from penstock.storage.compaction.swap import CleanedSegment, SegmentSwap
from penstock.storage.files import StorageError
from penstock.storage.indexes import RELATIVE_OFFSET_MAX, DamagedIndexError
from penstock.storage.names import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, TRANSACTION_INDEX_SUFFIX
from penstock.storage.partition_files import PartitionFiles
from penstock.storage.producers.aborted_transactions import AbortedTransactions
from penstock.storage.producers.history import ProducerHistory
from penstock.storage.segment import Segment
from penstock.storage.segment_copy import moved_to_tier

# How many segments besides the newest may keep their file and indexes open for readers.
OPEN_SEGMENTS_MAX = 4

_base_offset = attrgetter("base_offset")


def next_base_offset(end_offset: int, first_offset: int, last_offset: int) -> int:
    """The base offset of the segment for new batches: the log's end, so that no gap lies between two segments.

    A replicated compacted log can have a gap too large for that; the segment then begins after it.
    """
    return end_offset if last_offset - end_offset <= RELATIVE_OFFSET_MAX else first_offset


class Segments(list[Segment]):
    """The segments, oldest first; the newest is the one that is appended to."""

    __slots__ = ("_aborted", "_deleted", "_history", "_home", "_opened", "_swap")

    def __init__(
        self,
        home: PartitionFiles,
        segments: Iterable[Segment],
        aborted: AbortedTransactions,
        history: ProducerHistory,
    ) -> None:
        super().__init__(segments)
        self._home = home
        self._aborted = aborted
        self._history = history
        # Segments opened by readers, the one opened the longest ago first.
        self._opened: list[Segment] = []
        # Files pending removal, with their last names and due times.
        self._deleted: list[tuple[int, list[str]]] = []
        self._swap: SegmentSwap | None = None

    def number_of(self, offset: int) -> int:
        """The index of the last segment that begins at or before an offset."""
        return bisect_right(self, offset, key=_base_offset) - 1

    def end_of(self, segment: Segment, end_offset: int) -> int:
        """The offset at which a segment ends: where the next one begins, or the log's `end_offset`."""
        number = self.index(segment)
        return self[number + 1].base_offset if number + 1 < len(self) else end_offset

    def find_older(self, offset: int, end_offset: int) -> tuple[Segment, int, int]:
        """The segment, position and segment's end for an offset before the newest segment."""
        number = self.number_of(offset)
        if number < 0:
            raise moved_to_tier(self._home.path.name, offset)
        while True:
            segment = self[number]
            is_last = number + 1 == len(self)
            segment_end = end_offset if is_last else self[number + 1].base_offset
            if not is_last:
                self._keep_open(segment)
            start = segment.position_of(offset)
            if start < segment.size or is_last:
                assert start <= segment.size
                return segment, start, segment_end
            # Compaction removed the offset and everything after it in this segment.
            number += 1

    def _keep_open(self, segment: Segment) -> None:
        """Add a segment to the open ones, closing the one opened the longest ago if there are too many."""
        if segment not in self._opened:
            self._opened.append(segment)
            if len(self._opened) > OPEN_SEGMENTS_MAX:
                self._opened.pop(0).release()

    def close_opened(self) -> None:
        """Close the segments that readers opened."""
        for segment in self._opened:
            segment.release()
        self._opened.clear()

    def forget_opened(self, segment: Segment) -> None:
        """A segment is no longer only a reader's: it became the newest, or it is removed."""
        if segment in self._opened:
            self._opened.remove(segment)

    def cut_off(self, gone: Sequence[Segment]) -> None:
        """Remove segments and their files, the newest first: a crash in between leaves no gap."""
        assert self[len(self) - len(gone) :] == [*gone], "a truncation removes the end of the log"
        for segment in reversed(gone):
            for suffix in SEGMENT_SUFFIXES:
                self._home.unlink(segment.file_name(suffix))
            segment.release()
            self._aborted.forget(segment.base_offset)
            self.remove(segment)
            self.forget_opened(segment)

    def set_aside(self, gone: Iterable[Segment], due_ms: int) -> None:
        """Remove segments from the log, oldest first; `reap` removes their files once they are due.

        If StorageError is raised, those whose logs could not be renamed are still segments of the log.
        """
        gone = list(gone)
        assert gone == self[: len(gone)], "retention removes the beginning of the log"
        assert len(gone) < len(self), "a log keeps its newest segment"
        if self._swap is not None and any(one in gone for one in (*self._swap.old, self._swap.segment)):
            # Otherwise a start would bring back what is removed here.
            self.settle_swap()
        for segment in gone:
            self._rename_deleted([segment.file_name(LOG_SUFFIX)], due_ms)
            self.remove(segment)
            self._rename_deleted(self._let_go(segment), due_ms)

    def _let_go(self, segment: Segment, *, keep_snapshot: bool = False) -> list[str]:
        """Remove a segment from the log; returns the names of its files."""
        self.forget_opened(segment)
        segment.release()
        self._aborted.forget(segment.base_offset)
        names = [segment.file_name(suffix) for suffix in SEGMENT_SUFFIXES]
        return names if keep_snapshot else [*names, *self._history.let_go(segment.base_offset)]

    def _rename_deleted(self, names: Iterable[str], due_ms: int) -> None:
        renamed: list[str] = []
        self._deleted.append((due_ms, renamed))
        # One by one: those renamed before an error are removed as well.
        renamed.extend(name + DELETED_SUFFIX for name in names if self._home.rename(name, name + DELETED_SUFFIX))

    def reap(self, now_ms: int) -> int:
        """Remove the files that are due; returns how many."""
        count = 0
        while self._deleted and self._deleted[0][0] <= now_ms:
            for name in self._deleted.pop(0)[1]:
                self._home.unlink(name)
                count += 1
        return count

    def begin_swap(self, cleaned: CleanedSegment, *, is_current: bool, interval_bytes: int) -> SegmentSwap | None:
        """Decide that a cleaned segment replaces others. None, and it is removed, if these have changed."""
        self.settle_swap()
        assert self._swap is None, "one swap is under way at a time"
        swap = self._swap = SegmentSwap(self._home, cleaned, self[:-1] if is_current else [], interval_bytes)
        try:
            if swap.fits(cleaned):
                swap.segment.rename(SWAP_SUFFIX)
                return swap
        except StorageError:
            self.settle_swap()
            raise
        self.settle_swap()
        return None

    def apply_swap(self, swap: SegmentSwap, due_ms: int) -> bool:
        """Have readers use the new segment and set the old ones aside; False if the swap was given up meanwhile.

        After a StorageError it may be called again: either the swap was given up, or it sets the rest aside.
        """
        if swap is not self._swap:
            return False
        new = swap.segment
        if swap.replaced is None:
            try:
                # Before anything changes: without it readers would get aborted records.
                aborted = self._aborted.read(new.base_offset, new.file_name(TRANSACTION_INDEX_SUFFIX))
            except (StorageError, DamagedIndexError) as error:
                self.settle_swap()
                if isinstance(error, DamagedIndexError):
                    raise StorageError(f"a cleaned segment of {self._home.path}: {error}") from error
                raise
            number = self.index(swap.old[0])
            assert self[number : number + len(swap.old)] == swap.old
            assert new.base_offset == swap.old[0].base_offset, "a cleaned segment begins where its sources did"
            assert self[-1] not in swap.old, "the newest segment is never cleaned"
            self[number : number + len(swap.old)] = [new]
            swap.replaced, swap.due_ms = self._let_go(swap.old[0], keep_snapshot=True), due_ms
            for segment in swap.old[1:]:
                swap.replaced += self._let_go(segment)
            assert self[number] is new
            self._aborted.adopt(new.base_offset, aborted)
        self.settle_swap()
        return True

    @property
    def is_swapping(self) -> bool:
        """Whether a swap is in progress, until its segment has its name."""
        return self._swap is not None or any(segment.suffix for segment in self)

    def settle_swap(self) -> bool:
        """Leave no swap half done; True if there was one: what this renames and removes must then become durable.

        One that is not applied is given up, and of one that is, all old files are set aside. If StorageError is raised
        no segment may be changed before this has succeeded.
        """
        swap = self._swap
        if swap is None:
            return False
        if swap.replaced is None:
            swap.abandon()
        else:
            self._rename_deleted(swap.replaced, swap.due_ms)
        self._swap = None
        return True
