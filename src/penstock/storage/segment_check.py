"""Reads a segment after an unclean shutdown: which of its batches are valid, and what they contain."""

from __future__ import annotations

import struct

from crc32c import crc32c

from penstock.core.replica.producer_state import BATCHES_KEPT, ProducerState
from penstock.storage.files import CorruptLogError
from penstock.storage.indexes import RELATIVE_OFFSET_MAX
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.producers.replay import note_batch
from penstock.storage.producers.transaction_index import AbortedTransaction
from penstock.storage.scan import header_at
from penstock.storage.segment import NO_TIMESTAMP, Segment
from penstock.wire.kernel import scan_batches
from penstock.wire.records import HEADER_SIZE, BatchError, BatchHeader, read_header

# Small enough to be checksummed while it is still in the CPU's cache.
CHECK_CHUNK_BYTES = 1024 * 1024

# Where a header has its leader epoch, its magic, the lower byte of its attributes, and its producer id.
_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_START = 21
_ATTRIBUTES_AT = 22
_PRODUCER_AT = 43

_EPOCH = struct.Struct(">i")
_MAGIC = b"\x02"
_TRANSACTIONAL_OR_CONTROL = 0x30


class SegmentChecker:
    """Reads one segment; `next_offset`, `epochs_changed` and `damaged` are the results."""

    def __init__(
        self,
        segment: Segment,
        epochs: LeaderEpochs,
        producers: ProducerState,
        recovery_point: int,
        *,
        has_later: bool = False,
        lost_power: bool = True,
        stayed_up: bool = False,
    ) -> None:
        """`has_later` is whether there are records in later segments, the others are as for `Log.open`."""
        self._has_later = has_later
        self._lost_power = lost_power
        self._stayed_up = stayed_up
        self.segment = segment
        self.epochs = epochs
        self.producers = producers
        self.recovery_point = recovery_point
        self.next_offset = segment.base_offset
        self.epochs_changed = False
        self.damaged: list[CorruptLogError] = []
        self.aborted: list[AbortedTransaction] = []
        self._appended_ms = segment.modified_ms()

    def run(self) -> int:
        """Add every batch to indexes, epochs and producers; returns how many bytes of the segment are valid.

        Raises CorruptLogError, with no byte changed, when durable records are too damaged to be skipped.
        """
        segment = self.segment
        segment.start_indexes()
        position, end = 0, segment.size
        chunk_bytes = CHECK_CHUNK_BYTES
        while position < end:
            chunk = segment.file.read(position, min(chunk_bytes, end - position))
            chunk_bytes = CHECK_CHUNK_BYTES
            scan = scan_batches(chunk, 0, len(chunk), check_crc=True)
            batches, problem = scan.batches, scan.problem
            if batches and batches[0][2] < self.next_offset:
                problem = f"its offset, {batches[0][2]}, does not follow {self.next_offset - 1}"
            else:
                self._note_all(chunk, position, batches)
                position += scan.position
            if problem is not None:
                size = self._size_to_keep(position, end, problem)
                if size == 0:
                    break
                position += size
            elif scan.position == 0:
                chunk_bytes = self._size_announced(chunk)
                if chunk_bytes > end - position:
                    self._size_to_keep(position, end, "the batch is cut short")
                    break
        assert position <= end
        assert self.next_offset >= segment.base_offset, "offsets of a segment are not before its own"
        segment.next_offset = self.next_offset
        segment.unverified_size = position if self.damaged else 0
        return position

    def _note_all(self, chunk: bytes, position: int, batches: list[tuple[int, int, int, int, int]]) -> None:
        """Add a chunk's batches to indexes, epochs and producers, without looking at each one where possible."""
        if not batches:
            return
        self.segment.index_batches(position, batches)
        self._note_epochs(chunk, batches)
        if any(chunk[at + _PRODUCER_AT] < 0x80 for at, _, _, _, _ in batches):
            self._note_producers(chunk, position, batches)
        self.next_offset = self.producers.end_offset = batches[-1][3] + 1

    def _note_epochs(self, chunk: bytes, batches: list[tuple[int, int, int, int, int]]) -> None:
        epochs = self.epochs
        # Epochs never decrease, so the last batch shows whether there is a new one among them.
        if _EPOCH.unpack_from(chunk, batches[-1][0] + _EPOCH_AT)[0] <= epochs.latest:
            return
        for at, _, base_offset, _, _ in batches:
            epoch = _EPOCH.unpack_from(chunk, at + _EPOCH_AT)[0]
            if epoch > epochs.latest:
                self.epochs_changed |= epochs.assign(epoch, base_offset)

    def _note_producers(self, chunk: bytes, position: int, batches: list[tuple[int, int, int, int, int]]) -> None:
        """Update the producers. Of one that uses no transactions only its last few batches matter."""
        producers, appended_ms = self.producers, self._appended_ms
        recent: dict[bytes, list[int]] = {}
        for at, _, _, _, _ in batches:
            producer = chunk[at + _PRODUCER_AT : at + _PRODUCER_AT + 8]
            if producer[0] >= 0x80:
                continue
            waiting = recent.get(producer)
            if waiting is None:
                waiting = recent[producer] = []
            if chunk[at + _ATTRIBUTES_AT] & _TRANSACTIONAL_OR_CONTROL:
                for earlier in waiting:
                    producers.update(read_header(chunk, earlier), appended_ms)
                waiting.clear()
                header = read_header(chunk, at)
                aborted = note_batch(producers, header, self.segment.file, position + at, appended_ms)
                if aborted is not None:
                    self.aborted.append(aborted)
            else:
                waiting.append(at)
                if len(waiting) > 2 * BATCHES_KEPT:
                    del waiting[:-BATCHES_KEPT]
        for waiting in recent.values():
            for at in waiting:
                producers.update(read_header(chunk, at), appended_ms)

    @staticmethod
    def _size_announced(chunk: bytes) -> int:
        """The length in the header of the batch at the start of a chunk; very large if even that is missing."""
        return read_header(chunk).size_bytes if len(chunk) >= HEADER_SIZE else 2**63

    def _size_to_keep(self, position: int, end: int, problem: str) -> int:
        """How many bytes to skip over a damaged batch, 0 to truncate the segment there.

        A batch at or after the recovery point is truncated, unless the machine stayed up and it was written whole. One
        before it is skipped if the next one follows it, and truncated if nothing does and power was lost: then it may
        be a torn tail after all, which a truncation left whose recovery point was not lowered yet. Where the machine
        stayed up a truncation leaves whole batches.
        """
        if self.next_offset >= self.recovery_point and not (self._stayed_up and not self._is_unfinished(position, end)):
            return 0
        file = self.segment.file
        header = self._plausible_header(position, end)
        if header is None:
            if self._has_later or self._has_batch_behind(position, end):
                raise CorruptLogError(file.path, position, f"{problem}, and records that were durable lie behind it")
            if not self._lost_power and self._is_written(position, end):
                raise CorruptLogError(file.path, position, f"{problem}, and its records were stored")
            return 0
        self.segment.index_batch(position, header.size_bytes, header.last_offset, NO_TIMESTAMP)
        self.next_offset = header.next_offset
        self.damaged.append(CorruptLogError(file.path, position, problem))
        return header.size_bytes

    def _is_unfinished(self, position: int, end: int) -> bool:
        """Whether what is left may be all that a killed process has written of a batch; zeros are reserved space."""
        if self._has_later:
            return False
        if not self._is_written(position, end):
            return True
        file = self.segment.file
        head = file.read(position, min(HEADER_SIZE, end - position))
        if len(head) < HEADER_SIZE:
            return True
        try:
            header = read_header(head)
        except BatchError:
            return not self._is_written(position + _CRC_AT, end)
        if not 0 <= header.base_offset - self.next_offset <= RELATIVE_OFFSET_MAX:
            return False
        if header.size_bytes > end - position:
            return not (self._has_right_crc(header, position, end) or self._has_batch_behind(position, end))
        # Where space was reserved the batch is all there, but for what it has not written.
        after = position + header.size_bytes
        return after < end and not self._is_written(after - 1, end)

    def _has_right_crc(self, header: BatchHeader, position: int, end: int) -> bool:
        """Whether a batch ends here that has another length in its header."""
        crc, position = 0, position + _ATTRIBUTES_START
        while position < end:
            chunk = self.segment.file.read(position, min(CHECK_CHUNK_BYTES, end - position))
            crc = crc32c(chunk, crc)
            position += max(len(chunk), 1)
        return crc == header.crc

    def _plausible_header(self, position: int, end: int) -> BatchHeader | None:
        """The header of a damaged batch if its offsets and length match its surroundings."""
        try:
            header = header_at(self.segment.file, position, end)
        except CorruptLogError:
            return None
        fits = header.base_offset >= self.next_offset and self._follows(header, position + header.size_bytes)
        return header if fits else None

    def _follows(self, header: BatchHeader, after: int) -> bool:
        """Whether what comes after a damaged batch matches it: the next batch, whole or torn, or the end."""
        head = self.segment.file.read(after, HEADER_SIZE)
        if not head and self._has_later:
            return True
        if len(head) < HEADER_SIZE:
            # Otherwise its length is damaged, and takes in what comes after it.
            return header.next_offset >= self.recovery_point
        try:
            return read_header(head).base_offset >= header.next_offset
        except BatchError:
            return False

    def _is_written(self, position: int, end: int) -> bool:
        """Whether there is more from `position` on than space that was reserved."""
        while position < end:
            chunk = self.segment.file.read(position, min(CHECK_CHUNK_BYTES, end - position))
            if chunk.strip(b"\0"):
                return True
            position += max(len(chunk), 1)
        return False

    def _has_batch_behind(self, position: int, end: int) -> bool:
        """Whether a whole batch lies anywhere after `position`, sought byte by byte."""
        position += 1
        while end - position >= HEADER_SIZE:
            chunk = self.segment.file.read(position, min(CHECK_CHUNK_BYTES, end - position))
            magic_at = chunk.find(_MAGIC, _MAGIC_AT)
            while magic_at >= 0:
                if self._is_batch(position + magic_at - _MAGIC_AT, end):
                    return True
                magic_at = chunk.find(_MAGIC, magic_at + 1)
            position += max(len(chunk) - _MAGIC_AT, 1)
        return False

    def _is_batch(self, position: int, end: int) -> bool:
        try:
            header = header_at(self.segment.file, position, end)
        except CorruptLogError:
            return False
        if not 0 <= header.base_offset - self.next_offset <= RELATIVE_OFFSET_MAX:
            return False
        data = self.segment.file.read(position, header.size_bytes)
        return len(scan_batches(data, 0, len(data), check_crc=True).batches) == 1
