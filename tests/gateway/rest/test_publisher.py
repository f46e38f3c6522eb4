"""Publishing when the brokers cannot keep up, and the outcome of each record of many."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.gateway.kafka.admin import TopicPartitions
from penstock.gateway.kafka.delivery import Delivered, Delivery, QueueFull
from penstock.gateway.kafka.publisher import OutgoingRecord, Publisher
from penstock.gateway.web.problem import Problem


class FakeAdmin:
    """Knows one topic with two partitions."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def known_partitions(self, topic: str) -> TopicPartitions | None:
        return TopicPartitions(2, (0, 1)) if topic == "t" else None

    async def partitions(self, topic: str) -> TopicPartitions:
        raise Problem(40401, f"no {topic}", "make it")

    def forget(self, topic: str) -> None:
        self.forgotten.append(topic)


class FakeDelivery:
    """Has room for some records; those with the value b"bad" fail."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.offset = 0

    def send(self, topic: str, *, value: bytes | None, **_: Any) -> asyncio.Future[Delivered]:
        if not self.room:
            raise QueueFull
        self.room -= 1
        future: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()
        if value == b"bad":
            future.set_exception(KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)))
        else:
            future.set_result(Delivered(topic, 0, self.offset, 0))
            self.offset += 1
        return future


def publisher(room: int) -> tuple[Publisher, FakeAdmin]:
    made, admin = Publisher.__new__(Publisher), FakeAdmin()
    made._delivery, made._admin, made._rotation = FakeDelivery(room), admin, None  # type: ignore[assignment]
    return made, admin


def test_a_full_queue_is_a_429_with_retry_after() -> None:
    async def scenario() -> None:
        made, _ = publisher(room=0)
        with pytest.raises(Problem) as refused:
            await made.publish("t", OutgoingRecord(None, b"x"))
        assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})

    asyncio.run(scenario())


def test_publish_all_returns_each_records_outcome() -> None:
    async def scenario() -> None:
        made, admin = publisher(room=3)
        values = [OutgoingRecord(None, b"a"), OutgoingRecord(None, b"bad"), OutgoingRecord(None, b"b", partition=2)]
        outcomes = await made.publish_all("t", [*values, OutgoingRecord(None, b"c"), OutgoingRecord(None, b"d")])
        assert [each.status if isinstance(each, Problem) else each.offset for each in outcomes] == [0, 413, 404, 1, 429]
        assert admin.forgotten == ["t"]

    asyncio.run(scenario())


class FakeProducer:
    """Reports one delivery a poll."""

    def __init__(self) -> None:
        self.queued: list[Any] = []

    def produce(self, *_: Any, on_delivery: Any, **__: Any) -> None:
        self.queued.append(on_delivery)

    def poll(self, _: float) -> None:
        if self.queued:
            self.queued.pop(0)(None, None)


def test_failing_callback_does_not_affect_others() -> None:
    async def scenario() -> None:
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        delivery = Delivery(FakeProducer())  # type: ignore[arg-type]
        on_delivery: list[str] = []

        def fail(*_: object) -> None:
            raise RuntimeError("a bug")

        delivery.produce("t", b"", None, -1, [], 0, fail)
        delivery.produce("t", b"", None, -1, [], 0, lambda *_: on_delivery.append("second"))
        await delivery.stop(5)
        assert on_delivery == ["second"]
        assert [str(each) for each in failures] == ["a bug"]
        # It polls again when there is another report to come.
        delivery.produce("t", b"", None, -1, [], 0, lambda *_: on_delivery.append("third"))
        await delivery.stop(5)
        assert on_delivery == ["second", "third"]

    asyncio.run(scenario())


def test_an_unknown_topic_is_refused_before_anything_is_queued() -> None:
    async def scenario() -> None:
        made, _ = publisher(room=5)
        for call in (
            made.publish("u", OutgoingRecord(None, b"x")),
            made.publish_all("u", [OutgoingRecord(None, b"x")]),
        ):
            with pytest.raises(Problem, match="no u"):
                await call  # type: ignore[misc]

    asyncio.run(scenario())
