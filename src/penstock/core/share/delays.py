"""Records that say when they may be had: which of them a share-partition waits for, in bounded memory.

A record with the header `penstock.deliver.at` (milliseconds since the epoch) or `penstock.deliver.after` (milliseconds
after its timestamp) is passed over until then. Records are admitted by their due time, and a cursor of due time and
offset marks how far that has come. A record is waiting if it lies behind the cursor, which any reader of the log can
determine; so the cursor is all that has to be stored, and the index below is only there to find the next ones quickly.

The index has the records that are due first. What does not fit is left out, and read again from the log when half of
the others have been admitted: early, as reading takes long on a busy machine.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

from penstock.wire.primitives import Buffer
from penstock.wire.records import BatchHeader, Record, read_body, read_records

AT = "penstock.deliver.at"
AFTER = "penstock.deliver.after"
# Only batches with these bytes are looked at record by record.
MARK = b"penstock.deliver."
OFFSET_MAX = 2**63 - 1
DUE_MAX_MS = 2**62 - 1
# Offsets are counted in blocks of this size, to know from where on the log has waiting records.
BLOCK_BITS = 14
RECORDS_BYTES_MAX = 2**30
# More new ones than this are sorted in together.
INSERTED_ONE_BY_ONE_MAX = 8


class Delayed(NamedTuple):
    """A record and when it may be had. They are admitted in this order."""

    due_ms: int
    offset: int


def delayed_in(data: Buffer, position: int, header: BatchHeader) -> list[Delayed]:
    """The records with a due time in the batch at `position`, in the order of their offsets."""
    if header.is_control or MARK not in bytes(read_body(data, position, header, RECORDS_BYTES_MAX)):
        return []
    found = []
    for record in read_records(data, RECORDS_BYTES_MAX, position):
        due_ms = due_ms_of(record)
        if due_ms is not None:
            found.append(Delayed(due_ms, record.offset))
    return found


def due_ms_of(record: Record) -> int | None:
    """When a record may be had; None for at once. A time that makes no sense counts for nothing."""
    due_ms = None
    for name, value in record.headers:
        if name not in (AT, AFTER) or value is None:
            continue
        text = bytes(value)
        if text.isdigit() and len(text) < 20:
            due_ms = min(int(text) + (record.timestamp if name == AFTER else 0), DUE_MAX_MS)
    return due_ms


def without(ranges: Sequence[tuple[int, int]], offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of offsets, cut up so that they have none of `offsets`, which are in order."""
    left: list[tuple[int, int]] = []
    for first, last in ranges:
        begin = first
        for offset in offsets[bisect_left(offsets, first) : bisect_left(offsets, last + 1)]:
            if offset > begin:
                left.append((begin, offset - 1))
            begin = offset + 1
        if begin <= last:
            left.append((begin, last))
    return left


class DelayIndex:
    """The waiting records of a share-partition, of which about `size_max` are kept in memory."""

    def __init__(self, due_ms: int, offset: int, size_max: int) -> None:
        self.cursor = Delayed(due_ms, offset)
        # How many records wait, in the index or not.
        self.count = 0
        self._size_max = size_max
        # Packed into numbers, which take a third of the memory. In descending order: the last one is due first.
        self._next: list[int] = []
        self._new: list[int] = []
        # From here on waiting records are not in the index.
        self._bound = _NEVER
        # Those that a refill has found beyond that, and from where on it leaves them out.
        self._found: list[int] | None = None
        self._found_bound = _NEVER
        self._blocks: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._next) + len(self._new)

    def is_waiting(self, one: Delayed) -> bool:
        """Whether a record has not been admitted."""
        return one > self.cursor

    @property
    def needs_refill(self) -> bool:
        """Whether the log should be read for those that are due next, before the index has none left."""
        is_partial = self.count > 0 and self._bound != _NEVER
        return is_partial and self._found is None and len(self) <= self._size_max // 2

    @property
    def start(self) -> int | None:
        """No waiting record is before this offset; None if there are none."""
        return min(self._blocks) << BLOCK_BITS if self._blocks else None

    @property
    def next_due_ms(self) -> int | None:
        """When the next record is due; None if none is, or the log is being read for it."""
        self._sort()
        return _unpacked(self._next[-1]).due_ms if self._next else None

    def add(self, one: Delayed) -> None:
        """A waiting record that was not seen before."""
        self.count += 1
        assert 0 <= one.offset <= OFFSET_MAX
        block = one.offset >> BLOCK_BITS
        self._blocks[block] = self._blocks.get(block, 0) + 1
        packed = _packed(one)
        if packed > self._bound:
            self._new.append(packed)
            if self._found is None and len(self) > 2 * self._size_max:
                self._cut()
        else:
            self.offer(one)

    def offer(self, one: Delayed) -> None:
        """A waiting record that a refill comes across; it is remembered if it is not there, and due early enough."""
        packed = _packed(one)
        if self._found is not None and self._found_bound < packed <= self._bound:
            self._found.append(packed)
            if len(self._found) > 2 * self._size_max:
                self._found.sort()
                self._found_bound = self._found[-self._size_max - 1]
                del self._found[: -self._size_max]

    def take(self, now_ms: int, count_max: int) -> list[int]:
        """Let in records that are due, at most `count_max`; their offsets."""
        taken: list[int] = []
        self._sort()
        waiting = self._next
        limit = _packed(Delayed(now_ms, OFFSET_MAX))
        while waiting and len(taken) < count_max and waiting[-1] >= limit:
            self.cursor = _unpacked(waiting.pop())
            taken.append(self.cursor.offset)
            self._left(self.cursor.offset)
        self._end_if_empty()
        return taken

    def catch_up(self, now_ms: int) -> None:
        """With nothing due, the cursor moves to now: what is overdue when it is first seen need not wait at all."""
        due_ms = self.next_due_ms
        now = Delayed(now_ms, OFFSET_MAX)
        is_known = self._bound < _packed(now)
        if is_known and (due_ms is None or due_ms > now_ms) and self.cursor < now:
            assert now > self.cursor, "the cursor never moves back"
            self.cursor = now

    def begin_load(self) -> None:
        """Nothing is known yet: all waiting records are about to be added, until `end_refill`."""
        self._bound = _ALWAYS
        self.begin_refill()

    def begin_refill(self) -> None:
        """The log is about to be read, from `start` to the end of what was looked at, and what waits is offered."""
        self._found, self._found_bound = [], _NEVER

    def end_refill(self) -> None:
        """All waiting records were offered, or added since."""
        assert self._found is not None
        assert self._found_bound >= _NEVER
        self._new += self._found
        self._bound, self._found = self._found_bound, None
        self._end_if_empty()
        if len(self) > 2 * self._size_max:
            self._cut()

    def give_up_refill(self) -> None:
        """The log could not be read; what was found is forgotten."""
        self._found = None

    def forget_before(self, offset: int) -> None:
        """The log begins at `offset` now."""
        first = offset >> BLOCK_BITS
        gone = [block for block in self._blocks if block < first]
        if not gone:
            return
        for block in gone:
            self.count -= self._blocks.pop(block)
        edge = first << BLOCK_BITS
        assert edge <= offset
        assert self.count == sum(self._blocks.values()), "every waiting record is in a block"
        self._next = [one for one in self._next if _unpacked(one).offset >= edge]
        self._new = [one for one in self._new if _unpacked(one).offset >= edge]
        if self._found is not None:
            self._found = [one for one in self._found if _unpacked(one).offset >= edge]

    def _end_if_empty(self) -> None:
        """Records that were compacted away are not waited for, once everything else is there."""
        if not len(self) and self._bound == _NEVER:
            self.count = 0
            self._blocks.clear()

    def _left(self, offset: int) -> None:
        block = offset >> BLOCK_BITS
        self._blocks[block] -= 1
        if not self._blocks[block]:
            del self._blocks[block]
        self.count -= 1
        assert self.count >= 0, "no more records are admitted than have waited"

    def _sort(self) -> None:
        if len(self._new) > INSERTED_ONE_BY_ONE_MAX:
            self._next += self._new
            self._next.sort()
        else:
            for one in self._new:
                insort(self._next, one)
        self._new = []

    def _cut(self) -> None:
        self._sort()
        self._bound = self._next[-self._size_max - 1]
        self._next = self._next[-self._size_max :]
        assert len(self) == self._size_max, "the records that are due first are kept"
        assert self._bound < self._next[0], "what was left out is due later"


def _packed(one: Delayed) -> int:
    return -(one.due_ms << 63 | one.offset)


def _unpacked(packed: int) -> Delayed:
    return Delayed(-packed >> 63, -packed & OFFSET_MAX)


# Bounds: everything is in the index, and nothing is.
_NEVER = _packed(Delayed(DUE_MAX_MS, OFFSET_MAX))
_ALWAYS = 1
