"""Deliveries one by one: what is handed out again, what is committed, what is forgotten when partitions move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.gateway.kafka import subscriptions as module
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.kafka.subscriptions import Subscriptions
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem


def record(offset: int, partition: int = 0) -> ReadRecord:
    return ReadRecord("t", partition, offset, 0, None, b"%d" % offset, [])


class FakeConsumer:
    """A consumer with records to give and a memory of commits."""

    def __init__(self) -> None:
        self.batches: list[list[ReadRecord]] = []
        self.commits: list[list[tuple[str, int, int]]] = []
        self.revoked: list[tuple[str, int]] = []

    def subscribe(self, topics: list[str]) -> None:
        assert topics == ["t"]

    def poll(self, *_: object) -> list[ReadRecord]:
        return self.batches.pop(0) if self.batches else []

    def commit(self, offsets: list[tuple[str, int, int]]) -> None:
        self.commits.append(offsets)


class FakeInstance:
    group = "g"
    name = "/t"

    def __init__(self) -> None:
        self.consumer = FakeConsumer()


class FakeInstances:
    on_remove: Callable[[FakeInstance], None]

    def __init__(self) -> None:
        self.instance = FakeInstance()
        self.there = False
        self.may_read = True

    async def check_readable(self, records: list[ReadRecord]) -> None:
        if records and not self.may_read:
            raise Problem(403, 40301, "the right to read was revoked")

    def create(self, *_: object) -> FakeInstance:
        self.there = True
        return self.instance

    def get(self, *_: object) -> FakeInstance | None:
        return self.instance if self.there else None

    async def use(self, instance: FakeInstance, work: Callable[[FakeConsumer], Any]) -> Any:
        return work(instance.consumer)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def start(**limits: int) -> tuple[Subscriptions, FakeConsumer]:
    instances = FakeInstances()
    settings = GatewaySettings("x", **limits)  # type: ignore[arg-type]
    return Subscriptions(instances, settings), instances.instance.consumer  # type: ignore[arg-type]


def test_an_unacknowledged_record_is_delivered_again(clock: Clock) -> None:
    async def scenario() -> None:
        subscriptions, consumer = start()
        consumer.batches = [[record(0), record(1)]]
        assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(0)
        clock.now += module.ACK_TIMEOUT_S - 1
        assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(1)
        clock.now += 2
        assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(0)
        assert await subscriptions.acknowledge("g", "t", 0, 0)
        assert consumer.commits == [[("t", 0, 1)]]
        assert await subscriptions.acknowledge("g", "t", 0, 1)
        assert consumer.commits[-1] == [("t", 0, 2)]

    asyncio.run(scenario())


def test_records_of_revoked_partitions_are_dropped(clock: Clock) -> None:
    async def scenario() -> None:
        subscriptions, consumer = start()
        consumer.batches = [[record(0), record(5, 1), record(1)]]
        assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(0)
        consumer.revoked = [("t", 0)]
        assert not await subscriptions.acknowledge("g", "t", 0, 0)
        assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(5, 1)
        clock.now += 1000
        assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(5, 1)
        assert consumer.commits == []

    asyncio.run(scenario())


def test_only_delivered_records_can_be_acknowledged() -> None:
    async def scenario() -> None:
        subscriptions, consumer = start()
        assert not await subscriptions.acknowledge("g", "t", 0, 0)
        consumer.batches = [[record(0)]]
        await subscriptions.next("g", "t", "earliest", 1, "me")
        assert not await subscriptions.acknowledge("g", "t", 0, 7)
        assert not await subscriptions.acknowledge("g", "t", 3, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "limits", [{"unacknowledged_records_max": 2}, {"unacknowledged_bytes_max": 2 * record(0).size}]
)
def test_unacknowledged_records_are_limited(clock: Clock, limits: dict[str, int]) -> None:
    async def scenario() -> None:
        subscriptions, consumer = start(**limits)
        consumer.batches = [[record(0)], [record(1)], [record(2)]]
        for offset in range(2):
            assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(offset)
        with pytest.raises(Problem, match=r"2 messages of .* bytes are unacknowledged"):
            await subscriptions.next("g", "t", "earliest", 1, "me")
        assert await subscriptions.acknowledge("g", "t", 0, 0)
        assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(2)
        # What is handed out again does not count twice.
        clock.now += module.ACK_TIMEOUT_S + 1
        for offset in (1, 2):
            assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(offset)
            assert await subscriptions.acknowledge("g", "t", 0, offset)
        consumer.batches = [[record(3)]]
        assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(3)

    asyncio.run(scenario())


def test_a_subscription_ends_with_its_group_member() -> None:
    async def scenario() -> None:
        instances = FakeInstances()
        subscriptions = Subscriptions(instances, GatewaySettings("x"))  # type: ignore[arg-type]
        instances.instance.consumer.batches = [[record(0)]]
        await subscriptions.next("g", "t", "earliest", 1, "me")
        assert subscriptions._subscriptions
        instances.on_remove(instances.instance)
        assert not subscriptions._subscriptions

    asyncio.run(scenario())


def test_a_record_that_was_fetched_before_the_right_was_revoked_is_not_delivered(clock: Clock) -> None:
    async def scenario() -> None:
        instances = FakeInstances()
        subscriptions = Subscriptions(instances, GatewaySettings("x"))  # type: ignore[arg-type]
        instances.instance.consumer.batches = [[record(0), record(1)]]
        assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(0)
        instances.may_read = False
        with pytest.raises(Problem) as refused:
            await subscriptions.next("g", "t", "earliest", 1, "me")
        assert refused.value.status == 403
        # It is delivered once the right is back, as after a lost answer.
        instances.may_read = True
        clock.now += module.ACK_TIMEOUT_S + 1
        assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(0)
        clock.now += 1
        assert await subscriptions.next("g", "t", "earliest", 1, "me") == record(1)

    asyncio.run(scenario())
