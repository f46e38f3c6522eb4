"""The topic `_idempotency_keys`: all gateways append to it, and read it in the same order.

It is created, and read, when the first request with a key arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from confluent_kafka import Message, Producer

from penstock.client.operations import offsets
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.delivery import Delivery
from penstock.gateway.kafka.topic_follower import TopicFollower, ensure_topic
from penstock.gateway.settings import GatewaySettings
from penstock.model.ids import TopicPartition

TOPIC = "_idempotency_keys"
NOTES_PER_KEY = 4
START_TIMEOUT_S = 30.0
APPEND_TIMEOUT_MS = 10_000
STOP_TIMEOUT_S = 5.0

OnRecord = Callable[[bytes, bytes | None, int], None]


class KeyLog:
    """Calls `on_record` on the event loop with key, value and timestamp, in order. All methods belong to the loop."""

    def __init__(self, settings: GatewaySettings, brokers: BrokerWire, on_record: OnRecord) -> None:
        self._settings = settings
        self._brokers = brokers
        self._on_record = on_record
        self._follower = TopicFollower(settings.client(), TOPIC, self._take)
        self._delivery: Delivery | None = None

    async def start(self) -> None:
        """Create the topic unless it exists, and read its recent part. Raises Problem and KafkaException."""
        begin, end = await self._ensure_topic()
        settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": APPEND_TIMEOUT_MS}
        self._delivery = Delivery(Producer(self._settings.client(**settings)))
        async with asyncio.timeout(START_TIMEOUT_S):
            await self._follower.start(max(begin, end - self._settings.idempotency_keys_max * NOTES_PER_KEY))

    async def stop(self) -> None:
        """Stop the reader and the writer."""
        if self._delivery is not None:
            await self._delivery.stop(STOP_TIMEOUT_S)
        await self._follower.stop()

    async def append(self, key: bytes, value: bytes) -> None:
        """Append a record; returns when it and all before it have been read back. Raises KafkaException."""
        assert self._delivery is not None
        delivered = await self._delivery.send(TOPIC, key=key, value=value, partition=0)
        await self._follower.read_up_to(delivered.offset)

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            self._on_record(message.key() or b"", message.value(), message.timestamp()[1])

    async def _ensure_topic(self) -> tuple[int, int]:
        """Create the topic unless it exists; returns its beginning and end offsets."""
        retention_ms = int(self._settings.idempotency_s * 1000)
        config = {"cleanup.policy": "delete", "retention.ms": str(retention_ms), "segment.ms": "3600000"}
        await ensure_topic(self._brokers, TOPIC, config)
        place = TopicPartition(TOPIC, 0)
        begin = await self._brokers.run(offsets.positions, {place: offsets.EARLIEST})
        end = await self._brokers.run(offsets.positions, {place: offsets.LATEST})
        return begin[place].offset, end[place].offset
