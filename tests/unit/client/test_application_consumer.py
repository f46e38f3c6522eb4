"""Records handed out by the consumers: none to a canceled call, and none of partitions that others own by now."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition

import penstock
from penstock.client.application import consumer as consumer_module
from penstock.client.application import producer as producer_module
from penstock.client.application import share as share_module
from penstock.client.application.errors import TransactionAborted

NOWHERE = "127.0.0.1:1"


def message(partition: int, offset: int) -> Message:
    return Message("orders", partition, offset, None, b"tea", None, None, (1, 0))


class FakeConsumer:
    """librdkafka's consumer with records that a test puts there."""

    def __init__(self, _: Any) -> None:
        self.batches: list[list[Message]] = []
        self.commits: list[list[tuple[int, int]]] = []
        self.may_return = threading.Event()
        self.may_return.set()
        self.is_polling = threading.Event()
        self.revokes_in_consume: list[int] = []
        self.on_revoke: Callable[..., None]

    def subscribe(self, *_: Any, on_revoke: Callable[..., None] = lambda *_: None, **__: Any) -> None:
        self.on_revoke = on_revoke

    def poll(self, _: float) -> Any:
        self.is_polling.set()
        self.may_return.wait(30)
        self.batch = self.batches.pop(0) if self.batches else []
        return self.batch[0] if self.batch else None

    def consume(self, *_: Any) -> list[Message]:
        if self.revokes_in_consume:
            self.revoke(*self.revokes_in_consume)
            self.revokes_in_consume = []
        return self.batch[1:]

    def revoke(self, *partitions: int) -> None:
        self.on_revoke(self, [TopicPartition("orders", each) for each in partitions])

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        self.commits.append([(each.partition, each.offset) for each in offsets])
        return []

    def consumer_group_metadata(self) -> str:
        return "metadata"

    def assignment(self) -> list[TopicPartition]:
        return []

    def committed(self, *_: Any, **__: Any) -> list[TopicPartition]:
        return []

    def close(self) -> None: ...


class FakeShareConsumer(FakeConsumer):
    """librdkafka's share consumer, whose polls return batches."""

    def poll(self, timeout: float) -> Any:
        super().poll(timeout)
        return self.batch


class FakeProducer:
    """librdkafka's transactional producer, which counts what is committed."""

    commits = 0
    aborts = 0

    def __init__(self, _: Any) -> None:
        self.may_begin = threading.Event()
        self.may_begin.set()
        self.is_beginning = threading.Event()

    def init_transactions(self, *_: Any) -> None: ...

    def begin_transaction(self) -> None:
        self.is_beginning.set()
        self.may_begin.wait(30)

    def send_offsets_to_transaction(self, *_: Any) -> None: ...

    def commit_transaction(self, *_: Any) -> None:
        self.commits += 1

    def abort_transaction(self, *_: Any) -> None:
        self.aborts += 1

    def produce(self, *_: Any, **__: Any) -> None: ...

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float) -> int:
        return 0

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _raw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "RawConsumer", FakeConsumer)
    monkeypatch.setattr(share_module, "RawShareConsumer", FakeShareConsumer)
    monkeypatch.setattr(producer_module, "RawProducer", FakeProducer)


def a_consumer() -> tuple[penstock.Consumer[bytes], Any]:
    consumer = penstock.Consumer(NOWHERE, group="billing")
    consumer.subscribe(["orders"])
    return consumer, consumer._raw


def test_a_record_whose_partition_is_revoked_while_the_batch_is_completed_is_not_handed_out() -> None:
    consumer, raw = a_consumer()
    raw.batches = [[message(0, 5), message(1, 7)]]
    raw.revokes_in_consume = [0]
    assert [record.partition for record in consumer.poll_many(10, 0)] == [1]
    consumer.commit_offsets()
    assert raw.commits == [[(1, 8)]]


def test_a_transaction_is_aborted_if_partitions_of_its_records_were_revoked() -> None:
    """Their next owner reads the records again: what was sent for them would count twice."""
    consumer, raw = a_consumer()
    raw.batches = [[message(0, 5)], [message(1, 7)]]
    with penstock.Producer(NOWHERE, transactional_id="ship-1") as producer:
        sink: Any = producer._raw

        def send_for_two_records() -> None:
            with producer.transaction(consumer):
                assert consumer.poll(0) is not None
                producer.send("shipments", "a", "tea")
                raw.revoke(0)
                assert consumer.poll(0) is not None

        with pytest.raises(TransactionAborted, match="orders-0 was revoked"):
            send_for_two_records()
        assert (sink.commits, sink.aborts) == (0, 1)
        with producer.transaction(consumer):
            pass
        assert (sink.commits, sink.aborts) == (1, 1)


def test_a_transaction_goes_on_if_the_revoked_partitions_were_committed() -> None:
    consumer, raw = a_consumer()
    raw.batches = [[message(0, 5)]]
    with penstock.Producer(NOWHERE, transactional_id="ship-1") as producer:
        sink: Any = producer._raw
        with producer.transaction(consumer):
            assert consumer.poll(0) is not None
        raw.revoke(0)
        with producer.transaction(consumer):
            pass
        assert (sink.commits, sink.aborts) == (2, 0)


@pytest.mark.parametrize("many", [False, True])
def test_a_record_that_a_canceled_poll_fetched_is_handed_out_by_the_next_one(many: bool) -> None:
    async def work() -> None:
        consumer = penstock.aio.Consumer(NOWHERE, group="billing")
        await consumer.subscribe(["orders"])
        raw: Any = consumer._sync._raw
        await check_canceled_poll(consumer, raw, many=many)
        await consumer.commit_offsets()
        assert raw.commits == [[(0, 6)]]

    asyncio.run(work())


@pytest.mark.parametrize("many", [False, True])
def test_a_share_group_record_that_a_canceled_poll_took_is_handed_out_by_the_next_one(many: bool) -> None:
    async def work() -> None:
        consumer = penstock.aio.ShareConsumer(NOWHERE, group="packers")
        await consumer.subscribe(["orders"])
        await check_canceled_poll(consumer, consumer._sync._raw, many=many)

    asyncio.run(work())


async def check_canceled_poll(consumer: Any, raw: Any, *, many: bool) -> None:
    async def poll() -> list[Any]:
        return await consumer.poll_many(10, 30) if many else [await consumer.poll(30)]

    raw.batches = [[message(0, 5)]]
    raw.may_return.clear()
    canceled = asyncio.create_task(poll())
    await asyncio.to_thread(raw.is_polling.wait, 30)
    canceled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await canceled
    raw.may_return.set()
    assert [record.offset for record in await poll()] == [5]


def test_a_transaction_that_is_canceled_while_it_begins_is_aborted() -> None:
    async def work() -> None:
        producer = penstock.aio.Producer(NOWHERE, transactional_id="ship-1")
        raw: Any = producer._sync._raw

        async def send() -> None:
            async with producer.transaction():
                raise AssertionError("it was canceled before")

        raw.may_begin.clear()
        canceled = asyncio.create_task(send())
        await asyncio.to_thread(raw.is_beginning.wait, 30)
        canceled.cancel()
        raw.may_begin.set()
        with pytest.raises(asyncio.CancelledError):
            await canceled
        assert (raw.commits, raw.aborts) == (0, 1)
        async with producer.transaction():
            pass
        assert (raw.commits, raw.aborts) == (1, 1)
        await producer.close()

    asyncio.run(work())
