"""Reads a partition from an offset, for requests without a group."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from penstock.gateway.kafka.corrupt_records import RecordConverter
from penstock.gateway.kafka.errors import checked_call, problem_of
from penstock.gateway.kafka.memory import SMALL_BUFFERS
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem, too_busy
from penstock.gateway.web.quotas import UNKNOWN, CallerQuota
from penstock.runtime.fair_turns import FairTurns

WAITING_PER_READER_MAX = 8
WATERMARKS_TIMEOUT_S = 10.0
STEP_S = 0.5
START_GRACE_S = 5.0
# Records that cannot be decompressed or parsed, in one read.
SKIPS_MAX = 5


class Watermarks(NamedTuple):
    """The offset of the first record, and the next offset to be written."""

    beginning: int
    end: int


class ReaderThreads:
    """The threads of all reads of a gateway, and how many reads wait for them."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.threads = ThreadPoolExecutor(settings.readers_max, thread_name_prefix="reader")
        # Reads that wait for records have their own threads, or a few of them would block all others.
        self.waiting_threads = ThreadPoolExecutor(settings.long_polls_max, thread_name_prefix="long-poll")
        self.long_polls = CallerQuota("long polls", settings, "long_polls")
        self.turns: FairTurns[str] = FairTurns(settings.readers_max)

    async def stop(self) -> None:
        """Start no more reads."""
        for threads in (self.threads, self.waiting_threads):
            threads.shutdown(wait=False, cancel_futures=True)


class Readers:
    """A few consumers that requests share; up to `idle_max` of them, or all, stay open."""

    def __init__(self, settings: GatewaySettings, shared: ReaderThreads, idle_max: int | None) -> None:
        self._settings = settings
        self._shared = shared
        self._idle: list[Consumer] = []
        self._idle_max = settings.readers_max if idle_max is None else idle_max
        self._stopped = False

    async def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        limit: int,
        *,
        bytes_max: int | None = None,
        timeout_ms: int = 0,
        caller: str = UNKNOWN,
    ) -> list[ReadRecord]:
        """Up to `limit` records from an offset on. With a timeout, wait that long for the first one."""
        bytes_max = min(bytes_max or self._settings.read_bytes_max, self._settings.read_bytes_max)
        start = checked_call(TopicPartition, topic, partition, offset)
        async with self._turn(caller, timeout_ms) as threads:
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    threads, self._read, start, limit, bytes_max, timeout_ms / 1000
                )
            except KafkaException as error:
                raise await self._explained(error, topic, partition, offset) from None

    @contextlib.asynccontextmanager
    async def _turn(self, caller: str, timeout_ms: int) -> AsyncIterator[ThreadPoolExecutor]:
        """The threads to run a read on, once it is the caller's turn; 429 if too many of its reads are waiting."""
        if timeout_ms > 0:
            self._shared.long_polls.take(caller)
            try:
                yield self._shared.waiting_threads
            finally:
                self._shared.long_polls.release(caller)
            return
        turns = self._shared.turns
        if turns.waiting_of(caller) >= self._settings.readers_max * WAITING_PER_READER_MAX:
            limit = self._settings.named("readers_max")
            raise too_busy(f"{WAITING_PER_READER_MAX} reads of one caller wait for each of {limit}")
        async with turns.turn(caller):
            yield self._shared.threads

    async def watermarks(self, topic: str, partition: int) -> Watermarks:
        """A partition's beginning and end offsets."""
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._shared.threads, self._watermarks, topic, partition
            )
        except KafkaException as error:
            raise problem_of(error) from None

    async def stop(self) -> None:
        """Close the consumers."""
        self._stopped = True
        while self._idle:
            await asyncio.to_thread(self._idle.pop().close)

    async def _explained(self, error: KafkaException, topic: str, partition: int, offset: int) -> Problem:
        if error.args[0].name() not in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            return problem_of(error)
        beginning, end = await self.watermarks(topic, partition)
        return Problem(
            40004,
            f"offset {offset} is not in partition {partition} of {topic}",
            f"use an offset from {beginning} to {end}",
        )

    def _take(self) -> Consumer:
        # Threads race here: another one may pop the consumer first.
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        return Consumer(
            self._settings.client(
                **{
                    "group.id": "penstock-gateway-reader",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "allow.auto.create.topics": False,
                    "fetch.wait.max.ms": 100,
                    **SMALL_BUFFERS,
                }
            )
        )

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        """A consumer for one piece of work; it is closed if that fails, because its state is then unknown."""
        consumer = self._take()
        try:
            yield consumer
        except BaseException:
            consumer.close()
            raise
        if len(self._idle) < self._idle_max and not self._stopped:
            self._idle.append(consumer)
        else:
            consumer.close()

    def _watermarks(self, topic: str, partition: int) -> Watermarks:
        with self._consumer() as consumer:
            return Watermarks(
                *consumer.get_watermark_offsets(
                    checked_call(TopicPartition, topic, partition), timeout=WATERMARKS_TIMEOUT_S
                )
            )

    def _read(self, start: TopicPartition, limit: int, bytes_max: int, timeout_s: float) -> list[ReadRecord]:
        with self._consumer() as consumer:
            consumer.assign([start])
            records = _records(consumer, limit, bytes_max, timeout_s, self._settings.budgets.record_bytes_max)
            consumer.unassign()
            return records


def _records(
    consumer: Consumer, limit: int, bytes_max: int, timeout_s: float, record_bytes_max: int
) -> list[ReadRecord]:
    records: list[ReadRecord] = []
    started = time.monotonic()
    size, at_end, skips = 0, False, 0
    converter = RecordConverter(consumer, record_bytes_max)
    while len(records) < limit and size < bytes_max and skips < SKIPS_MAX:
        # Until the end offset is known, wait for the brokers for some time even if the caller does not want to wait.
        patience_s = (timeout_s if at_end else max(timeout_s, START_GRACE_S)) - (time.monotonic() - started)
        if (records and at_end) or patience_s <= 0:
            break
        message = consumer.poll(min(STEP_S, patience_s))
        if message is None:
            continue
        error = message.error()
        record = converter.record(message)
        if record is not None:
            at_end = False
            if records and size + record.size > bytes_max:
                break
            records.append(record)
            size += record.size
            skips += error is not None
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:
            at_end = True
    return records


def offset_number(text: str) -> int:
    """An offset as callers write it: a number, earliest or latest."""
    names = {"earliest": OFFSET_BEGINNING, "beginning": OFFSET_BEGINNING, "latest": OFFSET_END, "end": OFFSET_END}
    if text in names:
        return names[text]
    if text.isascii() and text.isdigit() and int(text) < 1 << 63:
        return int(text)
    raise Problem(40001, f"{text[:40]!r} is not an offset", "use a number, earliest or latest")
