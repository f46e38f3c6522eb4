"""The topic `_schemas`: read from its beginning by a thread, and appended to with optimistic concurrency control."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Message, Producer

from penstock.gateway.kafka.delivery import Delivery
from penstock.gateway.kafka.records import headers_of
from penstock.gateway.kafka.topic_follower import TopicFollower
from penstock.gateway.registry.ordering import BASE_HEADER, WRITE_HEADER, AppendOrder, OrderedRecord

log = logging.getLogger(__name__)

TOPIC = "_schemas"
STOP_TIMEOUT_S = 5.0
APPEND_TIMEOUT_MS = 10_000
RECORD_BYTES_MAX = 32 * 1024 * 1024

OnEntry = Callable[[OrderedRecord, bool], None]


class SchemaLog:
    """All methods belong to the event loop. `on_entry` is called there for each record, with whether it counts."""

    def __init__(self, client_settings: dict[str, Any], on_entry: OnEntry) -> None:
        self._settings = client_settings
        self._on_entry = on_entry
        self._order = AppendOrder()
        self._refused: set[str] = set()
        self._follower = TopicFollower(client_settings, TOPIC, self._take)
        self._delivery: Delivery | None = None

    async def start(self) -> None:
        """Read the topic from its beginning; returns once its current end has been reached."""
        producer = Producer(
            {
                **self._settings,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": APPEND_TIMEOUT_MS,
                # Schemas are limited by the registry and records by the topic; this must not restrict them further.
                "message.max.bytes": RECORD_BYTES_MAX,
            }
        )
        self._delivery = Delivery(producer)
        await self._follower.start(0)

    async def stop(self) -> None:
        """Stop the reader and the writer."""
        if self._delivery is not None:
            await self._delivery.stop(STOP_TIMEOUT_S)
        await self._follower.stop()

    @property
    def stale_keys(self) -> list[bytes]:
        """Keys that must be written again; see `ordering`."""
        return self._order.stale_keys

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> bool:
        """Append records that were decided from all records read so far; True once they count and are read back.

        False if another record came in between: then none of them counts, or only the first few.
        """
        assert self._delivery is not None
        write = uuid.uuid4().hex
        headers = [(BASE_HEADER, str(self._order.last_offset).encode()), (WRITE_HEADER, write.encode())]
        futures = [
            self._delivery.send(TOPIC, key=key, value=value, partition=0, headers=headers) for key, value in records
        ]
        offsets = [delivered.offset for delivered in await asyncio.gather(*futures)]
        await self._follower.read_up_to(max(offsets))
        counts = write not in self._refused
        self._refused.discard(write)
        return counts

    async def repair(self) -> None:
        """Append the valid value of each stale key again, so that compaction keeps it."""
        keys = self._order.stale_keys
        if keys:
            log.warning("writing %d keys of %s again: two gateways wrote at the same time", len(keys), TOPIC)
            await self.append([(key, self._order.value(key)) for key in keys])

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            entry = _entry(message)
            counts = self._order.admit(entry)
            if not counts and entry.write:
                self._refused.add(entry.write)
            self._on_entry(entry, counts)


def _entry(message: Message) -> OrderedRecord:
    headers = {name: value for name, value in headers_of(message) or () if value is not None}
    base = headers.get(BASE_HEADER, b"").decode("ascii", "replace")
    known = WRITE_HEADER in headers and re.fullmatch(r"-?\d{1,19}", base) is not None
    return OrderedRecord(
        message.offset() or 0,
        message.key(),
        message.value(),
        message.timestamp()[1],
        int(base) if known else None,
        headers[WRITE_HEADER].decode("ascii", "replace") if known else "",
    )
