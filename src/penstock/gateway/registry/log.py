"""The topic `_schemas`: followed from its beginning by a thread, appended to with a check of what came in between."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from penstock.gateway.kafka.delivery import Delivery
from penstock.gateway.registry.ordering import BASE_HEADER, WRITE_HEADER, AppendOrder, Entry

log = logging.getLogger(__name__)

TOPIC = "_schemas"
POLL_S = 0.2
RETRY_S = 1.0
BATCH_MAX = 500
BATCHES_AHEAD_MAX = 4
STOP_TIMEOUT_S = 5.0
APPEND_TIMEOUT_MS = 10_000

OnEntry = Callable[[Entry, bool], None]


class SchemaLog:
    """All methods belong to the event loop. `on_entry` is called there for each record, with whether it counts."""

    def __init__(self, client_settings: dict[str, Any], on_entry: OnEntry) -> None:
        self._settings = client_settings
        self._on_entry = on_entry
        self._order = AppendOrder()
        self._refused: set[str] = set()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._stopping = threading.Event()
        self._handed_over = threading.Semaphore(BATCHES_AHEAD_MAX)
        # Where the thread reads on; it alone uses this.
        self._next_offset = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._caught_up: asyncio.Future[None] | None = None
        self._thread: threading.Thread | None = None
        self._delivery: Delivery | None = None

    async def start(self) -> None:
        """Read the topic from its beginning; returns once its present end has been reached."""
        self._loop = asyncio.get_running_loop()
        self._caught_up = self._loop.create_future()
        producer = Producer(
            {
                **self._settings,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": APPEND_TIMEOUT_MS,
            }
        )
        self._delivery = Delivery(producer)
        self._thread = threading.Thread(target=self._follow, name="schemas-reader", daemon=True)
        self._thread.start()
        await self._caught_up

    async def stop(self) -> None:
        """End the reader and the writer."""
        self._stopping.set()
        for _ in range(BATCHES_AHEAD_MAX):
            self._handed_over.release()
        if self._delivery is not None:
            await self._delivery.stop(STOP_TIMEOUT_S)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_TIMEOUT_S)

    @property
    def stale_keys(self) -> list[bytes]:
        """Keys that must be written again; see `ordering`."""
        return self._order.stale_keys

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> bool:
        """Append records that were decided from all that has been read; True once they count and are read back.

        False when something came in between: nothing of it counts then, or only the first few of them.
        """
        assert self._delivery is not None
        write = uuid.uuid4().hex
        headers = [(BASE_HEADER, str(self._order.last_offset).encode()), (WRITE_HEADER, write.encode())]
        futures = [
            self._delivery.send(TOPIC, key=key, value=value, partition=0, headers=headers) for key, value in records
        ]
        offsets = [delivered.offset for delivered in await asyncio.gather(*futures)]
        await self._read_up_to(max(offsets))
        counts = write not in self._refused
        self._refused.discard(write)
        return counts

    async def repair(self) -> None:
        """Append what counts under each stale key, so that compaction keeps it."""
        keys = self._order.stale_keys
        if keys:
            log.warning("writing %d keys of %s again: two gateways wrote at the same time", len(keys), TOPIC)
            await self.append([(key, self._order.value(key)) for key in keys])

    async def _read_up_to(self, offset: int) -> None:
        assert self._loop is not None
        if self._order.last_offset >= offset:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((offset, future))
        await future

    def _take(self, entries: list[Entry], end_reached: bool) -> None:
        for entry in entries:
            counts = self._order.admit(entry)
            if not counts and entry.write:
                self._refused.add(entry.write)
            self._on_entry(entry, counts)
        self._handed_over.release()
        reached = self._order.last_offset
        for offset, future in self._waiting:
            if offset <= reached and not future.done():
                future.set_result(None)
        self._waiting = [(offset, future) for offset, future in self._waiting if offset > reached]
        if end_reached and self._caught_up is not None and not self._caught_up.done():
            self._caught_up.set_result(None)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow_once()
            except KafkaException as error:
                log.warning("reading %s failed and is begun again: %s", TOPIC, error)
                self._stopping.wait(RETRY_S)

    def _follow_once(self) -> None:
        consumer = Consumer(
            {
                **self._settings,
                "group.id": f"penstock-schemas-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
            }
        )
        try:
            start = self._next_offset if self._next_offset else OFFSET_BEGINNING
            consumer.assign([TopicPartition(TOPIC, 0, start)])
            while not self._stopping.is_set():
                first = consumer.poll(POLL_S)
                if first is not None:
                    self._hand_over([first, *consumer.consume(BATCH_MAX, 0)])
        finally:
            consumer.close()

    def _hand_over(self, messages: list[Message]) -> None:
        entries, end_reached = [], False
        for message in messages:
            error = message.error()
            if error is None:
                entries.append(_entry(message))
                self._next_offset = entries[-1].offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                end_reached = True
            else:
                log.warning("reading %s: %s", TOPIC, error.str())
        self._handed_over.acquire()
        assert self._loop is not None
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._take, entries, end_reached)


def _entry(message: Message) -> Entry:
    listed: list[tuple[str, bytes | None]] = list(message.headers() or ())  # type: ignore[arg-type]
    headers = {name: value for name, value in listed if value is not None}
    base = headers.get(BASE_HEADER, b"").decode("ascii", "replace")
    known = WRITE_HEADER in headers and base.removeprefix("-").isdigit()
    return Entry(
        message.offset() or 0,
        message.key(),
        message.value(),
        message.timestamp()[1],
        int(base) if known else None,
        headers[WRITE_HEADER].decode("ascii", "replace") if known else "",
    )
