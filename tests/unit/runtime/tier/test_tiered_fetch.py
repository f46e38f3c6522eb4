"""Fetches of what is only in object storage: how the room is shared, and what becomes of errors and delays."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from penstock.core.replica.fetch_session import Wanted
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.fetch_rows import FetchedPartition, FetchKey
from penstock.runtime.tier.remote_logs import TierRead
from penstock.runtime.tier.tiered_fetch import PARTITIONS_MAX, TieredFetch
from penstock.storage.producers.transaction_index import AbortedTransaction as Aborted
from penstock.wire.messages.fetch import AbortedTransaction, PartitionData

ABORTED = [Aborted(7, 3, 9, 10), Aborted(8, 5, 11, 12)]


def key(number: int) -> FetchKey:
    return FetchKey("orders", b"t" * 16, number)


def row(number: int, size: int = 0, *, is_moved: bool = False) -> FetchedPartition:
    return FetchedPartition(
        key(number), PartitionData(number, high_watermark=100, records=memoryview(bytes(size))), size, is_moved
    )


class World:
    """A tier that has as many bytes as it is asked for."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int, int]] = []
        self.counted: list[int] = []
        self.failures: list[int] = []
        self.outcomes: dict[int, Any] = {}
        self.fetch = TieredFetch(cast("Any", self), self.failures.append)

    async def read(self, partition: Any, offset: int, size_max: int, *, committed_only: bool) -> TierRead | None:
        assert committed_only is self.committed_only
        self.reads.append((partition.number, offset, size_max))
        outcome = self.outcomes.get(partition.number, size_max)
        if isinstance(outcome, ApiError):
            raise outcome
        return None if outcome is None else TierRead(memoryview(bytes(outcome)), ABORTED)

    def find(self, wanted: FetchKey) -> Any:
        if wanted.partition == 99:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it has moved on")
        return SimpleNamespace(number=wanted.partition, counters=SimpleNamespace(read=self.counted.append))

    def fill(
        self, rows: list[FetchedPartition], room: int, *, bytes_max: int = 1_000, committed_only: bool = True
    ) -> list[FetchedPartition]:
        self.committed_only = committed_only
        asked = {one.key: Wanted(40 + one.key.partition, bytes_max) for one in rows}
        return asyncio.run(self.fetch.fill(rows, asked, self.find, room, committed_only=committed_only))


def test_what_is_on_disk_stays_as_it_is_and_the_rest_shares_the_room() -> None:
    world = World()
    rows = [row(0, 300), row(1, is_moved=True), row(2), row(3, is_moved=True)]
    filled = world.fill(rows, 1_000)
    assert [filled[0], filled[2]] == [rows[0], rows[2]]
    assert world.reads == [(1, 41, 350), (3, 43, 350)]
    assert [(one.key, one.size_bytes, one.is_moved) for one in (filled[1], filled[3])] == [
        (key(1), 350, False),
        (key(3), 350, False),
    ]
    assert filled[1].data.high_watermark == 100
    assert world.counted == [350, 350]


def test_a_partition_gets_no_more_than_was_asked_of_it() -> None:
    world = World()
    world.fill([row(1, is_moved=True)], 1_000, bytes_max=200)
    assert world.reads == [(1, 41, 200)]


def test_where_there_is_no_room_the_first_still_gets_a_batch() -> None:
    world = World()
    rows = [row(0, 300), row(1, is_moved=True), row(2, is_moved=True)]
    filled = world.fill(rows, 200)
    assert world.reads == [(1, 41, 0)]
    assert filled[2] == rows[2]


def test_aborted_transactions_come_with_committed_reads_alone() -> None:
    (found,) = World().fill([row(1, is_moved=True)], 1_000)
    assert found.data.aborted_transactions == [AbortedTransaction(7, 3), AbortedTransaction(8, 5)]
    (found,) = World().fill([row(1, is_moved=True)], 1_000, committed_only=False)
    assert found.data.aborted_transactions is None


def test_what_is_late_is_answered_without_records_and_errors_are_those_of_their_partition() -> None:
    world = World()
    world.outcomes = {1: None, 2: ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the store does not answer")}
    rows = [row(number, is_moved=True) for number in (1, 2, 99, 4)]
    late, failed, moved, fine = world.fill(rows, 4_000)
    assert late == rows[0]
    assert (failed.data.error_code, moved.data.error_code) == (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert (fine.size_bytes, fine.data.error_code) == (1_000, 0)
    assert world.failures == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_few_of_many_partitions_are_read_at_once() -> None:
    world = World()
    rows = [row(number, is_moved=True) for number in range(PARTITIONS_MAX + 10) if number != 99]
    filled = world.fill(rows, 1_000_000, bytes_max=10)
    assert [one.size_bytes > 0 for one in filled] == [True] * PARTITIONS_MAX + [False] * 10
    assert len(world.reads) == PARTITIONS_MAX
