"""Producing from an event loop: records go to librdkafka's queue, and futures end when the brokers have answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

POLL_S = 0.1

Headers = Sequence[tuple[str, bytes | None]]


class Delivered(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class QueueFull(Exception):
    """More records wait for the brokers than may wait."""


class Delivery:
    """One producer, and the thread that hears of its deliveries.

    The thread collects what it hears and wakes the loop once for many records.
    """

    def __init__(self, producer: Producer, name: str) -> None:
        self._producer = producer
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._heard: list[tuple[asyncio.Future[Delivered], KafkaError | None, Message]] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self._thread.start()

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
        """Queue a record. The future ends with where it is, or with KafkaException; QueueFull at once."""
        future: asyncio.Future[Delivered] = self._loop.create_future()

        def heard(error: KafkaError | None, message: Message) -> None:
            self._hear(future, error, message)

        try:
            self._producer.produce(
                topic,
                value,
                key,
                partition,
                on_delivery=heard,
                timestamp=timestamp_ms,
                headers=list(headers),
            )
        except BufferError:
            raise QueueFull from None
        return future

    def join(self, timeout_s: float) -> None:
        """Give what is queued some time, then end the thread."""
        self._producer.flush(timeout_s)
        self._stopping.set()
        self._thread.join(timeout_s)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(POLL_S)

    def _hear(self, future: asyncio.Future[Delivered], error: KafkaError | None, message: Message) -> None:
        with self._lock:
            first = not self._heard
            self._heard.append((future, error, message))
        if first and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        with self._lock:
            heard, self._heard = self._heard, []
        for future, error, message in heard:
            if future.done():
                continue
            if error is not None:
                future.set_exception(KafkaException(error))
            else:
                future.set_result(
                    Delivered(
                        message.topic() or "",
                        message.partition() or 0,
                        message.offset() or 0,
                        message.timestamp()[1],
                    )
                )
