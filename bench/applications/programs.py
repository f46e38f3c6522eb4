"""One contender in a process of its own: `python programs.py KIND SERVERS TOPIC COUNT`. Prints records a second.

Runs in any environment that has the contender's packages, so it imports them where they are used.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

VALUE = json.dumps({"item": "tea", "amount": 3, "note": "x" * 60}).encode()
KEYS = [f"customer-{number}" for number in range(1000)]


@dataclass
class Order:
    item: str
    amount: int
    note: str


class Meter:
    """The time from the first record of a warm consumer to the last."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.seen = 0
        self.started = 0.0
        self.rate = 0.0

    def tick(self) -> bool:
        """Count a record; True with the last one."""
        if not self.seen:
            self.started = time.perf_counter()
        self.seen += 1
        if self.seen == self.count:
            self.rate = (self.count - 1) / (time.perf_counter() - self.started)
            return True
        return False


# Producers: all of them idempotent, acks=all, and noticing what was not delivered.


def produce_raw(servers: str, topic: str, count: int) -> float:
    from confluent_kafka import Producer

    failed = []

    def report(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(message)

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "on_delivery": report})
    rate = produce_all(producer, topic, count)
    assert not failed
    return rate


def produce_blind(servers: str, topic: str, count: int) -> float:
    from confluent_kafka import Producer

    return produce_all(Producer({"bootstrap.servers": servers, "enable.idempotence": True}), topic, count)


def produce_all(producer: Any, topic: str, count: int) -> float:
    """With librdkafka's producer as it is."""
    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, VALUE, KEYS[number % 1000])
                break
            except BufferError:
                producer.poll(0.05)
        if not number % 500:
            producer.poll(0)
    assert producer.flush(60) == 0
    return count / (time.perf_counter() - started)


def produce_penstock(servers: str, topic: str, count: int) -> float:
    import penstock

    producer = penstock.Producer(servers)
    started = time.perf_counter()
    for number in range(count):
        producer.send(topic, KEYS[number % 1000], VALUE)
    producer.flush(60)
    return count / (time.perf_counter() - started)


def produce_penstock_aio(servers: str, topic: str, count: int) -> float:
    import penstock

    async def main() -> float:
        async with penstock.aio.Producer(servers) as producer:
            started = time.perf_counter()
            for number in range(count):
                await producer.send(topic, KEYS[number % 1000], VALUE)
            await producer.flush(60)
            return count / (time.perf_counter() - started)

    return asyncio.run(main())


def produce_aiokafka(servers: str, topic: str, count: int) -> float:
    from aiokafka import AIOKafkaProducer

    async def main() -> float:
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, linger_ms=5) as producer:
            started = time.perf_counter()
            for number in range(count):
                last = await producer.send(topic, VALUE, KEYS[number % 1000].encode())
            await producer.flush()
            await last
            return count / (time.perf_counter() - started)

    return asyncio.run(main())


# Consumers: in a group, reading every value.


def consume_raw(servers: str, topic: str, count: int) -> float:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    meter = Meter(count)
    size = 0
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        size += len(message.value())
        if meter.tick():
            break
    consumer.commit(asynchronous=False)
    consumer.close()
    return meter.rate


def consume_penstock(servers: str, topic: str, count: int) -> float:
    import penstock

    consumer = penstock.Consumer(servers, group=uuid.uuid4().hex)
    consumer.subscribe([topic])
    meter = Meter(count)
    size = 0
    while True:
        record = consumer.poll(1.0)
        if record is None:
            continue
        size += len(record.value)
        if meter.tick():
            break
    consumer.commit_offsets()
    consumer.close()
    return meter.rate


def consume_penstock_aio(servers: str, topic: str, count: int) -> float:
    import penstock

    async def main() -> float:
        meter = Meter(count)
        size = 0
        async with penstock.aio.Consumer(servers, group=uuid.uuid4().hex) as consumer:
            await consumer.subscribe([topic])
            async for record in consumer:
                size += len(record.value)
                if meter.tick():
                    break
            await consumer.commit_offsets()
        return meter.rate

    return asyncio.run(main())


def consume_aiokafka(servers: str, topic: str, count: int) -> float:
    from aiokafka import AIOKafkaConsumer

    async def main() -> float:
        meter = Meter(count)
        size = 0
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=uuid.uuid4().hex,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            async for message in consumer:
                size += len(message.value)
                if meter.tick():
                    break
            await consumer.commit()
        return meter.rate

    return asyncio.run(main())


# Applications: JSON into a typed order, at least once.


def app_penstock(servers: str, topic: str, count: int) -> float:
    import penstock

    meter = Meter(count)
    app = penstock.App(uuid.uuid4().hex, servers)

    @app.subscribe(topic, dead_letters=False)
    async def handle(order: Order) -> None:  # noqa: ARG001
        if meter.tick():
            app.stop()

    app.run()
    return meter.rate


def app_penstock_sync(servers: str, topic: str, count: int) -> float:
    import penstock

    meter = Meter(count)
    app = penstock.App(uuid.uuid4().hex, servers)

    @app.subscribe(topic, dead_letters=False)
    def handle(order: Order) -> None:  # noqa: ARG001
        if meter.tick():
            app.stop()

    app.run()
    return meter.rate


def app_faststream(servers: str, topic: str, count: int) -> float:
    from faststream import AckPolicy, FastStream
    from faststream.confluent import KafkaBroker
    from pydantic import BaseModel

    class OrderModel(BaseModel):
        item: str
        amount: int
        note: str

    meter = Meter(count)
    broker = KafkaBroker(servers, logger=None)
    app = FastStream(broker, logger=None)

    async def handle(order: Any) -> None:  # noqa: ARG001
        if meter.tick():
            app.exit()

    handle.__annotations__ = {"order": OrderModel, "return": None}
    group = uuid.uuid4().hex
    broker.subscriber(topic, group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK_FIRST)(handle)
    asyncio.run(app.run())
    return meter.rate


def app_quix(servers: str, topic: str, count: int) -> float:
    from quixstreams import Application

    meter = Meter(count)
    app = Application(
        broker_address=servers, consumer_group=uuid.uuid4().hex, auto_offset_reset="earliest", loglevel="ERROR"
    )
    frame = app.dataframe(app.topic(topic, value_deserializer="json"))

    def handle(value: dict[str, Any]) -> None:
        Order(**value)
        if meter.tick():
            app.stop()

    frame.update(handle)
    app.run()
    return meter.rate


CONTENDERS: dict[str, Callable[[str, str, int], float | Awaitable[float]]] = {
    name: found
    for name, found in list(globals().items())
    if callable(found) and name.startswith(("produce_", "consume_", "app_"))
}


if __name__ == "__main__":
    kind, servers, topic, count = sys.argv[1:5]
    print(CONTENDERS[kind](servers, topic, int(count)))
