"""The clients under test, each behind the same two calls: send these rows, read so many.

Settings are the clients' defaults but for addresses, codec and, where a test sends large records, size limits. Readers
assign partition 0 themselves, so no group is needed.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
import warnings
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from support.tools import find_kcat, want

with warnings.catch_warnings():
    # kafka-python reads its resources in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]
    from kafka import TopicPartition as KafkaPythonTopicPartition
    from kafka.codec import has_snappy  # type: ignore[import-untyped]
    from kafka.errors import UnsupportedCodecError  # type: ignore[import-untyped]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_TIMEOUT_SECONDS = 1000
SIZE_LIMIT = 12_000_000


class Row(NamedTuple):
    """A record as an application sees it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


Rows = Sequence[Row]


class Refused(Exception):
    """The broker's answer to a record; `name` is the error as the client names it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Driver(Protocol):
    """A client."""

    name: str

    def produce(self, servers: str, topic: str, rows: Rows, codec: str = "none", *, large: bool = False) -> None:
        """Send rows to partition 0 in order and wait until all are acknowledged; raises Refused."""

    def consume(self, servers: str, topic: str, count: int) -> list[Row]:
        """The first `count` records of partition 0."""


class ConfluentKafka:
    """librdkafka through confluent-kafka."""

    name = "confluent-kafka"

    def produce(self, servers: str, topic: str, rows: Rows, codec: str = "none", *, large: bool = False) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": servers, "compression.type": codec, "log_level": 0}
        if large:
            settings["message.max.bytes"] = SIZE_LIMIT
        producer = Producer(settings)
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                failures.append(error)

        for row in rows:
            headers: Any = list(row.headers) or None
            while True:
                try:
                    producer.produce(topic, row.value, row.key, 0, headers=headers, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
        assert producer.flush(READ_TIMEOUT_SECONDS) == 0
        if failures:
            raise Refused(failures[0].name())

    def consume(self, servers: str, topic: str, count: int) -> list[Row]:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers", "log_level": 0})
        consumer.assign([TopicPartition(topic, 0, 0)])
        rows: list[Row] = []
        deadline = time.monotonic() + READ_TIMEOUT_SECONDS
        while len(rows) < count and time.monotonic() < deadline:
            for message in consumer.consume(min(10_000, count - len(rows)), 1.0):
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                headers: Any = message.headers() or ()
                rows.append(Row(message.key(), message.value(), tuple(headers)))
        consumer.close()
        return rows


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"

    def produce(self, servers: str, topic: str, rows: Rows, codec: str = "none", *, large: bool = False) -> None:
        _skip_without_snappy(codec)
        limits = {"max_request_size": SIZE_LIMIT} if large else {}
        compression = None if codec == "none" else codec
        producer = KafkaProducer(bootstrap_servers=servers, compression_type=compression, **limits)
        try:
            futures = [producer.send(topic, row.value, row.key, list(row.headers) or None, partition=0) for row in rows]
            producer.flush(READ_TIMEOUT_SECONDS)
            for future in futures:
                if future.failed():
                    raise Refused(type(future.exception).__name__)
                assert future.succeeded()
        finally:
            producer.close()

    def consume(self, servers: str, topic: str, count: int) -> list[Row]:
        consumer = KafkaConsumer(bootstrap_servers=servers)
        rows: list[Row] = []
        try:
            partition = KafkaPythonTopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            deadline = time.monotonic() + READ_TIMEOUT_SECONDS
            while len(rows) < count and time.monotonic() < deadline:
                for records in consumer.poll(1000).values():
                    rows += [Row(record.key, record.value, tuple(record.headers)) for record in records]
        except UnsupportedCodecError:
            _skip_without_snappy("snappy")
            raise
        finally:
            consumer.close()
        return rows[:count]


def _skip_without_snappy(codec: str) -> None:
    if codec == "snappy" and not has_snappy():
        pytest.skip(want("python-snappy", "kafka-python needs it for this codec; pip install python-snappy"))


class AioKafka:
    """aiokafka."""

    name = "aiokafka"

    def produce(self, servers: str, topic: str, rows: Rows, codec: str = "none", *, large: bool = False) -> None:
        asyncio.run(self._produce(servers, topic, rows, codec, large))

    async def _produce(self, servers: str, topic: str, rows: Rows, codec: str, large: bool) -> None:
        limits = {"max_request_size": SIZE_LIMIT} if large else {}
        compression = None if codec == "none" else codec
        async with AIOKafkaProducer(bootstrap_servers=servers, compression_type=compression, **limits) as producer:
            futures = [
                await producer.send(topic, row.value, row.key, partition=0, headers=list(row.headers) or None)
                for row in rows
            ]
            for outcome in await asyncio.gather(*futures, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise Refused(type(outcome).__name__)

    def consume(self, servers: str, topic: str, count: int) -> list[Row]:
        return asyncio.run(self._consume(servers, topic, count))

    async def _consume(self, servers: str, topic: str, count: int) -> list[Row]:
        rows: list[Row] = []
        async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
            partition = AioTopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            deadline = time.monotonic() + READ_TIMEOUT_SECONDS
            while len(rows) < count and time.monotonic() < deadline:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    rows += [Row(record.key, record.value, tuple(record.headers)) for record in records]
        return rows[:count]


class Kcat:
    """kcat, which takes text with separators; one run of it sends rows that are alike in headers and nulls."""

    name = "kcat"
    key_end = "\x1f"
    row_end = "\x1e"

    def produce(self, servers: str, topic: str, rows: Rows, codec: str = "none", *, large: bool = False) -> None:
        for (headers, without_value), alike in groupby(rows, lambda row: (row.headers, row.value is None)):
            command = ["-P", "-t", topic, "-p", "0", "-z", codec, "-K", self.key_end, "-D", self.row_end]
            command += [part for name, value in headers for part in ("-H", f"{name}={value.decode()}")]
            command += ["-Z"] if without_value else []
            command += ["-X", f"message.max.bytes={SIZE_LIMIT}"] if large else []
            self.run(servers, *command, stdin=b"".join(self._lines(alike)))

    def _lines(self, rows: Iterator[Row]) -> Iterator[bytes]:
        for row in rows:
            key = b"" if row.key is None else row.key + self.key_end.encode()
            yield key + (row.value or b"") + self.row_end.encode()

    def consume(self, servers: str, topic: str, count: int) -> list[Row]:
        shape = r"%K %S [%h]\n%k%s\n"
        data = self.run(servers, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-q", "-f", shape)
        rows = []
        position = 0
        while position < len(data):
            end = data.index(b"\n", position)
            found = re.fullmatch(rb"(-?\d+) (-?\d+) \[(.*)\]", data[position:end])
            assert found is not None, data[position:end]
            key_size, value_size = int(found[1]), int(found[2])
            value_at = end + 1 + max(0, key_size)
            key = data[end + 1 : value_at] if key_size >= 0 else None
            position = value_at + max(0, value_size)
            value = data[value_at:position] if value_size >= 0 else None
            headers = [part.split(b"=", 1) for part in found[3].split(b",") if part]
            rows.append(Row(key, value, tuple((name.decode(), content) for name, content in headers)))
            position += 1
        return rows

    def run(self, servers: str, *arguments: str, stdin: bytes = b"") -> bytes:
        """kcat's output; raises Refused with its last words."""
        command = [str(find_kcat()), "-b", servers, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=READ_TIMEOUT_SECONDS, check=False)
        if done.returncode != 0 or b"Delivery failed" in done.stderr:
            raise Refused(done.stderr.decode())
        return done.stdout


DRIVERS: dict[str, Driver] = {driver.name: driver for driver in (ConfluentKafka(), KafkaPython(), AioKafka(), Kcat())}


def driver_params() -> list[Any]:
    """Every client as a parameter, by name; kcat's tests are skipped where it cannot be had."""
    return [
        pytest.param(driver, id=name, marks=[pytest.mark.kcat] if name == "kcat" else [])
        for name, driver in DRIVERS.items()
    ]
