"""Producing from an event loop: records go to librdkafka's queue, and delivery reports come back to the loop.

librdkafka has its own threads; its delivery reports wait for a poll. The loop polls once a millisecond while records
are in flight. A thread that blocked on them instead would compete with the loop for the interpreter's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

POLL_S = 0.001
NO_HEADERS: list[tuple[str, str | bytes | None]] = []

Headers = Sequence[tuple[str, str | bytes | None]]
OnDelivery = Callable[[KafkaError | None, Message], None]


class Delivered(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class QueueFull(Exception):
    """librdkafka's queue is full."""


class Delivery:
    """One producer, and the polling for its delivery reports. It belongs to the loop that it was created on."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._loop = asyncio.get_running_loop()
        self._under_way = 0
        self._polling = False
        self._drained: asyncio.Future[None] | None = None

    def send(
        self,
        topic: str,
        *,
        key: bytes | None = None,
        value: bytes | None = None,
        partition: int = -1,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> asyncio.Future[Delivered]:
        """Queue a record. The future resolves to its position or raises KafkaException; raises QueueFull at once."""
        future: asyncio.Future[Delivered] = self._loop.create_future()

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(KafkaException(error))
            else:
                future.set_result(delivered(message))

        self.produce(topic, value, key, partition, list(headers), timestamp_ms, on_delivery)
        return future

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: list[tuple[str, str | bytes | None]],
        timestamp_ms: int,
        on_delivery: OnDelivery,
    ) -> None:
        """Queue a record; `on_delivery` is called on the loop with the delivery report. Raises QueueFull at once."""

        def count(error: KafkaError | None, message: Message) -> None:
            self._under_way -= 1
            on_delivery(error, message)

        try:
            self._producer.produce(
                topic, value, key, partition, on_delivery=count, timestamp=timestamp_ms, headers=headers
            )
        except BufferError:
            raise QueueFull from None
        self._under_way += 1
        if not self._polling:
            self._polling = True
            self._loop.call_later(POLL_S, self._poll)

    async def stop(self, timeout_s: float) -> None:
        """Flush the queue, up to the timeout."""
        if self._under_way:
            self._drained = self._loop.create_future()
            await asyncio.wait([self._drained], timeout=timeout_s)

    def _poll(self) -> None:
        try:
            self._producer.poll(0)
        finally:
            # If a callback raises, the others must still be called.
            if self._under_way:
                self._loop.call_later(POLL_S, self._poll)
            else:
                self._polling = False
                if self._drained is not None and not self._drained.done():
                    self._drained.set_result(None)


def delivered(message: Message) -> Delivered:
    """The position of an acknowledged record."""
    return Delivered(message.topic() or "", message.partition() or 0, message.offset() or 0, message.timestamp()[1])
