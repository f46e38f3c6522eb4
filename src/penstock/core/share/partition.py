"""One partition as one share group sees it: which records are in flight, who holds them, how often they were delivered.

Before `start` everything is finished but for records that were delayed; from `end` on nothing was looked at yet.
Between the two, runs of offsets cover each offset once. A run that is changed waits for its change to be durable: until
`settle` no member gets its records, and `start` stays before it, so that the answer to an acknowledgement still holds
after a change of leader.

With a topic for dead letters a record that is rejected or out of tries is ARCHIVING first, durably and with the
identity under which its dead letter is written, and ARCHIVED when that is done. Delayed records are passed over like
gaps until they are due (see `delays`). When they are admitted, `start` may be past them, so what is stored names each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import ceil

from penstock.core.share.acknowledgements import Acknowledgement, AckType
from penstock.core.share.contract import Acquired, DeadLetter, Saving, ShareSettings, Write, ranges_told
from penstock.core.share.delays import Delayed, DelayIndex
from penstock.core.share.runs import (
    FINISHED,
    NO_DELAYS,
    NO_HOLDER,
    NO_PRODUCER_ID,
    SETTLED,
    Delays,
    Letter,
    Reason,
    RecordState,
    Run,
    Runs,
    StateBatch,
    why_not_held,
)
from penstock.model.errors import ApiError, ErrorCode

# For those that do not tell which leader has delivered a record.
ANY_INCARNATION = -1

_AFTER = {
    AckType.ACCEPT: RecordState.ACKNOWLEDGED,
    AckType.RELEASE: RecordState.AVAILABLE,
    AckType.REJECT: RecordState.ARCHIVED,
    AckType.GAP: RecordState.ARCHIVED,
}


class SharePartition:
    """The state machine. Times are in milliseconds of a clock that never goes back, except for those of delays."""

    def __init__(
        self,
        start: int,
        batches: Iterable[StateBatch],
        settings: ShareSettings,
        *,
        delays: Delays = NO_DELAYS,
        now_ms: int = 0,
        incarnation: int = ANY_INCARNATION,
    ) -> None:
        """Resume where `batches`, in order, left off; what they leave out from `start` on was never delivered.

        `incarnation` is a number that no other leader, and no earlier load of this one, has for the share-partition.
        """
        self.settings = settings
        self.incarnation = incarnation
        self.start = self.end = start
        self.delays = DelayIndex(delays.due_ms, delays.offset, settings.delays_max)
        self._runs = Runs()
        self._writes = 0
        self._log_start = 0
        # Which of those that were delayed is next.
        self._turn = 0
        for batch in batches:
            if batch.first < start:
                sparse = self._loaded(batch.cut(batch.first, min(batch.last, start - 1)), now_ms)
                sparse.was_delayed = True
                self._runs.append(sparse)
            if batch.last < self.end:
                continue
            first = max(batch.first, self.end)
            if first > self.end:
                self._runs.append(Run(self.end, first - 1, RecordState.AVAILABLE, 0))
            self._runs.append(self._loaded(batch.cut(first, batch.last), now_ms))
            self.end = batch.last + 1
        self.advance()

    def _loaded(self, batch: StateBatch, now_ms: int) -> Run:
        run = Run(batch.first, batch.last, RecordState.AVAILABLE, batch.delivery_count)
        if batch.state in FINISHED:
            run.state = RecordState(batch.state)
        elif batch.state == RecordState.ARCHIVING:
            run.state = RecordState.ARCHIVING
            reason = Reason(batch.reason) if batch.reason else self._reason(batch.delivery_count)
            run.letter = Letter(reason, batch.member, batch.producer_id, batch.sequence)
        elif batch.delivery_count and (backoff_ms := self.settings.backoff_after(batch.delivery_count)):
            # When it came back is not stored; it waits as if that were now.
            run.not_before_ms = now_ms + backoff_ms
        return run

    def _reason(self, delivery_count: int) -> Reason:
        return Reason.OUT_OF_TRIES if delivery_count >= self.settings.delivery_count_max else Reason.REJECTED

    @property
    def in_flight(self) -> int:
        """How many offsets were handed out and are not finished."""
        return sum(run.size for run in self._runs if run.state not in FINISHED)

    @property
    def is_held(self) -> bool:
        """Whether any member holds records."""
        return any(run.state is RecordState.ACQUIRED for run in self._runs)

    @property
    def finished_count(self) -> int:
        """How many offsets from `start` on are finished: the group's lag does not count them."""
        return sum(run.size for run in self._runs if run.state in FINISHED and run.first >= self.start)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first lock ends, or the first record that came back may be had again."""
        locks = [run.deadline_ms for run in self._runs if run.state is RecordState.ACQUIRED and not run.write]
        waits = [run.not_before_ms for run in self._runs if run.not_before_ms and not run.write]
        return min((*locks, *waits), default=None)

    @property
    def next_due_ms(self) -> int | None:
        """When the next delayed record is due, by the wall clock; None while there is no room for it."""
        return self.delays.next_due_ms if self.in_flight < self.settings.in_flight_max else None

    def runs(self) -> tuple[Run, ...]:
        """Copies of the runs, for those who look on."""
        return tuple(replace(run, before=None) for run in self._runs)

    def next_offset(self, position: int | None = None) -> int | None:
        """Where to read next: the first record that came back, or else a new one; None while too many are out.

        With `position` only records from there on are considered.
        """
        for run in self._runs if position is None else self._runs.after(position):
            if run.is_free:
                if position is None and run.was_delayed:
                    # Those that were delayed are gone through in turn, or the last ones would wait for all new ones.
                    turns = (one for one in self._runs.after(self._turn) if one.was_delayed and one.is_free)
                    return next(turns, run).first
                return run.first if position is None else max(run.first, position)
        return self.end if self.in_flight < self.settings.in_flight_max else None

    def was_delayed(self, offset: int) -> bool:
        """Whether a record was admitted when it was due: it may be anywhere in the log."""
        return any(run.was_delayed for run in self._runs.overlapping(offset, offset))

    def free_within(self, first: int, last: int) -> list[int]:
        """The offsets that a member may have."""
        free = [run for run in self._runs.overlapping(first, last) if run.is_free]
        return [offset for run in free for offset in range(max(run.first, first), min(run.last, last) + 1)]

    def wake(self, now_ms: int) -> bool:
        """Records that have waited long enough may be had again; whether there are any."""
        woken = [run for run in self._runs if 0 < run.not_before_ms <= now_ms]
        for run in woken:
            run.not_before_ms = 0
        return bool(woken)

    def admit_due(self, now_ms: int) -> bool:
        """Delayed records that are due at `now_ms` (of the wall clock) may be had; whether there are any.

        They get half of the room that is left, so that they don't keep new records from being delivered.
        """
        room = self.settings.in_flight_max - self.in_flight
        offsets = self.delays.take(now_ms, (room + 1) // 2) if room > 0 else []
        assert len(offsets) <= max(0, room), "records that are due get no more than the room there is"
        assert all(offset < self.end for offset in offsets), "what is delayed was passed over"
        for offset in offsets:
            if offset < self.start:
                self._runs.insert(Run(offset, offset, RecordState.AVAILABLE, 0, was_delayed=True, is_stored=False))
                continue
            for run in self._runs.cut_out(offset, offset):
                run.state, run.was_delayed, run.is_stored = RecordState.AVAILABLE, True, False
        return bool(offsets)

    def wait_for(self, one: Delayed) -> None:
        """A record before `end` is not due yet: it is passed over until then."""
        self.delays.add(one)
        assert one.offset < self.end, "what was not looked at yet waits for nothing"
        if one.offset >= self.start:
            for run in self._runs.cut_out(one.offset, one.offset):
                if run.is_free and not run.delivery_count:
                    run.state = RecordState.ARCHIVED

    def delay_until(self, offset: int, until_ms: int) -> None:
        """A record that was passed over, or not delivered yet, may be had from a time on."""
        for run in self._runs.cut_out(offset, offset):
            if offset >= self.start and not run.delivery_count and run.write == SETTLED and run.holder == NO_HOLDER:
                run.state, run.not_before_ms = RecordState.AVAILABLE, until_ms

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
        Offsets between the batches have no records: they are archived at once, which needs no write, since the next
        leader will find the same gaps. A record on its last try is handed out alone: it may be what kills workers.
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
            assert first >= position >= wanted, "records are handed out in the order of their offsets"
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
                    if taken == records_max:
                        break
                    self._runs.split(run.first + records_max - taken)
                self._take(run, member, now_ms)
                self._turn = run.last + 1 if run.was_delayed else self._turn
                acquired.append(run)
                taken += run.size
                assert run.holder == member
                assert not is_strict or taken <= records_max, "a strict limit is never exceeded"
                if self._is_suspect(run):
                    return ranges_told(acquired, batch_size)
            position = last + 1
            if taken >= records_max or last < batch_last:
                break
        return ranges_told(acquired, batch_size)

    def acknowledge(self, member: str, acknowledgements: Sequence[Acknowledgement], now_ms: int) -> Write | None:
        """Apply a member's acknowledgements of records it holds; None when nothing has to be written.

        Raises INVALID_RECORD_STATE, and changes nothing, where it does not hold one of them.
        """
        lowest = min(self.start, self._runs.lowest(self.start))
        pieces = [piece for one in acknowledgements for piece in one.pieces(lowest)]
        if pieces and pieces[-1].last >= self.end:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"offset {pieces[-1].last} was not handed out yet")
        for one in acknowledgements:
            if self._log_start <= one.last < self.start and not self._runs.overlapping(one.first, one.last):
                raise ApiError(ErrorCode.INVALID_RECORD_STATE, f"offset {one.last} is finished")
        for piece in pieces:
            for run in self._runs.overlapping(piece.first, piece.last):
                self._check_holder(run, member, piece.kind)
        number = self._writes + 1
        changed: list[Run] = []
        for piece in pieces:
            for run in self._runs.cut_out(piece.first, piece.last):
                if piece.kind is AckType.RENEW:
                    run.deadline_ms = now_ms + self.settings.lock_ms
                else:
                    self._change(run, _AFTER[piece.kind], number, now_ms, is_rejected=piece.kind is AckType.REJECT)
                    changed.append(run)
        return self._written(changed)

    def check_attempt(self, member: str, offset: int, delivery_count: int, incarnation: int = ANY_INCARNATION) -> None:
        """Raises INVALID_RECORD_STATE unless `member` holds a record, and since this delivery of it.

        What is handed out is not stored, so after a failover deliveries are counted again from what was stored: the
        count names a delivery only together with the incarnation.
        """
        if incarnation not in (ANY_INCARNATION, self.incarnation):
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, "the leader has changed since, and its lock ended")
        run = next(iter(self._runs.overlapping(offset, offset)), None)
        why = "it was not delivered yet" if offset >= self.end else why_not_held(run, member, delivery_count)
        if why:
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, why)

    def release(self, member: str, now_ms: int = 0) -> Write | None:
        """The member has gone: what it holds comes back."""
        held = [run for run in self._runs if run.holder == member and run.state is RecordState.ACQUIRED]
        return self._give_back([run for run in held if run.write == SETTLED], now_ms)

    def expire(self, now_ms: int) -> Write | None:
        """Locks that ended: their records come back."""
        held = [run for run in self._runs if run.state is RecordState.ACQUIRED and run.write == SETTLED]
        return self._give_back([run for run in held if run.deadline_ms <= now_ms], now_ms)

    def letters(self) -> list[DeadLetter]:
        """The dead letters that must be written, each producer's in the order of its sequences."""
        found = [
            DeadLetter(letter.producer_id, letter.sequence + count, run.first + count, run.delivery_count, *letter[:2])
            for run in self._runs
            if (letter := run.letter) is not None and run.write == SETTLED and letter.producer_id != NO_PRODUCER_ID
            for count in range(run.size)
        ]
        return sorted(found)

    @property
    def has_letters(self) -> bool:
        """Whether there are dead letters that are not written, with an identity or without."""
        return any(run.state is RecordState.ARCHIVING and run.write == SETTLED for run in self._runs)

    def renew_letters(self, producer_id: int = NO_PRODUCER_ID) -> Write | None:
        """Have the dead letters of one producer, or those without any, get new identities with the next write."""
        renewed = [
            run
            for run in self._runs
            if run.letter is not None and run.write == SETTLED and run.letter.producer_id == producer_id
        ]
        for run in renewed:
            assert run.letter is not None
            run.before, run.write = replace(run), self._writes + 1
            run.letter = Letter(*run.letter[:2])
        return self._written(renewed)

    def archive(self, offsets: Iterable[int]) -> Write | None:
        """The dead letters of these records are written, or no longer wanted."""
        archived: list[Run] = []
        for offset in offsets:
            archived += (
                run
                for run in self._runs.cut_out(offset, offset)
                if run.state is RecordState.ARCHIVING and run.write == SETTLED
            )
        for run in archived:
            run.before, run.write = replace(run), self._writes + 1
            assert run.letter is not None, "only dead letters are archived once they are written"
            run.state, run.letter = RecordState.ARCHIVED, None
        return self._written(archived)

    def settle(self, number: int, *, is_durable: bool, batches: Iterable[StateBatch] = ()) -> None:
        """A write has ended. When it failed, its records are with their holders as before.

        `batches` have the identities of dead letters with which it was written.
        """
        if is_durable:
            for batch in batches:
                if batch.producer_id != NO_PRODUCER_ID:
                    self._identify(batch, number)
        for run in self._runs:
            if run.write == number:
                before = run.before
                run.write, run.before = SETTLED, None
                if is_durable:
                    run.is_stored = True
                elif before is not None:
                    run.state, run.holder, run.deadline_ms = before.state, before.holder, before.deadline_ms
                    run.not_before_ms = before.not_before_ms
                    run.letter = before.letter.after(run.first - before.first) if before.letter is not None else None
        self.advance()

    def _identify(self, batch: StateBatch, number: int) -> None:
        for run in self._runs.cut_out(batch.first, batch.last):
            if run.write == number and run.letter is not None:
                assert batch.first <= run.first <= run.last <= batch.last
                sequence = batch.sequence + run.first - batch.first
                run.letter = run.letter._replace(producer_id=batch.producer_id, sequence=sequence)

    def pass_over(self, first: int, last: int) -> None:
        """Offsets from `next_offset` on have no records for any member; like gaps they are archived without a write.

        `advance` must be called before anything else, and once those that have to wait are known.
        """
        self._archive_gap(first, last)

    def save(self, writes: Sequence[Write]) -> Saving:
        """What to store for these writes; `saved` must be called when that has ended."""
        numbers = {write.number for write in writes}
        batches = [batch for write in writes for batch in write.batches]
        for run in self._runs:
            assert not run.is_being_stored, "one write is under way at a time"
            if not run.is_stored and not run.is_done and run.write not in numbers:
                run.is_being_stored = True
                assert run.write == SETTLED or run.before is not None
                stored = run if run.before is None else run.before
                batches.append(StateBatch(run.first, run.last, RecordState.AVAILABLE, stored.delivery_count))
        start, finished_count = self.start_after(numbers)
        lowest = min((run.first for run in self._runs if not run.is_done), default=start)
        assert self.start <= start <= self.end
        assert lowest <= self.end
        assert 0 <= finished_count <= self.end - start, "only what is after the start is counted"
        waiting = self.delays.start
        floor = min(start, lowest, start if waiting is None else waiting)
        cursor = self.delays.cursor
        return Saving(start, finished_count, tuple(batches), Delays(floor if floor < start else -1, *cursor))

    def saved(self, *, is_durable: bool) -> None:
        """What `save` returned was stored, or could not be."""
        for run in self._runs:
            if run.is_being_stored:
                run.is_being_stored = False
                run.is_stored = run.is_stored or is_durable

    def start_after(self, numbers: Collection[int]) -> tuple[int, int]:
        """Where the partition starts once these writes are durable, and how many offsets behind that are finished."""
        start, count, is_first = self.start, 0, True
        for run in self._runs:
            if run.first < self.start:
                continue
            is_finished = run.state in FINISHED and (run.write == SETTLED or run.write in numbers)
            if is_first and (is_finished or run.was_delayed):
                start = run.last + 1
                continue
            is_first = False
            count += run.size if is_finished else 0
        return start, count

    def raise_start(self, offset: int) -> None:
        """The log begins at `offset` now: what was before it is gone, even if a member holds it."""
        if offset > self._log_start:
            self.delays.forget_before(offset)
            self._log_start = offset
        if offset <= self.start and offset <= self._runs.lowest(self.start):
            return

        self._runs.split(offset)
        self._runs.keep([run for run in self._runs if run.first >= offset])
        self.start = max(self.start, offset)
        self.end = max(self.end, offset)
        self.advance()
        assert offset <= self.start, "nothing is left of what the log no longer has"
        assert self._runs.lowest(offset) >= offset

    def _give_back(self, runs: list[Run], now_ms: int) -> Write | None:
        for run in runs:
            self._change(run, RecordState.AVAILABLE, self._writes + 1, now_ms)
        return self._written(runs)

    def _change(self, run: Run, state: RecordState, number: int, now_ms: int, *, is_rejected: bool = False) -> None:
        assert run.write == SETTLED, "one write of a record is under way at a time"
        assert run.state is RecordState.ACQUIRED, "only what is held is given back or acknowledged"
        assert number == self._writes + 1
        run.before = replace(run)
        is_last_try = state is RecordState.AVAILABLE and run.delivery_count >= self.settings.delivery_count_max
        run.state = RecordState.ARCHIVED if is_last_try else state
        if (is_last_try or is_rejected) and self.settings.has_dead_letters:
            run.state = RecordState.ARCHIVING
            run.letter = Letter(Reason.REJECTED if is_rejected else Reason.OUT_OF_TRIES, run.holder)
        if run.state is RecordState.AVAILABLE and (backoff_ms := self.settings.backoff_after(run.delivery_count)):
            run.not_before_ms = now_ms + backoff_ms
        run.holder, run.deadline_ms, run.write = NO_HOLDER, 0, number

    def _written(self, runs: list[Run]) -> Write | None:
        if not runs:
            return None
        self._writes += 1
        assert all(run.write == self._writes for run in runs), "what was changed waits for this write"
        assert all(run.before is not None for run in runs), "a write that fails is undone"
        return Write(self._writes, tuple(run.batch() for run in runs))

    def _take(self, run: Run, member: str, now_ms: int) -> None:
        assert run.is_free, "a record has one holder at a time"
        assert member != NO_HOLDER
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
        for run in [run for run in self._runs.overlapping(first, last) if run.is_free]:
            bottom, top = max(run.first, first), min(run.last, last)
            if limit > 1 and run.delivery_count == limit - 1:
                if not found and not alone:
                    found = self._runs.cut_out(bottom, bottom)
                return found
            if run.delivery_count >= careful_from:
                # Half of the tries have failed: smaller portions find the record that fails the others.
                assert bottom <= top
                top = bottom + max(1, (top - bottom + 1) // 2) - 1
                return found + self._runs.cut_out(bottom, top)
            found += self._runs.cut_out(bottom, top)
        return found

    def _held_within(self, first: int, last: int) -> int:
        """How many offsets of a range are in flight already, and don't count as new."""
        held = [run for run in self._runs.overlapping(first, last) if not run.is_free]
        assert sum(run.size for run in held) <= self.end - min(self.start, self._runs.lowest(self.start))
        return sum(min(run.last, last) - max(run.first, first) + 1 for run in held)

    def _archive_gap(self, first: int, last: int) -> None:
        if last < first:
            return
        for run in self._runs.cut_out(first, min(last, self.end - 1)):
            if run.is_free:
                run.state = RecordState.ARCHIVED
        if last >= self.end:
            assert first <= self.end, "there is no gap before the end"
            self._runs.append(Run(self.end, last, RecordState.ARCHIVED, 0))
            self.end = last + 1

    def _check_holder(self, run: Run, member: str, kind: AckType) -> None:
        if run.state is not RecordState.ACQUIRED or run.write != SETTLED:
            state = "being changed" if run.write else run.state.name.lower()
            raise ApiError(
                ErrorCode.INVALID_RECORD_STATE, f"records {run.first} to {run.last} are {state}, not held by anybody"
            )
        if run.holder != member:
            why = f"another member holds records {run.first} to {run.last}: the lock ended"
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, why)
        if kind is AckType.RENEW and not self.settings.may_renew:
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, "the group does not allow locks to be renewed")

    def advance(self) -> None:
        """Move `start` past what is finished or was delayed, and join neighbours that are alike."""
        kept: list[Run] = []
        is_first = True
        for run in self._runs:
            if run.first >= self.start:
                is_first = is_first and (run.is_done or run.was_delayed)
                if is_first:
                    self.start = run.last + 1
            if run.first >= self.start or not run.is_done:
                kept.append(run)
        assert self.start <= self.end
        assert not kept or kept[-1].last < self.end
        self._runs.keep(kept)
        expected = self.start
        for run in self._runs.after(self.start):
            assert run.first == expected, "runs cover each offset from the start on once"
            expected = run.last + 1
        assert expected == self.end, "runs reach up to the end"
        assert all(run.was_delayed or not run.is_done for run in self._runs if run.first < self.start)
