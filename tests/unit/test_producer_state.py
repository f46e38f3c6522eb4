"""Idempotence: duplicates, gaps, epochs, wrap-around, transactions, expiry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.replica import producer_state
from penstock.core.replica.producer_state import (
    NO_OFFSET,
    NOT_REQUIRED,
    SEQUENCE_MAX,
    AppendOrigin,
    CompletedTransaction,
    Duplicate,
    EndMarker,
    MarkerRefused,
    ProducerEntry,
    ProducerState,
    RefusedBatch,
    Verification,
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


def refusal(verdict: Duplicate | RefusedBatch | None) -> ErrorCode | None:
    return verdict.code if isinstance(verdict, RefusedBatch) else None


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


def test_sequences_continue_from_zero_after_the_largest() -> None:
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


def test_a_producer_with_id_zero_is_one(state: ProducerState) -> None:
    first = batch(0, offset=110, producer_id=0, epoch=3)
    assert state.check(first) is None
    state.update(first)
    assert state.check(first) == Duplicate(110, 110, 1000)
    assert refusal(state.check(batch(1, producer_id=0, epoch=2))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(state) == 2


def test_a_batch_of_one_record_ends_where_it_begins_and_the_log_after_it() -> None:
    state = ProducerState()
    state.update(batch(4, 3, offset=20, timestamp=7))
    entry = state.get(PRODUCER)
    assert entry is not None
    assert (entry.last_sequence, entry.last_offset, state.end_offset) == (6, 22, 23)
    state.update(batch(-1, offset=23), appended_ms=55)
    # Without a sequence there is none to follow.
    assert (entry.last_sequence, entry.last_offset, entry.last_timestamp) == (-1, 23, 55)
    empty = ProducerEntry(1)
    assert (empty.last_sequence, empty.last_offset) == (-1, -1)


def test_five_batches_are_kept(state: ProducerState) -> None:
    entry = state.get(PRODUCER)
    assert entry is not None
    for number in range(5, 9):
        state.update(batch(2 * number, 2, offset=100 + 2 * number))
        assert [one.first_sequence for one in entry.batches] == [2 * each for each in range(number - 4, number + 1)]


def test_readers_stop_at_transactions_whose_marker_could_still_be_lost(state: ProducerState) -> None:
    for number, producer_id in enumerate((5, 6, 7)):
        state.update(batch(0, offset=110 + number, producer_id=producer_id, transactional=True))
    assert state.first_unstable_offset(200) == 110
    # The second transaction ends first, and the third does not end.
    state.complete(marker_batch(113, producer_id=6), EndMarker(aborted=False, coordinator_epoch=0))
    state.complete(marker_batch(114, producer_id=5), EndMarker(aborted=False, coordinator_epoch=0))
    assert state.first_undecided_offset == 112
    assert state.first_unstable_offset(113) == 110
    assert state.first_unstable_offset(114) == 110
    assert state.first_unstable_offset(115) == 112
    state.complete(marker_batch(115, producer_id=7), EndMarker(aborted=False, coordinator_epoch=0))
    assert state.first_undecided_offset is None
    assert state.first_unstable_offset(115) == 112
    assert state.first_unstable_offset(116) is None


def test_no_verification_is_needed_where_the_transaction_is_open(state: ProducerState) -> None:
    state.update(batch(10, offset=110, transactional=True))
    assert state.begin_verification(PRODUCER, 0, 11, 0) is None
    assert state.is_verified(PRODUCER, 0, None)
    # Another epoch's is another transaction.
    token = state.begin_verification(PRODUCER, 1, 0, 0)
    assert token is not None
    assert not state.is_verified(PRODUCER, 1, None)
    assert state.is_verified(PRODUCER, 1, token)
    assert state.is_verified(PRODUCER, 1, NOT_REQUIRED)


def test_batches_of_one_producer_share_a_token_and_the_lowest_sequence_comes_first() -> None:
    state = ProducerState()
    token = state.begin_verification(PRODUCER, 0, 5, 0)
    assert token is not None
    assert state.begin_verification(PRODUCER, 0, 3, 0) is token
    assert state.begin_verification(PRODUCER, 0, 4, 0) is token
    assert token.lowest_sequence == 3
    refused = state.check(batch(4, transactional=True), verification=token)
    assert refused == RefusedBatch(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"Producer {PRODUCER} sent sequence 4 before 3."
    )
    first = batch(3, transactional=True)
    assert state.check(first, verification=token) is None
    state.update(first)
    # The token was used: it would not open another transaction.
    state.complete(marker_batch(1), EndMarker(aborted=False, coordinator_epoch=0))
    refused = state.check(batch(4, transactional=True), verification=token)
    assert refusal(refused) is ErrorCode.INVALID_TXN_STATE


def test_without_a_token_a_transaction_is_not_begun() -> None:
    state = ProducerState()
    header = batch(0, transactional=True)
    assert refusal(state.check(header, verification=None)) is ErrorCode.INVALID_TXN_STATE
    assert refusal(state.check(header, verification=Verification(0, 0, 0))) is ErrorCode.INVALID_TXN_STATE
    # Coordinators and replicas need none, nor do batches outside of transactions.
    assert state.check(header, AppendOrigin.COORDINATOR, None) is None
    assert state.check(header, AppendOrigin.REPLICATION, None) is None
    assert state.check(batch(0), verification=None) is None


def test_a_token_of_a_later_epoch_replaces_one_and_that_of_an_earlier_epoch_is_never_accepted() -> None:
    state = ProducerState()
    first = state.begin_verification(PRODUCER, 5, 0, 0)
    fenced = state.begin_verification(PRODUCER, 4, 0, 0)
    assert fenced is not None
    assert fenced is not first
    assert not state.is_verified(PRODUCER, 4, fenced)
    assert state.is_verified(PRODUCER, 5, first)
    second = state.begin_verification(PRODUCER, 6, 0, 0)
    assert state.is_verified(PRODUCER, 6, second)
    assert not state.is_verified(PRODUCER, 5, first)


@pytest.mark.parametrize(
    ("marker_epoch", "bumps_epoch", "is_void"),
    [(3, False, False), (3, True, False), (4, False, True), (4, True, False), (5, False, True), (5, True, True)],
)
def test_a_marker_voids_tokens_of_the_transactions_that_it_may_have_ended(
    marker_epoch: int, bumps_epoch: bool, is_void: bool
) -> None:
    state = ProducerState()
    token = state.begin_verification(PRODUCER, 4, 0, 0, bumps_epoch=bumps_epoch)
    state.complete(marker_batch(0, epoch=marker_epoch), EndMarker(aborted=True, coordinator_epoch=0))
    assert state.is_verified(PRODUCER, 4, token) != is_void


def test_tokens_expire_and_their_number_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "VERIFICATIONS_MAX", 3)
    state = ProducerState()
    tokens = [state.begin_verification(producer_id, 0, 0, 1_000 * producer_id) for producer_id in range(3)]
    assert all(state.is_verified(number, 0, token) for number, token in enumerate(tokens))
    # That of a later epoch is the newest again, so another one is dropped.
    tokens[0] = state.begin_verification(0, 1, 0, 3_000)
    tokens.append(state.begin_verification(3, 0, 0, 3_000))
    assert [state.is_verified(number, int(number == 0), token) for number, token in enumerate(tokens)] == [
        True,
        False,
        True,
        True,
    ]
    assert state.expire(4_999, 3_000) == 0
    assert state.is_verified(2, 0, tokens[2])
    state.expire(5_000, 3_000)
    assert not state.is_verified(2, 0, tokens[2])
    assert state.is_verified(3, 0, tokens[3])


def test_a_marker_must_not_end_the_next_transaction(state: ProducerState) -> None:
    state.complete(marker_batch(110, epoch=2), EndMarker(aborted=False, coordinator_epoch=5))
    state.update(batch(0, offset=111, epoch=2, transactional=True))
    marker = EndMarker(aborted=False, coordinator_epoch=5)
    with pytest.raises(MarkerRefused, match="already open here") as refused:
        state.check_marker(marker_batch(112, epoch=2), marker)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    state.check_marker(marker_batch(112, epoch=3), marker)
    older = marker._replace(transaction_version=1)
    # Version 1 names where the transaction began; a coordinator that does not know gets it in the refusal.
    state.check_marker(marker_batch(112, epoch=2), older)
    state.check_marker(marker_batch(112, epoch=2), older._replace(first_offset=111))
    with pytest.raises(MarkerRefused) as refused:
        state.check_marker(marker_batch(112, epoch=2), older._replace(first_offset=110))
    assert (refused.value.code, refused.value.first_offset) == (ErrorCode.CONCURRENT_TRANSACTIONS, 111)
    with pytest.raises(MarkerRefused) as refused:
        state.check_marker(marker_batch(112, epoch=2), older._replace(first_offset=NO_OFFSET))
    assert refused.value.first_offset == 111
    state.check_marker(marker_batch(112, epoch=3), older._replace(first_offset=110))


def test_a_marker_that_ends_nothing_is_the_producers_first_word(state: ProducerState) -> None:
    state.complete(marker_batch(110, epoch=7, producer_id=9), EndMarker(aborted=True, coordinator_epoch=2), 77)
    entry = state.get(9)
    assert entry is not None
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp) == (7, 2, 77)
    state.complete(marker_batch(111, epoch=8, producer_id=9), EndMarker(aborted=True, coordinator_epoch=3))
    # The marker's own timestamp.
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp) == (8, 3, 2000)
    assert state.end_offset == 112


def test_a_refused_batch_may_be_an_old_one_again_if_its_sequence_is_behind(state: ProducerState) -> None:
    assert state.may_repeat(batch(9))
    assert state.may_repeat(batch(0))
    assert not state.may_repeat(batch(10))
    assert not state.may_repeat(batch(0, epoch=1))
    assert not state.may_repeat(batch(0, producer_id=5))
    state.complete(marker_batch(110, epoch=1), EndMarker(aborted=False, coordinator_epoch=0))
    assert not state.may_repeat(batch(0, epoch=1))
    # Half of all sequences are behind, counting back past zero.
    state.update(batch(0, offset=111, epoch=1))
    assert state.may_repeat(batch(SEQUENCE_MAX // 2 + 2, epoch=1))
    assert not state.may_repeat(batch(SEQUENCE_MAX // 2 + 1, epoch=1))


def test_after_a_snapshot_transactions_are_in_the_order_of_their_offsets() -> None:
    state = ProducerState()
    entries = [ProducerEntry(number, 0, transaction_first_offset=offset) for number, offset in ((1, 9), (2, 0), (3, 5))]
    token = state.begin_verification(8, 0, 0, 0)
    state.update(batch(0, producer_id=9, transactional=True))
    state.complete(marker_batch(1, producer_id=9), EndMarker(aborted=False, coordinator_epoch=0))
    state.load(entries, 50, now_ms=10**12, expiration_ms=1)
    assert state.first_undecided_offset == state.first_unstable_offset(0) == 0
    assert not state.is_verified(8, 0, token)
    state.complete(marker_batch(50, producer_id=2), EndMarker(aborted=False, coordinator_epoch=0))
    assert state.first_undecided_offset == 5
    state.clear(3)
    assert (len(state), state.end_offset, state.first_unstable_offset(0)) == (0, 3, None)


@pytest.mark.parametrize(("last", "delta", "first"), [(9, 4, 5), (4, 4, 0), (1, 2, SEQUENCE_MAX)])
def test_sequences_are_counted_back_past_zero(last: int, delta: int, first: int) -> None:
    assert producer_state.first_sequence_of(last, delta) == first
