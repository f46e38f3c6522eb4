"""Publishing: batches many small requests into few produce requests, and answers each."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import NamedTuple

from confluent_kafka import KafkaException, Producer

from penstock.client.rotation import rotation_for
from penstock.gateway.kafka.admin import Admin, TopicPartitions
from penstock.gateway.kafka.delivery import NO_HEADERS, Delivered, Delivery, Headers, OnDelivery, QueueFull
from penstock.gateway.kafka.errors import ARGUMENT_ERRORS, problem_of
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.problem import Problem, too_busy

MESSAGE_BYTES_MAX = 10 * 1024 * 1024 + 100_000
FLUSH_S = 5.0
RECORDS_AT_ONCE = 1000


class OutgoingRecord(NamedTuple):
    """A record to publish; with partition -1 the key determines the partition, or round robin if there is no key."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int = -1
    timestamp_ms: int = 0


class Publisher:
    """One idempotent producer for all requests.

    Keys are partitioned as by Kafka's Java client; without a key, records go round robin to partitions with a leader.
    """

    def __init__(self, settings: GatewaySettings, admin: Admin) -> None:
        self._settings = settings
        self._admin = admin
        self._rotation = rotation_for(settings.client_properties, settings.linger_ms)

    @cached_property
    def _delivery(self) -> Delivery:
        """The producer's delivery; created with the first record, since many callers never publish."""
        settings = self._settings
        properties = {
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": settings.linger_ms,
            "message.timeout.ms": settings.publish_timeout_ms,
            "queue.buffering.max.messages": settings.queued_records_max,
            "message.max.bytes": MESSAGE_BYTES_MAX,
        }
        return Delivery(Producer(settings.client(**properties)))

    async def publish(self, topic: str, record: OutgoingRecord) -> Delivered:
        """Publish one record and wait for all in-sync replicas; raises Problem if it failed."""
        partitions = self._admin.known_partitions(topic) or await self._admin.partitions(topic)
        future = self._send(topic, partitions, record)
        if isinstance(future, Problem):
            raise future
        try:
            return await future
        except KafkaException as error:
            self._admin.forget(topic)
            raise problem_of(error) from None

    async def publish_all(self, topic: str, records: list[OutgoingRecord]) -> list[Delivered | Problem]:
        """Publish records and wait for all of them; returns the outcomes in the same order."""
        partitions = self._admin.known_partitions(topic) or await self._admin.partitions(topic)
        futures = []
        for index, record in enumerate(records):
            if index % RECORDS_AT_ONCE == RECORDS_AT_ONCE - 1:
                # Let other requests run between the records of a large one.
                await asyncio.sleep(0)
            futures.append(self._send(topic, partitions, record))
        return [future if isinstance(future, Problem) else await self._outcome(topic, future) for future in futures]

    def offer(self, topic: str, record: OutgoingRecord, on_delivery: OnDelivery) -> bool:
        """Queue a record at once; `on_delivery` is called with the delivery report.

        Returns False if that is not possible without waiting or an error: then use `publish`.
        """
        partitions = self._admin.known_partitions(topic)
        if partitions is None or record.partition >= partitions.total:
            return False
        headers = list(record.headers) if record.headers else NO_HEADERS
        try:
            self._delivery.produce(
                topic,
                record.value,
                record.key,
                self._partition(topic, partitions, record),
                headers,
                record.timestamp_ms,
                on_delivery,
            )
        except (QueueFull, KafkaException, *ARGUMENT_ERRORS):
            return False
        return True

    def forget(self, topic: str) -> None:
        """Drop the cached partition count of a topic after a failed delivery."""
        self._admin.forget(topic)

    def _partition(self, topic: str, partitions: TopicPartitions, record: OutgoingRecord) -> int:
        if record.partition >= 0 or record.key or self._rotation is None:
            return record.partition
        return self._rotation.choose(topic, partitions.led, len(record.value or b""))

    def _send(
        self, topic: str, partitions: TopicPartitions, record: OutgoingRecord
    ) -> asyncio.Future[Delivered] | Problem:
        if record.partition >= partitions.total:
            fix = f"use 0 to {partitions.total - 1}, or leave it out"
            return Problem(40402, f"topic {topic} has no partition {record.partition}", fix)
        try:
            return self._delivery.send(
                topic,
                key=record.key,
                value=record.value,
                partition=self._partition(topic, partitions, record),
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
            )
        except QueueFull:
            return too_busy("too many records are waiting for the brokers")
        except (KafkaException, *ARGUMENT_ERRORS) as error:
            return problem_of(error)

    async def _outcome(self, topic: str, future: asyncio.Future[Delivered]) -> Delivered | Problem:
        try:
            return await future
        except KafkaException as error:
            self._admin.forget(topic)
            return problem_of(error)

    async def stop(self) -> None:
        """Flush the queue for a short time, and stop."""
        if "_delivery" in self.__dict__:
            await self._delivery.stop(FLUSH_S)
