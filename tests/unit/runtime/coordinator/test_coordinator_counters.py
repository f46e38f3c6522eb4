"""What coordinators decided is counted by the records that say so."""

from __future__ import annotations

from typing import Any

import pytest

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
from penstock.wire.messages.streams_group_records import StreamsGroupMetadataKey, StreamsGroupMetadataValue
from penstock.wire.messages.transaction_records import TransactionLogKey, TransactionLogValue

NONE = {"classic": 0, "consumer": 0, "share": 0, "streams": 0}


def generation(number: int, *, members: int = 1) -> Record:
    value = GroupMetadataValue("consumer", number, members=[MemberMetadata()] * members)
    return Record(GroupMetadataKey("readers"), value, 3)


def test_a_classic_group_rebalances_with_each_generation() -> None:
    counters = GroupCounters()
    # Founded, two generations, the second written again because a static member came back, everybody gone, one more.
    counters.count([generation(0, members=0), generation(1), generation(2)])
    counters.count([generation(2)])
    counters.count([generation(3, members=0), generation(4)])
    assert counters.rebalances == {**NONE, "classic": 3}


@pytest.mark.parametrize(
    ("protocol", "key", "value"),
    [
        ("consumer", ConsumerGroupMetadataKey("readers"), ConsumerGroupMetadataValue(1)),
        ("share", ShareGroupMetadataKey("readers"), ShareGroupMetadataValue(1)),
        ("streams", StreamsGroupMetadataKey("readers"), StreamsGroupMetadataValue(1)),
    ],
)
def test_other_groups_rebalance_with_each_epoch(protocol: str, key: Any, value: Any) -> None:
    counters = GroupCounters()
    counters.count([Record(key, value, 0), Record(key, value._replace(epoch=2), 0)])
    counters.count([Record(key, None, 0)])
    assert counters.rebalances == {**NONE, protocol: 2}


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
