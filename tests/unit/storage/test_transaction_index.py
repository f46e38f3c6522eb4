"""The index of aborted transactions: Kafka's bytes, the right overlaps, nothing taken from a damaged file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.indexes import DamagedIndexError
from penstock.storage.producers.transaction_index import ENTRY_BYTES, AbortedTransaction, TransactionIndex
from penstock.wire.codec import decode
from penstock.wire.messages.transaction_index import AbortedTxn

# Producer 1 writes 10 to 20 and 2 writes 12 to 30 around it; 3 has a small one much later.
ONE = AbortedTransaction(1, 10, 20, 12)
TWO = AbortedTransaction(2, 12, 30, 31)
THREE = AbortedTransaction(3, 90, 92, 93)


def index_of(*entries: AbortedTransaction) -> TransactionIndex:
    index = TransactionIndex()
    for entry in entries:
        index.append(entry)
    return index


def test_entries_are_kafkas_bytes() -> None:
    index = index_of(ONE, TWO)
    data = index.to_bytes()
    assert decode(AbortedTxn, 0, data[:ENTRY_BYTES]) == AbortedTxn(0, *ONE)
    assert decode(AbortedTxn, 0, data[ENTRY_BYTES:]) == AbortedTxn(0, *TWO)
    assert TransactionIndex.from_bytes(data, 0).entries == (ONE, TWO)


def test_what_is_appended_is_what_the_file_gets() -> None:
    index = TransactionIndex()
    assert index.append(ONE) + index.append(TWO) == index.to_bytes()


def test_markers_come_in_their_order() -> None:
    with pytest.raises(ValueError, match="a marker at 20 comes after one at 30"):
        index_of(TWO, ONE)


@pytest.mark.parametrize(
    ("offset", "upper_bound", "found", "complete"),
    [
        (0, 100, [ONE, TWO, THREE], False),
        (0, 93, [ONE, TWO, THREE], True),
        (0, 10, [], True),
        (0, 11, [ONE], True),
        (20, 31, [ONE, TWO], True),
        (21, 31, [TWO], True),
        (31, 50, [], True),
        (31, 31, [], True),
        (93, 94, [], False),
        (93, 93, [], True),
    ],
)
def test_overlaps(offset: int, upper_bound: int, found: list[AbortedTransaction], complete: bool) -> None:
    assert index_of(ONE, TWO, THREE).overlapping(offset, upper_bound) == (found, complete)


def test_truncation_forgets_the_markers_that_go() -> None:
    index = index_of(ONE, TWO, THREE)
    assert index.truncate(30) == ENTRY_BYTES
    assert index.entries == (ONE,)
    assert index.truncate(21) == ENTRY_BYTES
    assert index.truncate(0) == 0
    assert len(index) == 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0" * 33, "no whole number"),
        (b"\0\1" + index_of(ONE).to_bytes()[2:], "unknown version 1"),
        (index_of(TWO).to_bytes() + index_of(ONE).to_bytes(), "out of order"),
        (index_of(AbortedTransaction(1, 2, 4, 5)).to_bytes(), "outside the segment"),
        (index_of(AbortedTransaction(1, 21, 20, 5)).to_bytes(), "impossible offsets"),
        (index_of(AbortedTransaction(-1, 10, 20, 5)).to_bytes(), "impossible offsets"),
        (index_of(AbortedTransaction(1, -1, 20, 5)).to_bytes(), "impossible offsets"),
    ],
)
def test_a_damaged_file_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(DamagedIndexError, match=reason):
        TransactionIndex.from_bytes(data, 5)


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Transactions as a log sees them: overlapping, each ending with a marker, the stable offset never going back."""
    entries: list[AbortedTransaction] = []
    opened: dict[int, int] = {}
    for offset in range(draw(st.integers(0, 40))):
        producer = draw(st.integers(0, 4))
        if producer not in opened:
            opened[producer] = offset
        elif draw(st.booleans()):
            first = opened.pop(producer)
            entries.append(AbortedTransaction(producer, first, offset, min(opened.values(), default=offset + 1)))
    return entries


@given(histories(), st.integers(0, 45), st.integers(0, 45))
def test_every_overlap_is_found(entries: list[AbortedTransaction], offset: int, upper_bound: int) -> None:
    found, complete = index_of(*entries).overlapping(offset, upper_bound)
    assert found == [each for each in entries if each.last_offset >= offset and each.first_offset < upper_bound]
    assert complete == any(each.last_stable_offset >= upper_bound for each in entries)


def test_the_first_producer_id_there_is_may_abort() -> None:
    first = AbortedTransaction(0, 10, 20, 12)
    assert TransactionIndex.from_bytes(index_of(first).to_bytes(), 0).entries == (first,)
