"""The records of one decision of a coordinator are in one batch: a leader may die after any of its batches."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.coordinator.shard_host import BATCH_OVERHEAD_BYTES, Encoded, _portions, _size_of

SIZE_MAX = 4_000

records = st.builds(lambda number, size: (b"%d" % number, bytes(size)), st.integers(0, 9), st.integers(0, 1_500))
decisions = st.lists(st.lists(records, min_size=1, max_size=6), max_size=12)


def size_of(decision: list[Encoded]) -> int:
    return BATCH_OVERHEAD_BYTES + sum(map(_size_of, decision))


@given(decisions)
def test_a_decision_that_fits_into_a_batch_is_in_one(made: list[list[Encoded]]) -> None:
    batches = list(_portions(made, SIZE_MAX))
    assert list(chain.from_iterable(batches)) == list(chain.from_iterable(made))
    assert all(size_of(batch) <= SIZE_MAX or len(batch) == 1 for batch in batches)
    ends, position = set(), 0
    for batch in batches:
        position += len(batch)
        ends.add(position)
    position = 0
    for decision in made:
        if size_of(decision) <= SIZE_MAX:
            assert not ends & set(range(position + 1, position + len(decision)))
        position += len(decision)


def test_decisions_share_a_batch_as_long_as_they_fit() -> None:
    made = [[(b"k", bytes(100))] for _ in range(100)]
    assert len(list(_portions(made, SIZE_MAX))) < 5
