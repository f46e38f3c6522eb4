"""Delayed records whose log begins later now."""

from __future__ import annotations

import pytest

from penstock.core.share.delays import BLOCK_BITS, Delayed, DelayIndex

BLOCK = 1 << BLOCK_BITS


@pytest.mark.parametrize("is_sorted", [False, True])
def test_what_was_deleted_is_not_waited_for_and_the_first_record_that_is_left_is(is_sorted: bool) -> None:
    index = DelayIndex(-1, -1, 10)
    for offset in (BLOCK - 1, BLOCK, BLOCK + 1):
        index.add(Delayed(100 + offset, offset))
    if is_sorted:
        assert index.next_due_ms == 100 + BLOCK - 1
    index.forget_before(BLOCK)
    assert (index.count, index.start, index.next_due_ms) == (2, BLOCK, 100 + BLOCK)
    assert index.take(10 * BLOCK, 10) == [BLOCK, BLOCK + 1]
    assert (index.count, index.start) == (0, None)


def test_what_a_refill_has_found_is_forgotten_too() -> None:
    index = DelayIndex(-1, -1, 10)
    index.begin_load()
    for offset in (BLOCK - 1, BLOCK, BLOCK + 1):
        index.add(Delayed(100 + offset, offset))
    index.forget_before(BLOCK)
    index.end_refill()
    assert index.take(10 * BLOCK, 10) == [BLOCK, BLOCK + 1]
