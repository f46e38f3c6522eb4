"""What coordinators decided is counted by the records that say so."""

from __future__ import annotations

from penstock.core.contract import Record
from penstock.core.transaction.states import TransactionState
from penstock.runtime.coordinator.counters import GroupCounters, TransactionCounters
from penstock.wire.messages.consumer_group_records import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from penstock.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.wire.messages.share_group_records import ShareGroupMetadataKey, ShareGroupMetadataValue
from penstock.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue


def generation(number: int, *, members: int = 1) -> Record:
    value = GroupMetadataValue("consumer", number, members=[MemberMetadata()] * members)
    return Record(GroupMetadataKey("readers"), value, 3)


def test_a_classic_group_rebalances_with_each_generation() -> None:
    counters = GroupCounters()
    # Founded, two generations, the second written again because a static member came back, everybody gone, one more.
    counters.count([generation(0, members=0), generation(1), generation(2)])
    counters.count([generation(2)])
    counters.count([generation(3, members=0), generation(4)])
    assert counters.rebalances == {"classic": 3, "consumer": 0, "share": 0}


def test_a_consumer_group_rebalances_with_each_epoch() -> None:
    counters = GroupCounters()
    key = ConsumerGroupMetadataKey("readers")
    counters.count([Record(key, ConsumerGroupMetadataValue(1), 0), Record(key, ConsumerGroupMetadataValue(2), 0)])
    counters.count([Record(key, None, 0)])
    assert counters.rebalances == {"classic": 0, "consumer": 2, "share": 0}


def test_a_share_group_rebalances_with_each_epoch() -> None:
    counters = GroupCounters()
    key = ShareGroupMetadataKey("readers")
    counters.count([Record(key, ShareGroupMetadataValue(1), 0), Record(key, None, 0)])
    assert counters.rebalances == {"classic": 0, "consumer": 0, "share": 1}


def test_offsets_are_counted_when_they_come_and_when_they_go() -> None:
    counters = GroupCounters()
    key = OffsetCommitKey("readers", "orders", 0)
    counters.count([Record(key, OffsetCommitValue(5), 3), Record(key, OffsetCommitValue(6), 3), Record(key, None, 3)])
    assert (counters.offset_commits, counters.offset_deletions) == (2, 1)


def test_transactions_are_counted_when_they_are_over() -> None:
    counters = TransactionCounters()
    states = [TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT]
    states += [TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT]
    key = TransactionLogKey("writer")
    counters.count([Record(key, TransactionLogValue(transaction_status=state), 1) for state in states])
    assert (counters.committed, counters.aborted) == (1, 1)
