"""One partition as one share group sees it: which records are in flight, who holds them, how often they were delivered.

Before `start` everything is finished; from `end` on nothing was handed out yet. Between the two, runs of offsets cover
each offset once. A run that is changed waits for its change to be durable: until `settle` nobody gets its records, and
`start` stays before it, so that what a member was told about an acknowledgement holds whoever leads next.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import ceil
from operator import attrgetter
from typing import NamedTuple

from penstock.core.share.acknowledgements import Acknowledgement, AckType
from penstock.model.errors import ApiError, ErrorCode

NOBODY = ""
SETTLED = 0

_last_of = attrgetter("last")


class RecordState(IntEnum):
    """Where a record is on its way; the numbers are those of `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


FINISHED = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})
_AFTER = {
    AckType.ACCEPT: RecordState.ACKNOWLEDGED,
    AckType.RELEASE: RecordState.AVAILABLE,
    AckType.REJECT: RecordState.ARCHIVED,
    AckType.GAP: RecordState.ARCHIVED,
}


class StateBatch(NamedTuple):
    """A run as it is stored."""

    first: int
    last: int
    state: int
    delivery_count: int


class Acquired(NamedTuple):
    """Records that a member got."""

    first: int
    last: int
    delivery_count: int


class Write(NamedTuple):
    """What has to become durable before a change counts. `number` is for `settle`."""

    number: int
    batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """A share group's settings for its partitions, with Kafka's defaults."""

    delivery_count_max: int = 5
    lock_ms: int = 30_000
    in_flight_max: int = 2_000
    may_renew: bool = True


@dataclass(slots=True)
class Run:
    """Neighbouring offsets that share one state, one holder and one lock."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    holder: str = NOBODY
    deadline_ms: int = 0
    # The write that must become durable before anybody may have these records.
    write: int = SETTLED
    # What the run goes back to when that write fails.
    before: Run | None = None

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        """Whether a member may have these records."""
        return self.state is RecordState.AVAILABLE and self.write == SETTLED


class SharePartition:
    """The state machine. Times are in milliseconds of a clock that never goes back."""

    def __init__(self, start: int, batches: Iterable[StateBatch], settings: ShareSettings) -> None:
        """Go on where `batches`, in order, left off; what they leave out was never delivered."""
        self.settings = settings
        self.start = self.end = start
        self._runs: list[Run] = []
        self._writes = 0
        for batch in batches:
            if batch.last < self.end:
                continue
            first = max(batch.first, self.end)
            if first > self.end:
                self._runs.append(Run(self.end, first - 1, RecordState.AVAILABLE, 0))
            state = RecordState(batch.state) if batch.state in FINISHED else RecordState.AVAILABLE
            self._runs.append(Run(first, batch.last, state, batch.delivery_count))
            self.end = batch.last + 1
        self._advance()

    @property
    def in_flight(self) -> int:
        """How many offsets were handed out and are not finished."""
        return sum(run.size for run in self._runs if run.state not in FINISHED)

    @property
    def finished_count(self) -> int:
        """How many offsets from `start` on are finished: the group's lag does not count them."""
        return sum(run.size for run in self._runs if run.state in FINISHED)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first lock ends."""
        deadlines = [run.deadline_ms for run in self._runs if run.state is RecordState.ACQUIRED and not run.write]
        return min(deadlines, default=None)

    def runs(self) -> tuple[Run, ...]:
        """Copies of the runs, for those who look on."""
        return tuple(replace(run, before=None) for run in self._runs)

    def next_offset(self) -> int | None:
        """Where to read next: the first record that came back, or else a new one; None while too many are out."""
        for run in self._runs:
            if run.is_free:
                return run.first
        return self.end if self.in_flight < self.settings.in_flight_max else None

    def acquire(
        self,
        member: str,
        batches: Sequence[tuple[int, int]],
        records_max: int,
        now_ms: int,
        *,
        batch_size: int = 0,
        is_strict: bool = False,
    ) -> list[Acquired]:
        """Hand out records of `batches`: the first and last offset of each batch that was read from `next_offset` on.

        At most `records_max`, but whole batches unless `is_strict`, so that a batch is not split among members.
        Offsets between the batches have no records: they are archived at once, which needs no write, since whoever
        leads next will find the same gaps. A record on its last try is handed out alone: it may be what kills workers.
        """
        wanted = self.next_offset()
        if wanted is None or not batches or records_max <= 0:
            return []
        acquired: list[Run] = []
        taken = 0
        position = wanted
        room = self.settings.in_flight_max - self.in_flight
        for batch_first, batch_last in batches:
            if batch_last < position:
                continue
            self._archive_gap(position, batch_first - 1)
            first, last = max(batch_first, position), batch_last
            if last >= self.end and room <= 0:
                last = self.end - 1
            if is_strict:
                last = min(last, first + records_max - taken - 1 + self._held_within(first, last))
            if last < first:
                break
            if last >= self.end:
                room -= last - self.end + 1
                self._runs.append(Run(self.end, last, RecordState.AVAILABLE, 0))
                self.end = last + 1
            for run in self._free_within(first, last, alone=bool(acquired)):
                if is_strict and taken + run.size > records_max:
                    break
                self._take(run, member, now_ms)
                acquired.append(run)
                taken += run.size
                if self._is_suspect(run):
                    return _told(acquired, batch_size)
            position = last + 1
            if taken >= records_max or last < batch_last:
                break
        return _told(acquired, batch_size)

    def acknowledge(self, member: str, acknowledgements: Sequence[Acknowledgement], now_ms: int) -> Write | None:
        """What `member` says of records it holds; None when nothing has to be written.

        Raises INVALID_RECORD_STATE, and changes nothing, where it does not hold one of them.
        """
        pieces = [piece for one in acknowledgements for piece in one.pieces(self.start)]
        if pieces and pieces[-1].last >= self.end:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"offset {pieces[-1].last} was not handed out yet")
        for piece in pieces:
            for run in self._overlapping(piece.first, piece.last):
                self._check_holder(run, member, piece.kind)
        number = self._writes + 1
        changed: list[Run] = []
        for piece in pieces:
            for run in self._cut_out(piece.first, piece.last):
                if piece.kind is AckType.RENEW:
                    run.deadline_ms = now_ms + self.settings.lock_ms
                else:
                    self._change(run, _AFTER[piece.kind], number)
                    changed.append(run)
        return self._written(changed)

    def release(self, member: str) -> Write | None:
        """The member has gone: what it holds comes back."""
        held = [run for run in self._runs if run.holder == member and run.state is RecordState.ACQUIRED]
        return self._give_back([run for run in held if run.write == SETTLED])

    def expire(self, now_ms: int) -> Write | None:
        """Locks that ended: their records come back."""
        held = [run for run in self._runs if run.state is RecordState.ACQUIRED and run.write == SETTLED]
        return self._give_back([run for run in held if run.deadline_ms <= now_ms])

    def settle(self, number: int, *, is_durable: bool) -> None:
        """A write has ended. When it failed, its records are with their holders as before."""
        for run in self._runs:
            if run.write == number:
                before = run.before
                run.write, run.before = SETTLED, None
                if not is_durable and before is not None:
                    run.state, run.holder, run.deadline_ms = before.state, before.holder, before.deadline_ms
        self._advance()

    def skip(self, first: int, last: int) -> None:
        """Offsets from `next_offset` on have no records for anybody; like gaps they are archived without a write."""
        self._archive_gap(first, last)
        self._advance()

    def start_after(self, numbers: Collection[int]) -> tuple[int, int]:
        """Where the partition starts once these writes are durable, and how many offsets behind that are finished."""
        start, count, is_first = self.start, 0, True
        for run in self._runs:
            is_finished = run.state in FINISHED and (run.write == SETTLED or run.write in numbers)
            if is_finished and is_first:
                start = run.last + 1
            elif is_finished:
                count += run.size
            is_first = is_first and is_finished
        return start, count

    def raise_start(self, offset: int) -> None:
        """The log begins at `offset` now: what was before it is gone, whoever holds it."""
        if offset <= self.start:
            return
        if offset >= self.end:
            self._runs.clear()
            self.start = self.end = offset
            return
        self._split(offset)
        self._runs = [run for run in self._runs if run.first >= offset]
        self.start = offset
        self._advance()

    def _give_back(self, runs: list[Run]) -> Write | None:
        for run in runs:
            self._change(run, RecordState.AVAILABLE, self._writes + 1)
        return self._written(runs)

    def _change(self, run: Run, state: RecordState, number: int) -> None:
        run.before = replace(run)
        is_last_try = state is RecordState.AVAILABLE and run.delivery_count >= self.settings.delivery_count_max
        run.state = RecordState.ARCHIVED if is_last_try else state
        run.holder, run.deadline_ms, run.write = NOBODY, 0, number

    def _written(self, runs: list[Run]) -> Write | None:
        if not runs:
            return None
        self._writes += 1
        batches = (StateBatch(run.first, run.last, run.state, run.delivery_count) for run in runs)
        return Write(self._writes, tuple(batches))

    def _take(self, run: Run, member: str, now_ms: int) -> None:
        run.state = RecordState.ACQUIRED
        run.delivery_count += 1
        run.holder = member
        run.deadline_ms = now_ms + self.settings.lock_ms

    def _is_suspect(self, run: Run) -> bool:
        """Whether this is the last try."""
        return run.size == 1 and run.delivery_count == self.settings.delivery_count_max > 1

    def _free_within(self, first: int, last: int, *, alone: bool) -> list[Run]:
        """Runs that may be handed out, cut to fit. A record on its last try is in an answer of its own."""
        found: list[Run] = []
        limit = self.settings.delivery_count_max
        careful_from = max(2, ceil(limit / 2))
        for run in [run for run in self._overlapping(first, last) if run.is_free]:
            bottom, top = max(run.first, first), min(run.last, last)
            if limit > 1 and run.delivery_count == limit - 1:
                if not found and not alone:
                    found = self._cut_out(bottom, bottom)
                return found
            if run.delivery_count >= careful_from:
                # Half of the tries have failed: smaller portions find the record that fails the others.
                top = bottom + max(1, (top - bottom + 1) // 2) - 1
                return found + self._cut_out(bottom, top)
            found += self._cut_out(bottom, top)
        return found

    def _held_within(self, first: int, last: int) -> int:
        """How many offsets of a range are in flight already, and don't count as new."""
        held = [run for run in self._overlapping(first, last) if not run.is_free]
        return sum(min(run.last, last) - max(run.first, first) + 1 for run in held)

    def _archive_gap(self, first: int, last: int) -> None:
        if last < first:
            return
        for run in self._cut_out(first, min(last, self.end - 1)):
            if run.is_free:
                run.state = RecordState.ARCHIVED
        if last >= self.end:
            self._runs.append(Run(self.end, last, RecordState.ARCHIVED, 0))
            self.end = last + 1

    def _check_holder(self, run: Run, member: str, kind: AckType) -> None:
        if run.state is not RecordState.ACQUIRED or run.write != SETTLED:
            state = "being changed" if run.write else run.state.name.lower()
            raise ApiError(
                ErrorCode.INVALID_RECORD_STATE, f"records {run.first} to {run.last} are {state}, not held by anybody"
            )
        if run.holder != member:
            raise ApiError(
                ErrorCode.INVALID_RECORD_STATE,
                f"another member holds records {run.first} to {run.last}: the lock ended",
            )
        if kind is AckType.RENEW and not self.settings.may_renew:
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, "the group does not allow locks to be renewed")

    def _overlapping(self, first: int, last: int) -> list[Run]:
        runs = self._runs
        begin = bisect_left(runs, first, key=_last_of)
        stop = bisect_right(runs, last, key=lambda run: run.first)
        return runs[begin:stop]

    def _cut_out(self, first: int, last: int) -> list[Run]:
        """The runs that cover exactly these offsets."""
        if last < first:
            return []
        self._split(first)
        self._split(last + 1)
        return self._overlapping(first, last)

    def _split(self, offset: int) -> None:
        """Let a run begin at `offset`."""
        index = bisect_left(self._runs, offset, key=_last_of)
        if index == len(self._runs) or self._runs[index].first >= offset:
            return
        run = self._runs[index]
        tail = replace(run, first=offset)
        run.last = offset - 1
        self._runs.insert(index + 1, tail)

    def _advance(self) -> None:
        """Move `start` past what is finished, and join neighbours that are alike."""
        done = 0
        for run in self._runs:
            if run.state not in FINISHED or run.write != SETTLED:
                break
            done += 1
        if done:
            self.start = self._runs[done - 1].last + 1
            del self._runs[:done]
        if not self._runs:
            self.start = self.end
        self._join()

    def _join(self) -> None:
        joined: list[Run] = []
        for run in self._runs:
            last = joined[-1] if joined else None
            if last is not None and last.write == run.write == SETTLED and _likeness(last) == _likeness(run):
                last.last = run.last
            else:
                joined.append(run)
        self._runs = joined


def _likeness(run: Run) -> tuple[object, ...]:
    return run.state, run.delivery_count, run.holder, run.deadline_ms


def _told(runs: Sequence[Run], batch_size: int) -> list[Acquired]:
    """The ranges that a member hears of: neighbours with the same count are one, up to about `batch_size`."""
    told: list[Acquired] = []
    for run in runs:
        before = told[-1] if told else None
        joins = before is not None and before.last + 1 == run.first and before.delivery_count == run.delivery_count
        if before is not None and joins and not 0 < batch_size <= before.last - before.first + 1:
            told[-1] = Acquired(before.first, run.last, run.delivery_count)
        else:
            told.append(Acquired(run.first, run.last, run.delivery_count))
    return told
