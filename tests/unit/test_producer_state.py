"""Idempotence: duplicates, gaps, epochs, wrap-around, transactions, expiry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.replica.producer_state import (
    SEQUENCE_MAX,
    AppendOrigin,
    CompletedTransaction,
    Duplicate,
    EndMarker,
    MarkerRefused,
    ProducerEntry,
    ProducerState,
    Refused,
)
from penstock.model.errors import ErrorCode
from penstock.wire.records import BatchHeader

PRODUCER = 77
DAY_MS = 24 * 3600 * 1000


def batch(
    sequence: int,
    count: int = 1,
    *,
    offset: int = 0,
    epoch: int = 0,
    producer_id: int = PRODUCER,
    timestamp: int = 1000,
    transactional: bool = False,
) -> BatchHeader:
    attributes = 0x10 if transactional else 0
    return BatchHeader(
        offset, 60, 0, 2, 0, attributes, count - 1, timestamp, timestamp, producer_id, epoch, sequence, count
    )


def marker_batch(offset: int, *, epoch: int = 0, producer_id: int = PRODUCER) -> BatchHeader:
    return BatchHeader(offset, 60, 0, 2, 0, 0x30, 0, 2000, 2000, producer_id, epoch, -1, 1)


def refusal(verdict: Duplicate | Refused | None) -> ErrorCode | None:
    return verdict.code if isinstance(verdict, Refused) else None


@pytest.fixture
def state() -> ProducerState:
    """One producer that has written sequences 0 to 9 in five batches of two, at offsets 100 to 109."""
    state = ProducerState(100)
    for number in range(5):
        header = batch(2 * number, 2, offset=100 + 2 * number, timestamp=1000 + number)
        assert state.check(header) is None
        state.update(header)
    return state


def test_the_next_sequence_is_accepted(state: ProducerState) -> None:
    assert state.check(batch(10)) is None
    assert state.end_offset == 110


@pytest.mark.parametrize("number", range(5))
def test_each_of_the_last_five_batches_is_a_duplicate(state: ProducerState, number: int) -> None:
    verdict = state.check(batch(2 * number, 2))
    assert verdict == Duplicate(100 + 2 * number, 101 + 2 * number, 1000 + number)


def test_a_batch_older_than_the_last_five_is_out_of_order(state: ProducerState) -> None:
    state.update(batch(10, 2, offset=110))
    assert refusal(state.check(batch(0, 2))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(state.check(batch(2, 2)), Duplicate)


@pytest.mark.parametrize(("sequence", "count"), [(11, 1), (9, 1), (8, 3), (8, 1), (5, 2), (0, 1)])
def test_gaps_and_overlaps_are_out_of_order(state: ProducerState, sequence: int, count: int) -> None:
    assert refusal(state.check(batch(sequence, count))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_start_anywhere(state: ProducerState) -> None:
    assert state.check(batch(500, producer_id=78)) is None


def test_a_batch_without_a_producer_is_accepted_and_adds_no_producer(state: ProducerState) -> None:
    header = batch(-1, offset=110, producer_id=-1, epoch=-1)
    assert state.check(header) is None
    state.update(header)
    assert len(state) == 1
    assert state.end_offset == 111


def test_an_older_epoch_is_fenced(state: ProducerState) -> None:
    state.update(batch(0, offset=110, epoch=3))
    assert refusal(state.check(batch(1, epoch=2))) is ErrorCode.INVALID_PRODUCER_EPOCH
    # What the older epoch wrote is no duplicate any more either.
    assert refusal(state.check(batch(8, 2, epoch=0))) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_starts_with_sequence_zero(state: ProducerState) -> None:
    assert refusal(state.check(batch(10, epoch=1))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    first = batch(0, 2, offset=110, epoch=1)
    assert state.check(first) is None
    state.update(first)
    assert state.check(first) == Duplicate(110, 111, 1000)
    assert state.check(batch(2, epoch=1)) is None
    assert refusal(state.check(batch(10, epoch=1))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_go_on_from_zero_after_the_largest() -> None:
    state = ProducerState()
    state.update(batch(SEQUENCE_MAX - 2, 2, offset=0))
    crossing = batch(SEQUENCE_MAX, 3, offset=2)
    assert state.check(crossing) is None
    state.update(crossing)
    entry = state.get(PRODUCER)
    assert entry is not None
    assert entry.last_sequence == 1
    assert state.check(crossing) == Duplicate(2, 4, 1000)
    assert state.check(batch(2)) is None
    assert refusal(state.check(batch(0))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    at_the_end = ProducerState()
    at_the_end.update(batch(SEQUENCE_MAX, offset=0))
    assert at_the_end.check(batch(0)) is None


def test_coordinators_are_checked_by_epoch_only_and_replicas_not_at_all(state: ProducerState) -> None:
    state.update(batch(0, offset=110, epoch=1))
    assert state.check(batch(99, epoch=1), AppendOrigin.COORDINATOR) is None
    assert refusal(state.check(batch(0, epoch=0), AppendOrigin.COORDINATOR)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert state.check(batch(99, epoch=0), AppendOrigin.REPLICATION) is None


def test_a_transaction_is_open_from_its_first_batch_to_its_marker(state: ProducerState) -> None:
    state.update(batch(10, offset=110, transactional=True))
    state.update(batch(11, offset=111, transactional=True))
    state.update(batch(0, offset=112, producer_id=5, transactional=True))
    assert state.first_undecided_offset == 110
    assert refusal(state.check(batch(12))) is ErrorCode.INVALID_TXN_STATE
    done = state.complete(marker_batch(113), EndMarker(aborted=True, coordinator_epoch=4))
    assert done == CompletedTransaction(PRODUCER, 110, 113, aborted=True)
    assert state.first_undecided_offset == 112
    assert state.check(batch(12)) is None
    assert state.complete(marker_batch(114), EndMarker(aborted=False, coordinator_epoch=4)) is None
    assert state.end_offset == 115


def test_a_marker_with_a_newer_epoch_fences_and_restarts_sequences(state: ProducerState) -> None:
    state.complete(marker_batch(110, epoch=6), EndMarker(aborted=True, coordinator_epoch=1))
    assert refusal(state.check(batch(10, epoch=0))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(state.check(batch(10, epoch=6))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(batch(0, epoch=6)) is None


def test_a_marker_of_the_same_epoch_keeps_the_sequence(state: ProducerState) -> None:
    state.complete(marker_batch(110), EndMarker(aborted=False, coordinator_epoch=1))
    assert state.check(batch(10)) is None
    assert isinstance(state.check(batch(8, 2)), Duplicate)


def test_stale_markers_are_refused(state: ProducerState) -> None:
    state.complete(marker_batch(110, epoch=2), EndMarker(aborted=False, coordinator_epoch=5))
    newer = EndMarker(aborted=False, coordinator_epoch=6)
    state.check_marker(marker_batch(111, epoch=2), newer)
    state.check_marker(marker_batch(111, producer_id=999), newer)
    with pytest.raises(MarkerRefused) as refused:
        state.check_marker(marker_batch(111, epoch=1), newer)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    older = EndMarker(aborted=False, coordinator_epoch=4)
    with pytest.raises(MarkerRefused) as refused:
        state.check_marker(marker_batch(111, epoch=2), older)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_silent_producers_are_forgotten_unless_in_a_transaction(state: ProducerState) -> None:
    state.update(batch(0, offset=110, producer_id=5, timestamp=1004, transactional=True))
    assert state.expire(1004 + DAY_MS - 1, DAY_MS) == 0
    assert state.expire(1004 + DAY_MS, DAY_MS) == 1
    assert state.get(PRODUCER) is None
    assert state.get(5) is not None
    assert state.check(batch(500)) is None


def test_loading_replaces_everything_but_the_expired() -> None:
    state = ProducerState()
    state.update(batch(0, producer_id=1, transactional=True))
    fresh = ProducerEntry(2, 0, last_timestamp=DAY_MS, transaction_first_offset=-1)
    stale = ProducerEntry(3, 0, last_timestamp=10)
    busy = ProducerEntry(4, 0, last_timestamp=10, transaction_first_offset=40)
    state.load([fresh, stale, busy], 50, now_ms=DAY_MS + 10, expiration_ms=DAY_MS)
    assert [entry.producer_id for entry in state.entries] == [2, 4]
    assert (state.first_undecided_offset, state.end_offset) == (40, 50)


@given(st.lists(st.integers(1, 400_000_000), min_size=1, max_size=30))
def test_an_honest_producer_is_always_accepted_and_its_retries_found(counts: list[int]) -> None:
    state = ProducerState()
    sequence = offset = 0
    for count in counts:
        header = batch(sequence, count, offset=offset)
        assert state.check(header) is None
        state.update(header)
        assert state.check(header) == Duplicate(offset, offset + count - 1, 1000)
        offset += count
        sequence = offset % 2**31
