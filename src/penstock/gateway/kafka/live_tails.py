"""Live tails: new records of topics, for as long as the client stays connected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.gateway.kafka.corrupt_records import RecordConverter
from penstock.gateway.kafka.errors import checked_call, problem_of
from penstock.gateway.kafka.memory import SMALL_BUFFERS
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.quotas import CallerQuota

# A batch is written in one step, which blocks the loop.
BATCH_MAX = 200
BATCH_BYTES_MAX = 128 * 1024
STEP_S = 0.5


def tail_quota(settings: GatewaySettings) -> CallerQuota:
    """The quota of live tails of one gateway."""
    return CallerQuota("tails", settings, "tails")


class LiveTails:
    """Consumers that follow topics outside any group."""

    def __init__(self, settings: GatewaySettings, quota: CallerQuota) -> None:
        """`quota` is shared by all callers."""
        self._settings = settings
        self._threads = ThreadPoolExecutor(settings.tails_max, thread_name_prefix="tail")
        self._quota = quota
        self._stopping = False
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, topic: str, partitions: list[int], offset: int, caller: str) -> AsyncIterator[list[ReadRecord]]:
        """Batches of records; now and then an empty one, so that disconnects are detected. Raises 429 at once."""
        self._quota.take(caller)
        try:
            consumer = Consumer(
                self._settings.client(
                    **{
                        "group.id": "penstock-gateway-tail",
                        "enable.auto.commit": False,
                        "auto.offset.reset": "earliest",
                        "allow.auto.create.topics": False,
                        "fetch.wait.max.ms": 100,
                        **SMALL_BUFFERS,
                    }
                )
            )
            checked_call(
                consumer.assign, [checked_call(TopicPartition, topic, partition, offset) for partition in partitions]
            )
        except BaseException:
            self._quota.release(caller)
            raise
        return self._batches(consumer, caller)

    async def _batches(self, consumer: Consumer, caller: str) -> AsyncIterator[list[ReadRecord]]:
        loop = asyncio.get_running_loop()
        pending: asyncio.Future[list[ReadRecord]] | None = None
        converter = RecordConverter(consumer, self._settings.budgets.record_bytes_max)
        try:
            # The first batch is empty: once it is taken, closing the generator cleans up.
            yield []
            while not self._stopping:
                pending = loop.run_in_executor(self._threads, _batch, consumer, converter)
                yield await asyncio.shield(pending)
        except KafkaException as error:
            raise problem_of(error) from None
        finally:
            task = loop.create_task(self._close(consumer, pending, caller), name="tail-close")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close(self, consumer: Consumer, pending: asyncio.Future[list[ReadRecord]] | None, caller: str) -> None:
        """Close a consumer once no thread polls it."""
        if pending is not None:
            await asyncio.wait([pending])
            if not pending.cancelled():
                pending.exception()
        await asyncio.get_running_loop().run_in_executor(self._threads, consumer.close)
        self._quota.release(caller)

    def end(self) -> None:
        """Make all tails stop shortly."""
        self._stopping = True

    async def stop(self) -> None:
        """Wait until their consumers are closed."""
        self._stopping = True
        if self._closing:
            await asyncio.wait(self._closing)


def _batch(consumer: Consumer, converter: RecordConverter) -> list[ReadRecord]:
    records: list[ReadRecord] = []
    size = 0
    message = consumer.poll(STEP_S)
    while message is not None:
        record = converter.record(message)
        if record is not None:
            records.append(record)
            size += record.size
        message = consumer.poll(0) if len(records) < BATCH_MAX and size < BATCH_BYTES_MAX else None
    return records
