"""Neighbouring offsets of a share-partition that share one state, and how they are cut, joined and stored."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple

NO_HOLDER = ""
SETTLED = 0
# A dead letter without an identity yet, and records that are none.
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
# Nothing is delayed.
NO_DELAY = -1

_first_of = attrgetter("first")
_last_of = attrgetter("last")


class RecordState(IntEnum):
    """Where a record is on its way; the numbers are those of `__share_group_state`.

    One that is ARCHIVING is on its way to the dead letters: no member gets it any more, and it is not finished yet.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


FINISHED = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class Reason(IntEnum):
    """Why a record is a dead letter."""

    NONE = 0
    REJECTED = 1
    OUT_OF_TRIES = 2


class StateBatch(NamedTuple):
    """A run as it is stored. The identity, the reason and the last holder are those of dead letters."""

    first: int
    last: int
    state: int
    delivery_count: int
    producer_id: int = NO_PRODUCER_ID
    sequence: int = NO_SEQUENCE
    reason: int = Reason.NONE
    member: str = NO_HOLDER

    def cut(self, first: int, last: int) -> StateBatch:
        """A part of the batch; each record keeps its sequence."""
        sequence = self.sequence + first - self.first if self.sequence != NO_SEQUENCE else NO_SEQUENCE
        return self._replace(first=first, last=last, sequence=sequence)

    def is_continued_by(self, other: StateBatch) -> bool:
        """Whether the two are one batch."""
        expected = self.sequence if self.sequence == NO_SEQUENCE else self.sequence + self.last - self.first + 1
        return (
            self.last + 1 == other.first
            and expected == other.sequence
            and self[2:5] == other[2:5]
            and self[6:] == other[6:]
        )


class Delays(NamedTuple):
    """What is stored of delayed records: those that are due up to (`due_ms`, `offset`) were admitted.

    Unfinished records are at or after `start`; without delays it is NO_DELAY, and they are after the start offset.
    """

    start: int = NO_DELAY
    due_ms: int = NO_DELAY
    offset: int = NO_DELAY


NO_DELAYS = Delays()


class Letter(NamedTuple):
    """A run of dead letters. Records are written by a producer, with sequences, so that none is written twice."""

    reason: Reason
    member: str
    producer_id: int = NO_PRODUCER_ID
    sequence: int = NO_SEQUENCE

    def after(self, count: int) -> Letter:
        """The letters without the first `count`."""
        assert count >= 0
        return self if self.sequence == NO_SEQUENCE else self._replace(sequence=self.sequence + count)


@dataclass(slots=True)
class Run:
    """Neighbouring offsets that share one state, one holder and one lock."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    holder: str = NO_HOLDER
    deadline_ms: int = 0
    # The write that must become durable before any member may have these records.
    write: int = SETTLED
    # What the run goes back to when that write fails.
    before: Run | None = None
    # When a record that came back may be had again; 0 for now.
    not_before_ms: int = 0
    letter: Letter | None = None
    # A record that was delayed may be unfinished before the start; the state that is stored must name it.
    was_delayed: bool = False
    is_stored: bool = True
    is_being_stored: bool = False

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        """Whether a member may have these records."""
        return self.state is RecordState.AVAILABLE and self.write == SETTLED and self.not_before_ms == 0

    @property
    def is_done(self) -> bool:
        """Whether nothing will become of these records any more."""
        return self.state in FINISHED and self.write == SETTLED

    def batch(self) -> StateBatch:
        """The run as it is stored; who holds it is not."""
        state = RecordState.AVAILABLE if self.state is RecordState.ACQUIRED else self.state
        if self.letter is None:
            return StateBatch(self.first, self.last, state, self.delivery_count)
        reason, member, producer_id, sequence = self.letter
        return StateBatch(self.first, self.last, state, self.delivery_count, producer_id, sequence, reason, member)

    def check(self) -> None:
        """What holds between changes."""
        assert self.first <= self.last
        assert (self.holder != NO_HOLDER) == (self.state is RecordState.ACQUIRED)
        assert (self.letter is not None) == (self.state is RecordState.ARCHIVING)
        assert (self.before is not None) == (self.write != SETTLED)
        assert not self.not_before_ms or self.state is RecordState.AVAILABLE
        assert self.letter is None or self.letter.reason is not Reason.NONE, "a dead letter has a reason"
        assert self.before is None or self.before.before is None, "what a write is undone to is settled"
        assert not (self.is_stored and self.is_being_stored)

    def likeness(self) -> tuple[object, ...]:
        """Neighbours with the same likeness are one run."""
        return self.state, self.delivery_count, self.holder, self.deadline_ms, self.not_before_ms, self.was_delayed


def why_not_held(run: Run | None, member: str, delivery_count: int) -> str:
    """Why a member does not hold a record any more that it got with this delivery; empty if it does."""
    if run is None or run.state in FINISHED or run.state is RecordState.ARCHIVING:
        return "it was settled already"
    if run.write != SETTLED:
        return "it is being settled"
    if run.state is RecordState.AVAILABLE:
        return "its lock ended or it was released, and it waits to be delivered again"
    if (run.holder, run.delivery_count) != (member, delivery_count):
        return "its lock ended or it was released, and it was delivered again"
    return ""


class Runs:
    """Runs in the order of their offsets; none overlap."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def lowest(self, default: int) -> int:
        """The first offset that any run has."""
        return self._runs[0].first if self._runs else default

    def append(self, run: Run) -> None:
        """Add a run after all others."""
        assert run.first <= run.last
        assert not self._runs or self._runs[-1].last < run.first
        self._runs.append(run)

    def insert(self, run: Run) -> None:
        """Add a run where none is."""
        index = bisect_left(self._runs, run.first, key=_first_of)
        assert run.first <= run.last
        assert index == 0 or self._runs[index - 1].last < run.first
        assert index == len(self._runs) or run.last < self._runs[index].first
        self._runs.insert(index, run)

    def overlapping(self, first: int, last: int) -> list[Run]:
        """The runs that have any of these offsets."""
        begin = bisect_left(self._runs, first, key=_last_of)
        stop = bisect_right(self._runs, last, key=_first_of)
        assert stop >= begin
        return self._runs[begin:stop]

    def after(self, offset: int) -> Iterator[Run]:
        """The runs with offsets from `offset` on."""
        for index in range(bisect_left(self._runs, offset, key=_last_of), len(self._runs)):
            yield self._runs[index]

    def cut_out(self, first: int, last: int) -> list[Run]:
        """The runs that have only these offsets, and all of them that any run has."""
        if last < first:
            return []
        self.split(first)
        self.split(last + 1)
        return self.overlapping(first, last)

    def split(self, offset: int) -> None:
        """Let a run begin at `offset`."""
        index = bisect_left(self._runs, offset, key=_last_of)
        if index == len(self._runs) or self._runs[index].first >= offset:
            return
        run = self._runs[index]
        letter = run.letter.after(offset - run.first) if run.letter is not None else None
        tail = replace(run, first=offset, letter=letter)
        run.last = offset - 1
        assert run.first <= run.last < tail.first <= tail.last
        self._runs.insert(index + 1, tail)

    def keep(self, kept: Sequence[Run]) -> None:
        """Only these runs remain; neighbours that are alike become one."""
        joined: list[Run] = []
        for run in kept:
            last = joined[-1] if joined else None
            run.check()
            assert last is None or last.last < run.first
            if last is not None and _may_join(last, run):
                last.last = run.last
            else:
                joined.append(run)
        assert len(joined) <= len(kept)
        assert sum(run.size for run in joined) >= len(joined), "no run is empty"
        self._runs = joined


def _may_join(one: Run, other: Run) -> bool:
    return (
        one.last + 1 == other.first
        and one.write == other.write == SETTLED
        and one.letter is other.letter is None
        and one.is_stored
        and other.is_stored
        and one.likeness() == other.likeness()
    )
