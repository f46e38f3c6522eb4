"""Where a follower starts whose leader has its first records only in object storage."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.replication.tier_start import TierStart, find_tier_start
from penstock.storage.segment_copy import TierHistory
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

FOLLOWER, LEADER_EPOCH = 3, 9
HISTORY = TierHistory((), ())


class Leader:
    """A leader whose log starts at `starts`, by the timestamp that asks for it, with an epoch's end of `epoch_end`."""

    def __init__(self, local: tuple[int, int], epoch_end: tuple[int, int] = (0, 0)) -> None:
        self.starts = {-4: local, -2: (0, 0)}
        self.epoch_end = epoch_end
        self.errors: dict[type, int] = {}
        self.epochs_asked: list[int] = []
        self.histories: list[tuple[int, int]] = []

    async def send(self, request: Any, *, timeout_ms: int) -> Any:
        assert (timeout_ms, request.replica_id) == (700, FOLLOWER)
        wanted = request.topics[0].partitions[0]
        assert (request.topics[0][0], wanted[0], wanted.current_leader_epoch) == ("orders", 5, LEADER_EPOCH)
        error = self.errors.get(type(request), 0)
        if isinstance(request, ListOffsetsRequest):
            offset, epoch = self.starts[wanted.timestamp]
            found = ListOffsetsPartitionResponse(5, error, offset=offset, leader_epoch=epoch)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("orders", [found])])
        assert isinstance(request, OffsetForLeaderEpochRequest)
        self.epochs_asked.append(wanted.leader_epoch)
        epoch, end = self.epoch_end
        row = EpochEndOffset(error, 5, epoch, end)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult("orders", [row])])

    async def history(self, _: Any, epoch: int, offset: int) -> tuple[int, TierHistory]:
        self.histories.append((epoch, offset))
        return offset + 5, HISTORY

    def find(self) -> TierStart:
        partition: Any = SimpleNamespace(name=TopicPartition("orders", 5), leader_epoch=LEADER_EPOCH)
        peer: Any = self
        return asyncio.run(find_tier_start(peer, FOLLOWER, partition, self.history, 700))


def test_it_starts_after_the_segment_with_the_last_record_that_the_leader_moved() -> None:
    leader = Leader((100, 0))
    leader.starts[-2] = (20, 0)
    assert leader.find() == TierStart(104, 20, HISTORY)
    assert (leader.histories, leader.epochs_asked) == ([(0, 99)], [])


@pytest.mark.parametrize(
    ("epoch_end", "epoch"),
    [
        # The last moved record, at 99, is of the epoch that ends after it, else of the one that follows.
        ((2, 100), 2),
        ((2, 99), 4),
        ((3, 101), 3),
    ],
)
def test_the_last_moved_record_may_be_of_an_earlier_epoch(epoch_end: tuple[int, int], epoch: int) -> None:
    leader = Leader((100, 4), epoch_end)
    leader.find()
    assert (leader.histories, leader.epochs_asked) == ([(epoch, 99)], [3])


def test_the_first_epoch_has_one_before_it_and_epoch_zero_none() -> None:
    leader = Leader((100, 1), (0, 100))
    leader.find()
    assert (leader.histories, leader.epochs_asked) == ([(0, 99)], [0])


@pytest.mark.parametrize("kind", [ListOffsetsRequest, OffsetForLeaderEpochRequest])
def test_a_leader_that_refuses_is_an_error(kind: type) -> None:
    leader = Leader((100, 4))
    leader.errors[kind] = ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(ApiError, match="orders-5") as raised:
        leader.find()
    assert raised.value.code == ErrorCode.FENCED_LEADER_EPOCH
    assert leader.histories == []
