"""Which records of a partition are done, and how a commit records it.

Records may finish out of order: one waits for its next try while later ones are processed. A commit names the first
record that is not done, and in its metadata those after it that are. The next owner of the partition skips them: a
poison pill neither blocks the partition nor causes records behind it to be processed again.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from penstock.wire.primitives import unsigned_varint

# Brokers accept metadata of up to 4096 bytes (offset.metadata.max.bytes).
METADATA_CHARACTERS_MAX = 4000
METADATA_CHARACTERS_FULL = 3500
# So many done records always fit, however they are distributed.
RANGES_ALWAYS_FIT = 250
PREFIX = "penstock:1:"

Ranges = tuple[tuple[int, int], ...]


class PartitionProgress:
    """The records of one partition that were read, in order, and which of them are done."""

    __slots__ = ("_committed", "_done", "_finished", "_next", "_pending", "_starts")

    def __init__(self, finished: Ranges = ()) -> None:
        """`finished` are the ranges (first, last) that the previous owner finished past its committed offset."""
        self._finished = finished
        self._starts = [first for first, _ in finished]
        self._pending: deque[int] = deque()
        self._done: set[int] = set()
        self._next: int | None = None
        self._committed: tuple[int, str] | None = None

    def start(self, offset: int) -> bool:
        """Note a record that was read; False if the previous owner has finished it already."""
        self._next = offset + 1
        if self._finished and self._is_finished(offset):
            self._pending.append(offset)
            self.finish(offset)
            return False
        self._pending.append(offset)
        return True

    def finish(self, offset: int) -> None:
        """Note a record that is done or dead-lettered."""
        pending, done = self._pending, self._done
        if pending[0] != offset:
            done.add(offset)
            return
        pending.popleft()
        while pending and done and pending[0] in done:
            done.discard(pending.popleft())

    @property
    def open_count(self) -> int:
        """How many records are not done, or are done but wait for an earlier one to be committed."""
        return len(self._pending)

    @property
    def unfinished_count(self) -> int:
        """How many records are not done."""
        return len(self._pending) - len(self._done)

    @property
    def is_full(self) -> bool:
        """Whether what is done out of order no longer fits into a commit."""
        return len(self._done) > RANGES_ALWAYS_FIT and len(self.position()[1]) >= METADATA_CHARACTERS_FULL

    @property
    def fits(self) -> bool:
        """Whether a commit has room for all records that are done."""
        if len(self._done) <= RANGES_ALWAYS_FIT:
            return True
        ranges = tuple(self._ranges())
        return len(decode_ranges(self._pending[0], encode_ranges(self._pending[0], ranges))) == len(ranges)

    def position(self) -> tuple[int, str]:
        """The offset to commit and its metadata; only after a record was read."""
        assert self._next is not None
        if not self._pending:
            return self._next, ""
        return self._pending[0], encode_ranges(self._pending[0], self._ranges()) if self._done else ""

    def uncommitted(self) -> tuple[int, str] | None:
        """The position, unless it is the one that was committed last."""
        if self._next is None:
            return None
        position = self.position()
        return None if position == self._committed else position

    def committed(self, position: tuple[int, str]) -> None:
        """Note that this position is durable."""
        self._committed = position

    def _ranges(self) -> Iterable[tuple[int, int]]:
        """The done records as ranges, which span gaps between offsets that were read one after the other."""
        first: int | None = None
        last = 0
        for offset in self._pending:
            if offset in self._done:
                first = offset if first is None else first
                last = offset
            elif first is not None:
                yield first, last
                first = None
        if first is not None:
            yield first, last

    def _is_finished(self, offset: int) -> bool:
        index = bisect_right(self._starts, offset) - 1
        return index >= 0 and offset <= self._finished[index][1]


def encode_ranges(base: int, ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges after an offset as metadata of a commit; the last ones are left out if there are too many."""
    encoded = bytearray()
    at = base
    for first, last in ranges:
        piece = unsigned_varint(first - at) + unsigned_varint(last - first)
        if (len(encoded) + len(piece)) * 4 // 3 + len(PREFIX) + 4 > METADATA_CHARACTERS_MAX:
            break
        encoded += piece
        at = last
    return PREFIX + base64.b64encode(encoded).decode()


def decode_ranges(base: int, metadata: str | None) -> Ranges:
    """The ranges that `encode_ranges` wrote; none for metadata that other clients wrote."""
    if not metadata or not metadata.startswith(PREFIX):
        return ()
    try:
        # confluent-kafka stores the zero byte that terminates a C string, and strips it when it reads.
        data = base64.b64decode(metadata[len(PREFIX) :].rstrip("\0"), validate=True)
    except ValueError:
        return ()
    numbers = []
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    ranges = []
    at = base
    for gap, length in zip(numbers[::2], numbers[1::2], strict=False):
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    return tuple(ranges)
