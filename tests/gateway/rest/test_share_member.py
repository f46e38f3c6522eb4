"""A member that acquires records for waiting callers, with brokers that a test simulates."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.client.address import Address
from penstock.client.failures import NoAnswer
from penstock.core.share.acknowledgements import AckType
from penstock.gateway.kafka.share.member import ShareMember
from penstock.gateway.kafka.share.routes import ShareRoutes
from penstock.gateway.web.problem import Problem
from penstock.model.errors import ErrorCode
from penstock.wire.messages import find_coordinator, metadata, settle_share_record, share_group_heartbeat
from penstock.wire.messages import take_share_records as taking
from penstock.wire.records import Record, build_batch

LEADER = Address("leader", 9092)
TOPIC_ID = bytes(15) + b"t"
DEADLINE_S = 20.0


class Brokers:
    """One broker that leads one partition; plays the wire of a caller, too."""

    def __init__(self) -> None:
        self.available: list[int] = []
        self.taken: list[int] = []
        self.settled: list[tuple[int, int, int]] = []
        self.has_settled = asyncio.Event()
        self.errors: list[int] = []
        self.is_silent = False
        self._news = asyncio.Event()

    def append(self, *offsets: int) -> None:
        self.available += offsets
        self._news.set()

    def branch(self) -> Brokers:
        return self

    async def prune(self, branch: Brokers) -> None:
        assert branch is self

    async def ask(self, request: Any) -> Any:
        if isinstance(request, metadata.MetadataRequest):
            row = metadata.MetadataResponsePartition(0, 0, 1)
            topic = metadata.MetadataResponseTopic(0, "t", TOPIC_ID, partitions=[row])
            return metadata.MetadataResponse(
                brokers=[metadata.MetadataResponseBroker(1, LEADER.host, LEADER.port)], topics=[topic]
            )
        assert isinstance(request, find_coordinator.FindCoordinatorRequest)
        found = find_coordinator.Coordinator("g", 1, LEADER.host, LEADER.port, 0, None)
        return find_coordinator.FindCoordinatorResponse(coordinators=[found])

    async def ask_each(self, addresses: list[Address], request: Any, **_: Any) -> dict[Address, Any]:
        return dict.fromkeys(addresses, request)

    async def ask_at(self, address: Address, request: Any, **_: Any) -> Any:
        assert address == LEADER
        if isinstance(request, share_group_heartbeat.ShareGroupHeartbeatRequest):
            row = share_group_heartbeat.TopicPartitions(TOPIC_ID, [0])
            return share_group_heartbeat.ShareGroupHeartbeatResponse(
                member_epoch=1, heartbeat_interval_ms=5_000, assignment=share_group_heartbeat.Assignment([row])
            )
        if isinstance(request, settle_share_record.SettleShareRecordRequest):
            assert request.incarnation == INCARNATION
            self.settled.append((request.offset, request.delivery_count, request.kind))
            self.has_settled.set()
            return settle_share_record.SettleShareRecordResponse(lock_ms=30_000)
        return await self._take(request)

    async def _take(self, request: taking.TakeShareRecordsRequest) -> taking.TakeShareRecordsResponse:
        if self.is_silent:
            raise NoAnswer("it closes the connection")
        if self.errors:
            row = taking.TakenPartition(0, self.errors.pop(0), "not now")
            return taking.TakeShareRecordsResponse(partitions=[row])
        if not request.max_records:
            while not self.available:
                self._news.clear()
                await self._news.wait()
            return taking.TakeShareRecordsResponse(partitions=[taking.TakenPartition(0)])
        offsets, self.available = self.available[: request.max_records], self.available[request.max_records :]
        self.taken += offsets
        rows = [
            taking.TakenPartition(
                0,
                0,
                None,
                build_batch([Record(offset, 0, None, b"%d" % offset)], base_offset=offset),
                [taking.TakenRecords(offset, offset, 1)],
                INCARNATION,
            )
            for offset in offsets
        ]
        return taking.TakeShareRecordsResponse(lock_ms=30_000, partitions=rows)


# Of the leader that delivers everything.
INCARNATION = 7


def play(story: Any) -> None:
    async def scenario() -> None:
        brokers = Brokers()
        over: list[ShareMember] = []
        wire: Any = brokers
        member = ShareMember(wire, ShareRoutes(wire), "g", "t", 1_000_000, over.append)
        try:
            await asyncio.wait_for(story(brokers, member), DEADLINE_S)
        finally:
            await member.stop()
        assert over == []

    asyncio.run(scenario())


async def offset_of(waiting: Coroutine[Any, Any, Any]) -> int | None:
    taken = await waiting
    return None if taken is None else taken.record.offset


def test_waiting_callers_are_served_in_order() -> None:
    async def story(brokers: Brokers, member: ShareMember) -> None:
        waiting = [asyncio.create_task(offset_of(member.next("earliest", 10))) for _ in range(3)]
        assert await offset_of(member.next("earliest", 0)) is None
        brokers.append(0, 1, 2, 3)
        assert await asyncio.gather(*waiting) == [0, 1, 2]
        # Nothing is acquired without a waiting caller.
        assert brokers.taken == [0, 1, 2]
        assert await offset_of(member.next("earliest", 10)) == 3

    play(story)


def test_record_of_a_disconnected_caller_goes_to_the_next_or_is_released() -> None:
    async def story(brokers: Brokers, member: ShareMember) -> None:
        first = asyncio.create_task(offset_of(member.next("earliest", 10)))
        assert await offset_of(member.next("earliest", 0)) is None
        second = asyncio.create_task(offset_of(member.next("earliest", 10)))
        waiter = member._waiters[0]
        # The first is cancelled in the very turn in which it gets its record.
        waiter.taken.add_done_callback(lambda _: first.cancel())
        brokers.append(0)
        assert await second == 0
        third = asyncio.create_task(offset_of(member.next("earliest", 10)))
        await asyncio.sleep(0)
        member._waiters[0].taken.add_done_callback(lambda _: third.cancel())
        brokers.append(1)
        await brokers.has_settled.wait()
        assert brokers.settled == [(1, 1, AckType.RELEASE)]

    play(story)


def test_unavailable_partition_is_requested_again() -> None:
    async def story(brokers: Brokers, member: ShareMember) -> None:
        brokers.errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_NOT_AVAILABLE]
        brokers.append(0)
        assert await offset_of(member.next("earliest", 15)) == 0
        brokers.errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(Problem) as refused:
            await member.next("earliest", 10)
        assert refused.value.status == 403

    play(story)


def test_brokers_without_the_api_are_reported() -> None:
    async def story(brokers: Brokers, member: ShareMember) -> None:
        brokers.is_silent = True
        with pytest.raises(Problem) as refused:
            await member.next("earliest", 10)
        assert refused.value.status == 501

    play(story)
