"""What the next leader of a share-partition makes of the state that is stored."""

from __future__ import annotations

from penstock.core.share.contract import ShareSettings
from penstock.core.share.partition import SharePartition
from penstock.core.share.runs import Reason, RecordState, StateBatch


def stored(first: int, last: int, state: RecordState) -> StateBatch:
    return StateBatch(first, last, state, 1, -1, -1, Reason.REJECTED, "")


def test_a_record_before_the_start_was_delayed_and_still_is() -> None:
    share = SharePartition(
        10, [stored(4, 4, RecordState.AVAILABLE), stored(12, 13, RecordState.ACKNOWLEDGED)], ShareSettings()
    )
    assert share.was_delayed(4)
    assert not any(share.was_delayed(offset) for offset in range(10, 14))
    assert (share.start, share.end) == (10, 14)
    # It comes first, and then what was never delivered.
    assert share.next_offset() == 4
    assert share.free_within(0, 20) == [4, 10, 11]


def test_a_batch_that_reaches_over_the_start_was_delayed_before_it_alone() -> None:
    share = SharePartition(10, [stored(8, 11, RecordState.AVAILABLE)], ShareSettings())
    assert [offset for offset in range(8, 12) if share.was_delayed(offset)] == [8, 9]
    assert (share.start, share.end) == (10, 12)
    assert share.free_within(0, 20) == [8, 9, 10, 11]


def test_what_is_stored_twice_counts_once() -> None:
    share = SharePartition(
        10, [stored(10, 15, RecordState.ACKNOWLEDGED), stored(12, 14, RecordState.AVAILABLE)], ShareSettings()
    )
    assert (share.start, share.end, share.free_within(0, 20)) == (16, 16, [])
