"""The books of a chaos run: what was acknowledged, what was read, and so what is lost or there twice.

Each partition's records are numbered from 0 in the order they are sent, and an idempotent producer keeps that order.
So a reader that has seen number 7 expects 8. A smaller number at a later offset is a duplicate; a larger one means that
those between are missing, and a missing record that was acknowledged, before or after, is lost. Nothing needs to be
remembered of records that came as expected, however long the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class PartitionBooks:
    """One partition: the next number to send, the last one acknowledged, the next one to be read."""

    next_sent: int = 0
    acknowledged_through: int = -1
    next_read: int = 0
    last_read_offset: int = -1
    last_acknowledged_at: float | None = None
    failed: set[int] = field(default_factory=set)
    missing: set[int] = field(default_factory=set)

    @property
    def outstanding(self) -> int:
        """Records that were sent and neither acknowledged nor given up."""
        later = sum(1 for number in self.failed if number > self.acknowledged_through)
        return self.next_sent - 1 - self.acknowledged_through - later


class Ledger:
    """The books of all partitions, and their sums. Times are seconds of any clock that never jumps."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self.books = {partition: PartitionBooks() for partition in partitions}
        self.acknowledged = 0
        self.read = 0
        self.lost = 0
        self.duplicated = 0
        self.failed = 0
        self._longest_gap_s = 0.0

    def send(self, partition: int, now: float) -> int:
        """The number of the next record of a partition."""
        books = self.books[partition]
        if books.outstanding == 0:
            books.last_acknowledged_at = now
        books.next_sent += 1
        return books.next_sent - 1

    def note_acknowledged(self, partition: int, number: int, now: float) -> None:
        """The cluster has promised to keep this record."""
        books = self.books[partition]
        self._note_gap(books, now)
        books.last_acknowledged_at = now
        books.acknowledged_through = max(books.acknowledged_through, number)
        self.acknowledged += 1
        if number in books.missing:
            books.missing.discard(number)
            self.lost += 1

    def note_failed(self, partition: int, number: int) -> None:
        """The producer gave up: nothing was promised, and whether the record is there is not checked."""
        self.failed += 1
        self.books[partition].failed.add(number)
        self.books[partition].missing.discard(number)

    def note_read(self, partition: int, offset: int, number: int) -> None:
        """A consumer found this record at this offset."""
        books = self.books[partition]
        if offset <= books.last_read_offset:
            # The consumer went back and reads again what it had.
            return
        books.last_read_offset = offset
        if number < books.next_read:
            self.duplicated += 1
            return
        for skipped in range(books.next_read, number):
            if skipped in books.failed:
                continue
            if skipped <= books.acknowledged_through:
                self.lost += 1
            else:
                books.missing.add(skipped)
        self.read += 1
        books.next_read = number + 1

    def longest_gap_s(self, now: float) -> float:
        """The longest that records of one partition waited for an acknowledgement, the present wait included."""
        for books in self.books.values():
            if books.outstanding:
                self._note_gap(books, now)
        return self._longest_gap_s

    def unread(self) -> int:
        """Acknowledged records that the consumer has not come to."""
        return sum(
            max(0, books.acknowledged_through + 1 - books.next_read)
            - sum(1 for number in books.failed if books.next_read <= number <= books.acknowledged_through)
            for books in self.books.values()
        )

    def outstanding(self) -> int:
        """Records that still wait for an acknowledgement."""
        return sum(books.outstanding for books in self.books.values())

    def close(self) -> None:
        """The consumer has read to the end: what it has not come to by now is lost."""
        self.lost += self.unread()
        for books in self.books.values():
            books.next_read = books.acknowledged_through + 1

    def _note_gap(self, books: PartitionBooks, now: float) -> None:
        if books.last_acknowledged_at is not None:
            self._longest_gap_s = max(self._longest_gap_s, now - books.last_acknowledged_at)
