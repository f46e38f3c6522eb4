"""What share groups read from object storage: no fetch waits for it, and a failure is raised once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.env import SystemEnv
from penstock.runtime.replication.partition import Partition
from penstock.runtime.share.tier_window import TierWindow
from penstock.runtime.tier.remote_logs import TierRead
from penstock.storage.producers.transaction_index import AbortedTransaction
from penstock.wire.records import Record, build_batch, read_header


class Named:
    name = TopicPartition("orders", 0)


def batches(first: int, count: int) -> bytes:
    return b"".join(
        build_batch([Record(offset, 1, None, b"v", ()), Record(offset + 1, 1, None, b"v", ())], base_offset=offset)
        for offset in range(first, first + 2 * count, 2)
    )


class Tier:
    def __init__(self, *answers: TierRead | ApiError | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, bool]] = []

    async def read(self, _: Partition, offset: int, __: int, *, committed_only: bool) -> TierRead | None:
        self.asked.append((offset, committed_only))
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def find_time(self, _: Partition, __: int) -> None:
        raise AssertionError


def window(tier: Tier) -> tuple[TierWindow, asyncio.Event]:
    arrived = asyncio.Event()
    return TierWindow(SystemEnv(), cast("Partition", Named()), tier, arrived.set), arrived


def offsets(data: memoryview) -> list[int]:
    found, position = [], 0
    while position < len(data):
        header = read_header(data, position)
        found.append(header.base_offset)
        position += header.size_bytes
    return found


def take(one: TierWindow, offset: int, size_max: int = 10_000, **options: Any) -> list[int]:
    given = {"committed_only": True, "at_least_one": True, **options}
    return offsets(one.take(offset, size_max, **given).data)


def test_a_requested_piece_arrives_once_and_serves_many_looks() -> None:
    async def run() -> None:
        aborted = AbortedTransaction(7, 4, 5, 6)
        tier = Tier(TierRead(batches(4, 4), [aborted]))
        one, arrived = window(tier)
        assert take(one, 5) == []
        assert take(one, 5) == [], "it is on its way"
        await arrived.wait()
        assert take(one, 5) == [4, 6, 8, 10]
        assert take(one, 8) == [8, 10]
        size = len(batches(0, 1))
        assert take(one, 6, 2 * size) == [6, 8]
        assert take(one, 6, 1) == [6]
        assert take(one, 6, 1, at_least_one=False) == []
        (row,) = one.take(4, 1, committed_only=True, at_least_one=True).aborted
        assert (row.producer_id, row.first_offset, row.last_offset) == (7, 4, 5)
        assert tier.asked == [(5, True)]

    asyncio.run(run())


@pytest.mark.parametrize("look", [{"offset": 3}, {"offset": 12}, {"offset": 8, "committed_only": False}])
def test_missing_pieces_are_requested(look: dict[str, Any]) -> None:
    async def run() -> None:
        tier = Tier(TierRead(batches(4, 4), []), TierRead(b"", []))
        one, arrived = window(tier)
        take(one, 4)
        await arrived.wait()
        assert take(one, **look) == []
        await one.wait()
        assert tier.asked[1] == (look["offset"], look.get("committed_only", True))

    asyncio.run(run())


def test_a_failure_is_raised_once_and_then_tried_again() -> None:
    async def run() -> None:
        failure = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "away")
        one, arrived = window(Tier(failure, None, TierRead(batches(0, 1), [])))
        take(one, 0)
        await arrived.wait()
        with pytest.raises(ApiError, match="away"):
            take(one, 0)
        # The second try takes too long, which is no failure; the third succeeds.
        for _ in range(2):
            assert take(one, 0) == []
            assert one.is_loading
            await one.wait()
        assert take(one, 0) == [0]
        one.forget()
        assert take(one, 0) == []

    asyncio.run(run())
