"""A share group's view of a partition: by example, and held against a model that knows each offset by itself."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from penstock.core.share.acknowledgements import Acknowledgement, AckType, check_acknowledgements
from penstock.core.share.contract import Acquired, ShareSettings, Write
from penstock.core.share.partition import SharePartition
from penstock.core.share.runs import FINISHED, RecordState, StateBatch
from penstock.model.errors import ApiError, ErrorCode

ACCEPT, RELEASE, REJECT = ([kind] for kind in (AckType.ACCEPT, AckType.RELEASE, AckType.REJECT))
LOCK_MS = 1_000


def partition(start: int = 0, **settings: int) -> SharePartition:
    return SharePartition(start, [], ShareSettings(**{"lock_ms": LOCK_MS, **settings}))


def said(share: SharePartition, member: str, first: int, last: int, types: list[int], now_ms: int = 0) -> Write | None:
    return share.acknowledge(member, [Acknowledgement(first, last, types)], now_ms)


def done(share: SharePartition, write: Write | None, *, is_durable: bool = True) -> Write:
    assert write is not None
    share.settle(write.number, is_durable=is_durable)
    return write


def test_records_go_to_one_member_and_are_finished_by_it() -> None:
    share = partition()
    assert share.acquire("a", [(0, 9)], 100, 0) == [Acquired(0, 9, 1)]
    assert share.next_offset() == 10
    assert share.acquire("b", [(10, 19)], 100, 0) == [Acquired(10, 19, 1)]
    write = done(share, said(share, "a", 0, 9, ACCEPT))
    assert write.batches == (StateBatch(0, 9, RecordState.ACKNOWLEDGED, 1),)
    assert (share.start, share.end, share.in_flight) == (10, 20, 10)


def test_nothing_counts_before_it_is_durable() -> None:
    share = partition()
    share.acquire("a", [(0, 9)], 100, 0)
    write = said(share, "a", 0, 9, RELEASE)
    assert share.start == 0
    assert share.next_offset() == 10
    done(share, write)
    assert share.next_offset() == 0
    assert share.acquire("b", [(0, 9)], 100, 0) == [Acquired(0, 9, 2)]


def test_what_could_not_be_written_stays_with_its_holder() -> None:
    share = partition()
    share.acquire("a", [(0, 9)], 100, 0)
    done(share, said(share, "a", 0, 4, ACCEPT), is_durable=False)
    assert share.next_offset() == 10
    done(share, said(share, "a", 0, 9, ACCEPT))
    assert share.start == 10


def test_only_the_holder_acknowledges_and_only_once() -> None:
    share = partition()
    share.acquire("a", [(0, 9)], 100, 0)
    for member, first, last in (("b", 0, 9), ("b", 3, 3)):
        with pytest.raises(ApiError) as refused:
            said(share, member, first, last, ACCEPT)
        assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    done(share, said(share, "a", 5, 9, ACCEPT))
    with pytest.raises(ApiError):
        said(share, "a", 0, 9, ACCEPT)
    assert [run.state for run in share.runs()] == [RecordState.ACQUIRED, RecordState.ACKNOWLEDGED]
    with pytest.raises(ApiError) as refused:
        said(share, "a", 8, 12, ACCEPT)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_who_held_a_record_that_another_member_has_finished_hears_so() -> None:
    # A new leader in the same process knows the members, but not who held what.
    share = partition()
    share.acquire("b", [(0, 9)], 100, 0)
    done(share, said(share, "b", 0, 9, ACCEPT))
    assert share.start == 10
    with pytest.raises(ApiError) as refused:
        said(share, "a", 3, 3, REJECT)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    # As in Kafka, what a batch has from the start on counts, and what retention has taken does not matter.
    share.acquire("a", [(10, 19)], 100, 0)
    assert said(share, "a", 5, 12, ACCEPT) is not None
    share.raise_start(20)
    assert said(share, "a", 13, 19, ACCEPT) is None


def test_each_offset_may_have_a_type_of_its_own() -> None:
    share = partition()
    share.acquire("a", [(0, 4)], 100, 0)
    kinds = [AckType.ACCEPT, AckType.GAP, AckType.RELEASE, AckType.REJECT, AckType.ACCEPT]
    write = done(share, share.acknowledge("a", [Acknowledgement(0, 4, kinds)], 0))
    assert [batch.state for batch in write.batches] == [2, 4, 0, 4, 2]
    assert share.start == 2
    assert share.acquire("b", [(0, 4)], 100, 0) == [Acquired(2, 2, 2)]


def test_a_lock_that_ends_gives_records_back_and_may_be_renewed() -> None:
    share = partition()
    share.acquire("a", [(0, 9)], 100, 0)
    assert share.next_deadline_ms == LOCK_MS
    assert said(share, "a", 0, 4, [AckType.RENEW], 600) is None
    assert share.expire(LOCK_MS - 1) is None
    write = done(share, share.expire(LOCK_MS))
    assert write.batches == (StateBatch(5, 9, RecordState.AVAILABLE, 1),)
    assert share.next_deadline_ms == 600 + LOCK_MS
    with pytest.raises(ApiError):
        said(share, "a", 5, 9, ACCEPT)
    strict = SharePartition(0, [], ShareSettings(may_renew=False))
    strict.acquire("a", [(0, 0)], 1, 0)
    with pytest.raises(ApiError):
        said(strict, "a", 0, 0, [AckType.RENEW])


def test_records_that_fail_too_often_are_put_aside() -> None:
    share = partition(delivery_count_max=2)
    share.acquire("a", [(0, 1)], 100, 0)
    done(share, share.release("a"))
    assert share.acquire("b", [(0, 1)], 100, 0) == [Acquired(0, 0, 2)]
    write = done(share, said(share, "b", 0, 0, RELEASE))
    assert write.batches == (StateBatch(0, 0, RecordState.ARCHIVED, 2),)
    assert share.start == 1


def test_the_last_try_of_a_record_is_made_alone() -> None:
    share = partition(delivery_count_max=3)
    share.acquire("a", [(0, 9)], 100, 0)
    done(share, said(share, "a", 0, 9, [AckType.ACCEPT] * 4 + [AckType.RELEASE] * 2 + [AckType.ACCEPT] * 4))
    share.acquire("a", [(4, 9)], 100, 0)
    done(share, share.release("a"))
    assert share.acquire("b", [(4, 9), (10, 19)], 100, 0) == [Acquired(4, 4, 3)]
    assert share.acquire("c", [(5, 9), (10, 19)], 100, 0) == [Acquired(5, 5, 3)]


def test_whole_batches_are_handed_out_unless_the_limit_is_strict() -> None:
    share = partition()
    assert share.acquire("a", [(0, 9), (10, 19), (20, 29)], 12, 0) == [Acquired(0, 19, 1)]
    strict = partition()
    assert strict.acquire("a", [(0, 9), (10, 19)], 12, 0, is_strict=True) == [Acquired(0, 11, 1)]
    assert strict.acquire("b", [(10, 19)], 3, 0, is_strict=True) == [Acquired(12, 14, 1)]
    # Records that came back lie before one that is held: as many of them as are asked for, not none.
    mixed = partition()
    assert mixed.acquire("a", [(0, 2)], 3, 0, is_strict=True) == [Acquired(0, 2, 1)]
    done(mixed, said(mixed, "a", 0, 1, RELEASE))
    assert mixed.acquire("b", [(0, 2)], 1, 0, is_strict=True) == [Acquired(0, 0, 2)]
    assert mixed.acquire("b", [(1, 2)], 1, 0, is_strict=True) == [Acquired(1, 1, 2)]
    sized = partition()
    told = sized.acquire("a", [(0, 9), (10, 19), (20, 29)], 100, 0, batch_size=15)
    assert told == [Acquired(0, 19, 1), Acquired(20, 29, 1)]


def test_an_attempt_of_a_former_leader_is_over_though_the_next_one_counts_from_one_again() -> None:
    former = SharePartition(0, (), ShareSettings(), incarnation=11)
    (first,) = former.acquire("gateway", [(0, 0)], 1, 0, is_strict=True)
    # Nothing of the delivery was stored when the leader changed.
    share = SharePartition(0, (), ShareSettings(), incarnation=12)
    (second,) = share.acquire("gateway", [(0, 0)], 1, 0, is_strict=True)
    assert first == second
    with pytest.raises(ApiError, match="leader has changed") as refused:
        share.check_attempt("gateway", 0, first.delivery_count, former.incarnation)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    share.check_attempt("gateway", 0, second.delivery_count, share.incarnation)
    # Gateways of an earlier release do not tell.
    share.check_attempt("gateway", 0, second.delivery_count)


def test_an_attempt_is_over_when_its_record_is_settled_or_goes_to_another() -> None:
    share = partition()

    def why(offset: int, member: str = "a", delivery_count: int = 1) -> str:
        with pytest.raises(ApiError) as refused:
            share.check_attempt(member, offset, delivery_count)
        assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
        return refused.value.message

    share.acquire("a", [(0, 4)], 5, 0)
    share.check_attempt("a", 0, 1)
    share.check_attempt("a", 4, 1)
    assert why(5) == "it was not delivered yet"
    assert "delivered again" in why(0, "b")
    assert "delivered again" in why(0, "a", 2)
    write = said(share, "a", 1, 1, RELEASE)
    assert why(1) == "it is being settled"
    done(share, write)
    assert "waits to be delivered again" in why(1)
    done(share, said(share, "a", 0, 0, ACCEPT))
    done(share, said(share, "a", 3, 3, REJECT))
    assert why(0) == why(3) == "it was settled already"
    # The same member gets it again: its first attempt does not count for the second one.
    assert share.acquire("a", [(1, 4)], 1, 0, is_strict=True) == [Acquired(1, 1, 2)]
    assert "delivered again" in why(1)
    share.check_attempt("a", 1, 2)
    assert share.is_held
    done(share, share.release("a"))
    assert not share.is_held


def test_too_many_records_in_flight_hold_back_new_ones() -> None:
    share = partition(in_flight_max=15)
    share.acquire("a", [(0, 9)], 100, 0)
    share.acquire("a", [(10, 19)], 100, 0)
    assert share.next_offset() is None
    assert share.acquire("b", [(20, 29)], 100, 0) == []
    done(share, said(share, "a", 3, 6, RELEASE))
    assert share.next_offset() == 3
    assert share.acquire("b", [(0, 9), (10, 19), (20, 29)], 100, 0) == [Acquired(3, 6, 2)]
    done(share, said(share, "a", 10, 19, ACCEPT))
    assert share.next_offset() == 20


def test_offsets_without_records_are_passed_over() -> None:
    share = partition()
    assert share.acquire("a", [(3, 5), (8, 9)], 100, 0) == [Acquired(3, 5, 1), Acquired(8, 9, 1)]
    done(share, share.acknowledge("a", [Acknowledgement(3, 5, ACCEPT), Acknowledgement(8, 9, ACCEPT)], 0))
    assert (share.start, share.end) == (10, 10)


def test_a_log_that_begins_later_takes_records_away() -> None:
    share = partition()
    share.acquire("a", [(0, 9)], 100, 0)
    share.raise_start(5)
    assert share.start == 5
    done(share, said(share, "a", 0, 9, ACCEPT))
    assert share.start == 10
    share.raise_start(40)
    assert (share.start, share.end, share.next_offset()) == (40, 40, 40)


def test_a_new_leader_continues_from_what_was_written() -> None:
    stored = [StateBatch(5, 9, RecordState.ACKNOWLEDGED, 1), StateBatch(12, 14, RecordState.AVAILABLE, 3)]
    share = SharePartition(5, stored, ShareSettings(delivery_count_max=10))
    assert (share.start, share.end, share.in_flight, share.finished_count) == (10, 15, 5, 0)
    told = share.acquire("a", [(10, 20)], 100, 0)
    assert told == [Acquired(10, 11, 1), Acquired(12, 14, 4), Acquired(15, 20, 1)]


@pytest.mark.parametrize(
    "batches",
    [
        [Acknowledgement(5, 4, [1])],
        [Acknowledgement(-1, 4, [1])],
        [Acknowledgement(0, 4, [1]), Acknowledgement(4, 5, [1])],
        [Acknowledgement(0, 2, [1, 1])],
        [Acknowledgement(0, 0, [9])],
        [Acknowledgement(0, 0, [AckType.RENEW])],
        [Acknowledgement(0, 0, [])],
    ],
)
def test_acknowledgements_that_make_no_sense_are_refused(batches: list[Acknowledgement]) -> None:
    with pytest.raises(ApiError) as refused:
        check_acknowledgements(batches, may_renew=False)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


class Model:
    """Each offset by itself: who holds it, how often it was delivered, whether it is finished."""

    def __init__(self) -> None:
        self.holder: dict[int, str] = {}
        self.count: dict[int, int] = {}
        self.finished: set[int] = set()


@pytest.mark.parametrize("seed", range(60))
def test_no_record_has_two_holders_or_is_lost(seed: int) -> None:
    random = Random(seed)
    settings = ShareSettings(random.choice((1, 2, 3, 5)), LOCK_MS, random.choice((10, 40, 200)))
    share, model = SharePartition(0, [], settings), Model()
    stored: dict[int, tuple[int, int]] = {}
    stored_start = 0
    pending: list[tuple[Write, dict[int, str]]] = []
    log = [(base, base + 4) for base in range(0, 400, 5) if random.random() > 0.1]
    exists = {offset for first, last in log for offset in range(first, last + 1)}
    now_ms = 0

    def note(write: Write | None) -> None:
        if write is None:
            return
        offsets = [offset for batch in write.batches for offset in range(batch.first, batch.last + 1)]
        pending.append((write, {offset: model.holder.pop(offset) for offset in offsets}))

    for _ in range(300):
        now_ms += random.randrange(0, 300)
        note(share.expire(now_ms))
        choice = random.random()
        member = random.choice("abc")
        if choice < 0.4:
            position = share.next_offset()
            batches = [batch for batch in log if position is not None and batch[1] >= position][
                : random.randrange(1, 5)
            ]
            strict = random.random() < 0.3
            wanted = random.randrange(1, 30)
            told = share.acquire(member, batches, wanted, now_ms, is_strict=strict)
            assert not strict or sum(one.last - one.first + 1 for one in told) <= wanted
            for one in told:
                for offset in range(one.first, one.last + 1):
                    assert offset not in model.holder
                    assert offset not in model.finished
                    assert offset in exists
                    model.count[offset] = model.count.get(offset, 0) + 1
                    assert one.delivery_count == model.count[offset] <= settings.delivery_count_max
                    model.holder[offset] = member
        elif choice < 0.75:
            held = sorted(offset for offset, holder in model.holder.items() if holder == member)
            if held:
                first = random.choice(held)
                last = first
                while last + 1 in held and random.random() < 0.8:
                    last += 1
                note(said(share, member, first, last, [random.choice((0, 1, 1, 1, 2, 3))], now_ms))
        elif choice < 0.8:
            note(share.release(member))
        elif pending:
            write, holders = pending.pop(random.randrange(len(pending)))
            is_durable = random.random() < 0.8
            start, finished_count = share.start_after({write.number})
            share.settle(write.number, is_durable=is_durable)
            assert not is_durable or (share.start, share.finished_count) >= (start, finished_count)
            assert not is_durable or pending or (share.start, share.finished_count) == (start, finished_count)
            if not is_durable:
                model.holder |= holders
                continue
            stored_start = max(stored_start, start)
            for batch in write.batches:
                for offset in range(batch.first, batch.last + 1):
                    stored[offset] = (batch.state, batch.delivery_count)
                    if RecordState(batch.state) in FINISHED:
                        model.finished.add(offset)
        runs = share.runs()
        assert all(before.last + 1 == after.first for before, after in pairwise(runs))
        assert not runs or (runs[0].first == share.start and runs[-1].last + 1 == share.end)
        assert all(offset in model.finished for offset in range(share.start) if offset in exists)
        if random.random() < 0.02:
            batches = [StateBatch(offset, offset, *state) for offset, state in sorted(stored.items())]
            share = SharePartition(stored_start, batches, settings)
            model.holder.clear()
            pending.clear()
            model.count = {offset: count for offset, (_, count) in stored.items()}
