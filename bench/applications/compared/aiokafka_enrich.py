"""Enrich and forward, exactly once, by hand."""

import asyncio
import json
import os
import signal
import socket

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

SERVERS = os.environ["PENSTOCK_BOOTSTRAP"]
GROUP = "enrich"
PRICES = {"tea": 3, "coffee": 4}


def price(order: dict) -> dict:
    return {**order, "total": order["amount"] * PRICES[order["item"]]}


async def main() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=SERVERS,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=SERVERS, transactional_id=f"{GROUP}-{socket.gethostname()}-0")
    async with consumer, producer:
        while not stopping.is_set():
            batches = await consumer.getmany(timeout_ms=500, max_records=500)
            if not batches:
                continue
            try:
                async with producer.transaction():
                    offsets = {}
                    for place, messages in batches.items():
                        for message in messages:
                            value = json.dumps(price(json.loads(message.value))).encode()  # a poison pill stops it
                            await producer.send("priced", value, message.key)
                        offsets[TopicPartition(place.topic, place.partition)] = messages[-1].offset + 1
                    await producer.send_offsets_to_transaction(offsets, GROUP)
            except KafkaError:
                for place in batches:
                    committed = await consumer.committed(place)
                    consumer.seek(place, committed or 0)


if __name__ == "__main__":
    asyncio.run(main())
