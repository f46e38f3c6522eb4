"""The producers of a log that starts again, after a truncation or from a snapshot."""

from __future__ import annotations

import pytest

from penstock.core.replica.producer_state import EndMarker, ProducerEntry, ProducerState
from penstock.wire.records import BatchHeader

PRODUCER, TRANSACTIONAL, CONTROL = 7, 0x10, 0x30


def header(offset: int, attributes: int, sequence: int) -> BatchHeader:
    return BatchHeader(offset, 60, 0, 2, 0, attributes, 0, 1_000, 1_000, PRODUCER, 0, sequence, 1)


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_transactions_whose_markers_were_truncated_hold_no_reader_back(from_snapshot: bool) -> None:
    state = ProducerState(100)
    state.update(header(100, TRANSACTIONAL, 0))
    assert state.complete(header(101, CONTROL, -1), EndMarker(True, 0)) is not None
    # The marker is not committed yet: readers wait for it.
    assert state.first_unstable_offset(101) == 100
    if from_snapshot:
        state.load([ProducerEntry(PRODUCER, 0)], 90, 1_000, 1_000_000)
    else:
        state.clear(90)
    assert state.first_unstable_offset(90) is None
    assert state.end_offset == 90


def test_an_open_transaction_of_a_snapshot_holds_readers_back_and_never_expires() -> None:
    state = ProducerState(0)
    entries = [
        ProducerEntry(1, 0, 0, 0, 40),
        ProducerEntry(2, 0, 0, 0, 30),
        ProducerEntry(3, 0, 0, 0, -1),
        ProducerEntry(4, 0, 0, 900, -1),
    ]
    state.load(entries, 50, 1_000, 1_000)
    assert [entry.producer_id for entry in state.entries] == [1, 2, 4]
    assert state.first_unstable_offset(50) == 30
