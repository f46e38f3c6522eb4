"""Delayed records: found in batches, kept in bounded memory, let in when they are due, and never twice or early."""

from __future__ import annotations

from bisect import bisect_left
from random import Random

import pytest

from penstock.core.share.acknowledgements import Acknowledgement, AckType
from penstock.core.share.batches import Batches, batches_in, deliverable
from penstock.core.share.contract import ShareSettings, Write
from penstock.core.share.delays import AFTER, AT, Delayed, DelayIndex, delayed_in, due_ms_of, without
from penstock.core.share.partition import SharePartition
from penstock.core.share.runs import NO_DELAY, Delays, StateBatch
from penstock.core.share.scan import Ahead, wait_for
from penstock.core.share.state_batches import combine
from penstock.wire.records import Compression, Record, build_batch, read_header


def record(offset: int, *headers: tuple[str, bytes | None], timestamp: int = 1_000) -> Record:
    return Record(offset, timestamp, None, b"value", headers)


@pytest.mark.parametrize(
    ("headers", "due_ms"),
    [
        ((), None),
        (((AT, b"5000"),), 5_000),
        (((AFTER, b"5000"),), 6_000),
        (((AT, b"soon"),), None),
        (((AT, b"-5"),), None),
        (((AT, None),), None),
        (((AT, b"9" * 40),), None),
        (((AT, b"5000"), (AFTER, b"1")), 1_001),
    ],
)
def test_when_a_record_is_due(headers: tuple[tuple[str, bytes | None], ...], due_ms: int | None) -> None:
    assert due_ms_of(record(0, *headers)) == due_ms


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_delayed_records_are_found_in_a_batch(compression: Compression) -> None:
    records = [record(10), record(11, (AT, b"7")), record(12, ("other", b"penstock.deliver.at"))]
    data = build_batch(records, base_offset=10, compression=compression)
    assert delayed_in(data, 0, read_header(data)) == [Delayed(7, 11)]


def test_ranges_are_cut_around_what_waits() -> None:
    assert without([(0, 9), (20, 29)], [0, 4, 5, 9, 25]) == [(1, 3), (6, 8), (20, 24), (26, 29)]
    assert without([(5, 5)], [5]) == []


def test_records_are_admitted_by_their_time_then_by_their_offset() -> None:
    index = DelayIndex(NO_DELAY, NO_DELAY, 100)
    for one in (Delayed(30, 1), Delayed(10, 9), Delayed(10, 2), Delayed(20, 3)):
        index.add(one)
    assert (index.count, index.next_due_ms, index.start) == (4, 10, 0)
    assert index.take(9, 10) == []
    assert index.take(20, 2) == [2, 9]
    assert index.cursor == (10, 9)
    assert index.take(25, 2) == [3]
    assert index.take(100, 2) == [1]
    assert (index.count, index.next_due_ms, index.start) == (0, None, None)


def test_the_cursor_moves_with_time_only_while_nothing_is_due() -> None:
    index = DelayIndex(NO_DELAY, NO_DELAY, 100)
    index.catch_up(50)
    assert not index.is_waiting(Delayed(50, 7))
    index.add(Delayed(60, 8))
    index.catch_up(60)
    assert index.is_waiting(Delayed(60, 8))
    index.take(60, 1)
    assert index.cursor == (60, 8)


@pytest.mark.parametrize("seed", range(10))
def test_the_index_is_bounded_and_refilled_from_the_log(seed: int) -> None:
    random = Random(seed)
    log = [Delayed(random.randrange(1_000), offset) for offset in range(3_000)]
    index = DelayIndex(NO_DELAY, NO_DELAY, 100)
    for one in log:
        index.add(one)
        assert len(index) <= 200
    taken: list[int] = []
    refills = 0
    while index.count:
        if index.needs_refill:
            refills += 1
            index.begin_refill()
            for number, one in enumerate(log[:]):
                if index.is_waiting(one):
                    index.offer(one)
                if number % 500 == 0:
                    # Meanwhile others are let in, and come.
                    taken += index.take(100_000, 3)
                    late = Delayed(index.cursor.due_ms + random.randrange(1, 1_000), len(log))
                    log.append(late)
                    index.add(late)
                assert len(index) <= 300
            index.end_refill()
        taken += index.take(100_000, random.randrange(1, 50))
    assert taken == [one.offset for one in sorted(log)]
    assert 10 < refills < 40


def test_the_log_may_be_cut_before_a_record_is_due() -> None:
    index = DelayIndex(NO_DELAY, NO_DELAY, 100)
    index.add(Delayed(5, 1))
    index.add(Delayed(9, 40_000))
    index.forget_before(35_000)
    assert (index.count, index.start, index.take(100, 10)) == (1, 32_768, [40_000])


class Leader:
    """A share-partition over a log as its leader uses it; what it stores is for the next one."""

    def __init__(self, log: Log, now_ms: int) -> None:
        self.log = log
        self.share = SharePartition(log.start, log.batches, log.settings, delays=log.delays, now_ms=now_ms)
        self.ahead = Ahead(self.share)
        index = self.share.delays
        floor = log.delays.start if log.delays.start != NO_DELAY else log.start
        index.begin_load()
        for one in log.delayed:
            if floor <= one.offset < self.share.end:
                wait_for(self.share, one, now_ms, now_ms)
        index.end_refill()

    def fetch(self, member: str, records_max: int, now_ms: int) -> list[int]:
        share = self.share
        share.delays.catch_up(now_ms)
        if share.delays.needs_refill:
            share.delays.begin_refill()
            for one in self.log.delayed:
                if one.offset < share.end and share.delays.is_waiting(one):
                    share.delays.offer(one)
            share.delays.end_refill()
        share.admit_due(now_ms)
        share.wake(now_ms)
        for _ in range(100):
            offset = share.next_offset()
            if offset is None or offset >= self.log.end:
                return []
            found = self.log.read(offset)
            ranges = self.ahead.deliverable(found, deliverable(found.headers, ()), now_ms)
            first = next((base for base, last in ranges if last >= offset), found.end)
            if first > offset:
                share.pass_over(offset, first - 1)
                self.ahead.passed(now_ms, now_ms)
                share.advance()
                continue
            acquired = share.acquire(member, ranges, records_max, now_ms)
            self.ahead.passed(now_ms, now_ms)
            return [offset for one in acquired for offset in range(one.first, one.last + 1)]
        raise AssertionError("nothing was found")

    def store(self, writes: list[Write], *, is_durable: bool) -> None:
        saving = self.share.save(writes)
        if is_durable:
            log = self.log
            log.start, log.delays = saving.start, saving.delays
            floor = saving.delays.start if saving.delays.start != NO_DELAY else saving.start
            log.batches = combine(log.batches, saving.batches, saving.start, floor)
        for write in writes:
            self.share.settle(write.number, is_durable=is_durable)
        self.share.saved(is_durable=is_durable)


class Log:
    """A log with delayed records, and the state that is stored of it."""

    def __init__(self, random: Random, settings: ShareSettings) -> None:
        self.settings = settings
        self.start = 0
        self.batches: tuple[StateBatch, ...] = ()
        self.delays = Delays()
        self.delayed: list[Delayed] = []
        self.bases: list[int] = []
        self._data: list[bytes] = []
        self.end = 0
        self._random = random

    def append(self, now_ms: int) -> None:
        random = self._random
        records = []
        self.bases.append(self.end)
        for _ in range(random.randrange(1, 6)):
            headers: tuple[tuple[str, bytes], ...] = ()
            if random.random() < 0.5:
                due_ms = now_ms + random.randrange(-200, 3_000)
                self.delayed.append(Delayed(max(0, due_ms), self.end))
                headers = ((AT, b"%d" % max(0, due_ms)),)
            records.append(record(self.end, *headers))
            self.end += 1
        self._data.append(build_batch(records, base_offset=self.bases[-1]))

    def append_delayed(self, due_ms: int) -> None:
        self.bases.append(self.end)
        self.delayed.append(Delayed(due_ms, self.end))
        self._data.append(build_batch([record(self.end, (AT, b"%d" % due_ms))], base_offset=self.end))
        self.end += 1

    def read(self, offset: int) -> Batches:
        first = bisect_left(self.bases, offset + 1) - 1
        return batches_in(b"".join(self._data[first : first + self._random.randrange(1, 5)]), offset)


@pytest.mark.parametrize("seed", range(20))
def test_delayed_records_are_never_early_never_lost_and_finished_once(seed: int) -> None:
    random = Random(seed)
    settings = ShareSettings(
        delivery_count_max=1_000, lock_ms=500, in_flight_max=random.choice((5, 20, 100)), delays_max=20
    )
    log = Log(random, settings)
    leader = Leader(log, 0)
    due_ms: dict[int, int] = {}
    held: dict[int, str] = {}
    finished: set[int] = set()
    now_ms = 1_000
    for step in range(1_000):
        now_ms += random.randrange(0, 10)
        if step < 500 and random.random() < 0.3:
            log.append(now_ms)
            due_ms = {one.offset: one.due_ms for one in log.delayed}
        write = leader.share.expire(now_ms)
        if write is not None:
            for offset in (offset for batch in write.batches for offset in range(batch.first, batch.last + 1)):
                held.pop(offset)
            leader.store([write], is_durable=True)
        member = random.choice("abc")
        for offset in leader.fetch(member, random.randrange(1, 20), now_ms):
            assert due_ms.get(offset, 0) <= now_ms
            assert offset not in held
            assert offset not in finished
            held[offset] = member
        mine = [offset for offset, holder in held.items() if holder == member]
        random.shuffle(mine)
        writes = []
        for offset in mine[: random.randrange(0, 12)]:
            kind = random.choice((AckType.ACCEPT, AckType.ACCEPT, AckType.ACCEPT, AckType.RELEASE))
            write = leader.share.acknowledge(member, [Acknowledgement(offset, offset, [kind])], now_ms)
            assert write is not None
            writes.append((write, offset, kind))
        is_durable = random.random() < 0.9
        if writes:
            leader.store([write for write, _, _ in writes], is_durable=is_durable)
        for _, offset, kind in writes if is_durable else ():
            del held[offset]
            if kind is AckType.ACCEPT:
                finished.add(offset)
        assert leader.share.in_flight <= settings.in_flight_max + 20
        assert len(log.batches) <= 4 * settings.in_flight_max + 20
        if random.random() < 0.01:
            leader = Leader(log, now_ms)
            held.clear()
    while len(finished) < log.end:
        now_ms += 50
        write = leader.share.expire(now_ms)
        if write is not None:
            leader.store([write], is_durable=True)
        offsets = leader.fetch("z", 50, now_ms)
        if offsets:
            said = [Acknowledgement(offset, offset, [AckType.ACCEPT]) for offset in offsets]
            write = leader.share.acknowledge("z", said, now_ms)
            assert write is not None
            leader.store([write], is_durable=True)
        finished.update(offsets)
        assert now_ms < 60_000
    assert leader.share.start == log.end
    assert log.batches == ()


@pytest.mark.parametrize("changes_leader", [False, True])
def test_a_clock_that_was_fast_lets_nothing_in_early_once_it_is_right(changes_leader: bool) -> None:
    log = Log(Random(1), ShareSettings())
    log.append_delayed(5_000)
    leader = Leader(log, 1_000)
    assert leader.fetch("a", 10, 3_600_000) == [0]
    write = leader.share.acknowledge("a", [Acknowledgement(0, 0, [AckType.ACCEPT])], 0)
    assert write is not None
    leader.store([write], is_durable=True)
    assert log.delays.due_ms > 9_000
    log.append_delayed(9_000)
    if changes_leader:
        leader = Leader(log, 2_000)
    assert leader.fetch("a", 10, 2_000) == []
    assert leader.fetch("a", 10, 8_999) == []
    if changes_leader:
        leader = Leader(log, 8_999)
        assert leader.fetch("a", 10, 8_999) == []
    assert leader.fetch("a", 10, 9_000) == [1]


def test_records_that_are_due_do_not_wait_for_others_before_them_in_the_log() -> None:
    share = SharePartition(100, [], ShareSettings())
    for offset in (10, 50, 90):
        share.delays.add(Delayed(5, offset))
    share.admit_due(5)
    taken = []
    for other in (7, 8, 9):
        offset = share.next_offset()
        assert offset is not None
        share.acquire("a", [(offset, offset)], 1, 0)
        taken.append(offset)
        share.delays.add(Delayed(6, other))
        share.admit_due(6)
    assert taken == [10, 50, 90]
    assert share.next_offset() == 7


def test_nothing_becomes_due_while_as_much_is_in_flight_as_may_be() -> None:
    share = SharePartition(0, [], ShareSettings(lock_ms=1_000, in_flight_max=2))
    assert share.next_due_ms is None
    share.delays.add(Delayed(70, 5))
    assert share.next_due_ms == 70
    share.acquire("m", [(0, 1)], 2, 0)
    assert share.next_due_ms is None
    share.release("m", 0)
