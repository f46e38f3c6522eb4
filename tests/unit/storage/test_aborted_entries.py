"""The index entry of a transaction that was aborted: from where on readers need not know of it."""

from __future__ import annotations

import pytest

from penstock.core.replica.producer_state import CompletedTransaction, ProducerEntry, ProducerState
from penstock.storage.producers.replay import aborted_transaction


@pytest.mark.parametrize(("undecided", "stable_offset"), [(None, 21), (15, 15), (0, 0)])
def test_an_aborted_transaction_is_entered_with_the_first_offset_that_is_still_undecided(
    undecided: int | None, stable_offset: int
) -> None:
    producers = ProducerState()
    if undecided is not None:
        producers.load([ProducerEntry(8, 0, transaction_first_offset=undecided)], 21, 0, 1)
    entry = aborted_transaction(CompletedTransaction(7, 10, 20, aborted=True), producers)
    assert entry is not None
    assert tuple(entry) == (7, 10, 20, stable_offset)


def test_only_aborted_transactions_are_entered() -> None:
    assert aborted_transaction(None, ProducerState()) is None
    assert aborted_transaction(CompletedTransaction(7, 10, 20, aborted=False), ProducerState()) is None
