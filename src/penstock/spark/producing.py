"""Sends the rows of a task's Arrow batches as records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from penstock.spark import dead_letters

# The sizes of a batch header, of a record's varints at their longest, and of a header's lengths.
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 40
HEADER_OVERHEAD_BYTES = 10
COLUMNS = ("topic", "key", "value", "partition", "headers", "timestamp")
QUEUE_WAIT_SECONDS = 0.1


class OutgoingRecord(NamedTuple):
    """A row in the form that the producer accepts."""

    topic: str
    key: bytes | str | None
    value: bytes | str | None
    partition: int
    headers: list[tuple[str, bytes | None]] | None
    timestamp_ms: int


class Producer(Protocol):
    """The part of confluent-kafka's producer that is used here."""

    def produce(self, topic: str, **fields: Any) -> None: ...
    def poll(self, timeout: float) -> int: ...
    def flush(self, timeout: float = ...) -> int: ...


@dataclass(slots=True)
class WriteCounts:
    """How many records a task has written."""

    rows: int = 0
    dead_letters: int = 0


class DeliveryFailed(RuntimeError):
    """The cluster rejected a record, or did not acknowledge it in time."""


def rows_of(batches: Iterable[Any], topic: str | None) -> Iterator[OutgoingRecord]:
    """The rows of Arrow batches. `topic` is for rows without one; raises ValueError if both are missing."""
    for batch in batches:
        columns = {name: _values(batch, name) for name in COLUMNS if name in batch.schema.names}
        nothing = [None] * batch.num_rows
        for own, key, value, partition, headers, timestamp in zip(
            *(columns.get(name, nothing) for name in COLUMNS), strict=True
        ):
            target = topic if topic is not None else own
            if target is None:
                raise ValueError("a row has no topic: set the option topic, or a column topic that is never null")
            listed = [(each["key"], each["value"]) for each in headers] if headers else None
            yield OutgoingRecord(target, key, value, -1 if partition is None else partition, listed, timestamp or 0)


def _values(batch: Any, name: str) -> list[object]:
    column = batch.column(name)
    if name == "timestamp":
        import pyarrow as pa

        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    values: list[object] = column.to_pylist()
    return values


def size_of(record: OutgoingRecord) -> int:
    """An upper bound of the size in bytes of a batch with this record alone, uncompressed."""
    total = BATCH_OVERHEAD_BYTES + RECORD_OVERHEAD_BYTES
    for part in (record.key, record.value):
        if part is not None:
            total += len(part) if isinstance(part, bytes) else len(part.encode())
    for name, value in record.headers or ():
        total += HEADER_OVERHEAD_BYTES + len(name.encode()) + len(value or b"")
    return total


class RecordWriter:
    """Passes records to a producer and remembers failures.

    `size_limit` returns how large a topic's records may be; larger ones go to the dead-letter topic, which `prepare`
    creates. `finish` waits for every acknowledgement and raises DeliveryFailed if one is missing.
    """

    def __init__(self, producer: Producer, size_limit: Callable[[str], int], prepare: Callable[[str], object]) -> None:
        self._producer = producer
        self._size_limit = size_limit
        self._prepare = prepare
        self._prepared: set[str] = set()
        self._failure: str | None = None
        self.counts = WriteCounts()

    def write(self, records: Iterable[OutgoingRecord]) -> None:
        for record in records:
            limit = self._size_limit(record.topic)
            size = size_of(record)
            if size > limit:
                self._write_dead_letter(record, size, limit)
            else:
                self._send(record)
                self.counts.rows += 1
            if self._failure is not None:
                raise DeliveryFailed(self._failure)

    def finish(self, timeout_seconds: float) -> WriteCounts:
        left = self._producer.flush(timeout_seconds)
        if self._failure is not None:
            raise DeliveryFailed(self._failure)
        if left:
            raise DeliveryFailed(f"{left} records were not acknowledged within {timeout_seconds:.0f} s")
        return self.counts

    def _write_dead_letter(self, record: OutgoingRecord, size: int, limit: int) -> None:
        topic = dead_letters.topic_for(record.topic)
        if topic not in self._prepared:
            self._prepare(topic)
            self._prepared.add(topic)
        value = record.value.encode() if isinstance(record.value, str) else record.value
        self._send(
            OutgoingRecord(
                topic,
                record.key,
                value[: dead_letters.VALUE_BYTES_MAX] if value is not None else None,
                -1,
                dead_letters.too_large(record.topic, size, limit, record.headers),
                record.timestamp_ms,
            )
        )
        self.counts.dead_letters += 1

    def _send(self, record: OutgoingRecord) -> None:
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    partition=record.partition,
                    headers=record.headers,
                    timestamp=record.timestamp_ms,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(QUEUE_WAIT_SECONDS)
                continue
            self._producer.poll(0)
            return

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = f"{message.topic()} rejected a record: {error.str()} ({error.name()})"
