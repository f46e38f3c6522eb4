"""A consumer with retries and dead letters, by hand."""

import asyncio
import json
import os
import signal
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

SERVERS = os.environ["PENSTOCK_BOOTSTRAP"]
RETRIES = 3
COMMIT_EVERY = 500


@dataclass
class Order:
    item: str
    amount: int


async def bill(order: Order) -> None:
    if order.amount < 0:
        raise ValueError("cannot be billed")


async def put_aside(producer, message, error: Exception) -> None:
    headers = [
        ("reason", f"{type(error).__name__}: {error}".encode()),
        ("topic", message.topic.encode()),
        ("offset", str(message.offset).encode()),
    ]
    await producer.send_and_wait("dlq.orders", message.value, message.key, headers=headers)


async def process(producer, message) -> None:
    try:
        order = Order(**json.loads(message.value))
    except (ValueError, TypeError) as error:
        await put_aside(producer, message, error)
        return
    for attempt in range(RETRIES + 1):
        try:
            await bill(order)
            return
        except Exception as error:
            if attempt == RETRIES:
                await put_aside(producer, message, error)
            else:
                await asyncio.sleep(0.1 * 2**attempt)  # everything waits


async def main() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=SERVERS,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=SERVERS, enable_idempotence=True)
    async with consumer, producer:
        while not stopping.is_set():
            batches = await consumer.getmany(timeout_ms=500, max_records=COMMIT_EVERY)
            offsets = {}
            for place, messages in batches.items():
                for message in messages:
                    await process(producer, message)
                offsets[TopicPartition(place.topic, place.partition)] = messages[-1].offset + 1
            if offsets:
                await consumer.commit(offsets)


if __name__ == "__main__":
    asyncio.run(main())
