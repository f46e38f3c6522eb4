"""Follows a single-partition topic that gateways share: the first one creates it, and a thread of each reads it."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.client.operations import topics
from penstock.client.operations.routing import Refused
from penstock.gateway.kafka.broker_requests import BrokerWire

log = logging.getLogger(__name__)

POLL_S = 0.2
RETRY_S = 1.0
BATCH_MAX = 500
BATCHES_AHEAD_MAX = 4
STOP_TIMEOUT_S = 5.0
REPLICATION_FACTOR_MAX = 3

OnMessages = Callable[[list[Message]], None]


async def ensure_topic(brokers: BrokerWire, topic: str, config: Mapping[str, str]) -> int:
    """Create the topic unless it exists; returns its partition count. Raises Problem."""
    existing = (await brokers.run(topics.describe_topics, [topic]))[topic]
    if not isinstance(existing, Refused):
        return len(existing.partitions)
    cluster = await brokers.run(topics.describe_cluster)
    # Another gateway that starts at the same time may create it.
    await brokers.run(topics.ensure_topic, topic, 1, min(REPLICATION_FACTOR_MAX, len(cluster.brokers)), config)
    return 1


class TopicFollower:
    """Calls `on_messages` on the event loop with all messages, in order. All methods belong to the loop.

    When reading fails, it resumes at the next offset.
    """

    def __init__(self, client_settings: dict[str, Any], topic: str, on_messages: OnMessages) -> None:
        self._settings = client_settings
        self._topic = topic
        self._on_messages = on_messages
        self._read_to = -1
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._stopping = threading.Event()
        # Limits the batches queued on the loop: the thread waits for one of these.
        self._handed_over = threading.Semaphore(BATCHES_AHEAD_MAX)
        # The next offset to read; only the thread uses it once it runs.
        self._next_offset = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._caught_up: asyncio.Future[None] | None = None
        self._thread: threading.Thread | None = None

    async def start(self, offset: int) -> None:
        """Read from an offset, or from the first one that exists; returns once the current end has been reached."""
        self._loop = asyncio.get_running_loop()
        self._caught_up = self._loop.create_future()
        self._next_offset = offset
        self._read_to = offset - 1
        self._thread = threading.Thread(target=self._follow, name=f"{self._topic}-reader", daemon=True)
        self._thread.start()
        await self._caught_up

    async def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        for _ in range(BATCHES_AHEAD_MAX):
            self._handed_over.release()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_TIMEOUT_S)

    async def read_up_to(self, offset: int) -> None:
        """Wait until the record at this offset has been handed over."""
        assert self._loop is not None
        if self._read_to < offset:
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((offset, future))
            await future

    def _take(self, messages: list[Message], end_reached: bool) -> None:
        self._on_messages(messages)
        self._handed_over.release()
        if messages:
            self._read_to = messages[-1].offset() or 0
        for offset, future in self._waiting:
            if offset <= self._read_to and not future.done():
                future.set_result(None)
        self._waiting = [each for each in self._waiting if each[0] > self._read_to]
        if end_reached and self._caught_up is not None and not self._caught_up.done():
            self._caught_up.set_result(None)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow_once()
            except KafkaException as error:
                log.warning("reading %s failed, retrying: %s", self._topic, error)
                self._stopping.wait(RETRY_S)

    def _follow_once(self) -> None:
        consumer = Consumer(
            {
                **self._settings,
                "group.id": f"penstock{self._topic}-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
            }
        )
        try:
            consumer.assign([TopicPartition(self._topic, 0, self._next_offset)])
            while not self._stopping.is_set():
                first = consumer.poll(POLL_S)
                if first is not None:
                    self._hand_over([first, *consumer.consume(BATCH_MAX, 0)])
        finally:
            consumer.close()

    def _hand_over(self, found: list[Message]) -> None:
        messages, end_reached = [], False
        for message in found:
            error = message.error()
            if error is None:
                messages.append(message)
                self._next_offset = (message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                end_reached = True
            else:
                log.warning("reading %s: %s", self._topic, error.str())
        self._handed_over.acquire()
        assert self._loop is not None
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._take, messages, end_reached)
