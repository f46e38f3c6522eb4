"""The topic `_idempotency_keys`: appended to by all gateways, and read by each of them in the same order.

It is made, and read, when the first request with a key comes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.gateway.kafka.delivery import Delivery
from penstock.gateway.settings import GatewaySettings

log = logging.getLogger(__name__)

TOPIC = "_idempotency_keys"
REPLICATION_FACTOR_MAX = 3
NOTES_PER_KEY = 4
START_TIMEOUT_S = 30.0
APPEND_TIMEOUT_MS = 10_000
STOP_TIMEOUT_S = 5.0
POLL_S = 0.2
RETRY_S = 1.0
BATCH_MAX = 1000

OnRecord = Callable[[bytes, bytes | None, int], None]


class KeyLog:
    """All methods belong to the event loop; `on_record` is called there with key, value and timestamp, in order."""

    def __init__(self, settings: GatewaySettings, on_record: OnRecord) -> None:
        self._settings = settings
        self._on_record = on_record
        self._loop = asyncio.get_running_loop()
        self._read_to = -1
        # Where the thread reads on; it alone uses this, once it runs.
        self._next_offset = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._delivery: Delivery | None = None

    async def start(self) -> None:
        """Make the topic if there is none, and read the end of it that matters. Raises KafkaException."""
        begin, end = await asyncio.to_thread(self._ensure_topic)
        self._next_offset = max(begin, end - self._settings.idempotency_keys_max * NOTES_PER_KEY)
        self._read_to = self._next_offset - 1
        settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": APPEND_TIMEOUT_MS}
        self._delivery = Delivery(Producer(self._settings.client(**settings)))
        self._thread = threading.Thread(target=self._follow, name="idempotency-keys", daemon=True)
        self._thread.start()
        async with asyncio.timeout(START_TIMEOUT_S):
            await self._read_up_to(end - 1)

    async def stop(self) -> None:
        """End reader and writer."""
        self._stopping.set()
        if self._delivery is not None:
            await self._delivery.stop(STOP_TIMEOUT_S)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_TIMEOUT_S)

    async def append(self, key: bytes, value: bytes) -> None:
        """Append a record; returns when it and all before it have been read back. Raises KafkaException."""
        assert self._delivery is not None
        delivered = await self._delivery.send(TOPIC, key=key, value=value, partition=0)
        await self._read_up_to(delivered.offset)

    async def _read_up_to(self, offset: int) -> None:
        if self._read_to < offset:
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((offset, future))
            await future

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            self._on_record(message.key() or b"", message.value(), message.timestamp()[1])
            self._read_to = message.offset() or 0
        for offset, future in self._waiting:
            if offset <= self._read_to and not future.done():
                future.set_result(None)
        self._waiting = [each for each in self._waiting if each[0] > self._read_to]

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow_once()
            except KafkaException as error:
                log.warning("reading %s failed and is begun again: %s", TOPIC, error)
                self._stopping.wait(RETRY_S)

    def _follow_once(self) -> None:
        consumer = Consumer(
            self._settings.client(
                **{
                    "group.id": f"penstock-idempotency-{uuid.uuid4().hex}",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 100,
                }
            )
        )
        try:
            consumer.assign([TopicPartition(TOPIC, 0, self._next_offset)])
            while not self._stopping.is_set():
                messages = [each for each in consumer.consume(BATCH_MAX, 0.001) or _one(consumer) if not each.error()]
                if messages and not self._stopping.is_set():
                    self._next_offset = (messages[-1].offset() or 0) + 1
                    self._loop.call_soon_threadsafe(self._take, messages)
        finally:
            consumer.close()

    def _ensure_topic(self) -> tuple[int, int]:
        """Make the topic unless it is there; where it begins and ends."""
        admin = AdminClient(self._settings.client())
        metadata = admin.list_topics(timeout=START_TIMEOUT_S / 2)
        if TOPIC not in metadata.topics:
            retention_ms = int(self._settings.idempotency_s * 1000)
            config = {"cleanup.policy": "delete", "retention.ms": str(retention_ms), "segment.ms": "3600000"}
            copies = min(REPLICATION_FACTOR_MAX, len(metadata.brokers))
            try:
                admin.create_topics([NewTopic(TOPIC, 1, copies, config=config)])[TOPIC].result(START_TIMEOUT_S / 2)
            except KafkaException as error:
                # Another gateway may have been faster.
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
        consumer = Consumer(self._settings.client(**{"group.id": "penstock-idempotency"}))
        try:
            begin, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=START_TIMEOUT_S / 2)
            return begin, end
        finally:
            consumer.close()


def _one(consumer: Consumer) -> list[Message]:
    message = consumer.poll(POLL_S)
    return [] if message is None else [message]
