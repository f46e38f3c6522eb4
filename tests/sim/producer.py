"""An idempotent producer with Kafka's rules: acks=all, several batches in flight, retries in order.

Batches of a partition keep their sequence numbers whatever happens. When one fails, nothing new is sent to that
partition until all those in flight are answered; then everything unacknowledged goes out again in its order. So a
broker that returns OUT_OF_ORDER_SEQUENCE, or does not know the producer, has forgotten something, or appended what
another batch should have come before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from penstock.core.share.delays import AFTER
from penstock.model.errors import ErrorCode
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.records import Record, build_batch
from sim.wire import BACKOFF_S, RETRIABLE, VERSIONS, Cluster, Failed
from support.history import History, Operation

IN_FLIGHT_MAX = 5
PRODUCE_TIMEOUT_MS = 2_000
WAITING_MAX = 20
DELAY_MAX_MS = 3_000
LATE_S_MAX = 1.5
# The header by which a record without a value is told from others.
VALUE = "value"


@dataclass(slots=True, eq=False)
class Batch:
    """Records under one sequence number."""

    first_sequence: int
    operations: list[Operation]
    tried: bool = False


@dataclass(slots=True, eq=False)
class Lane:
    """One partition of a producer."""

    topic: str
    partition: int
    next_sequence: int = 0
    # Where those in flight were sent.
    address: tuple[str, int] | None = None
    waiting: deque[Batch] = field(default_factory=deque)
    flying: deque[Batch] = field(default_factory=deque)
    # Batches that were answered with a failure; they go first.
    failed: list[Batch] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.flying or self.failed)


class Producer:
    """Sends numbered values to the partitions of one topic until told to stop."""

    def __init__(self, name: str, cluster: Cluster, history: History, topic: str, partitions: int, now_ms: Any) -> None:
        self.name = name
        self._cluster = cluster
        self._history = history
        self._now_ms = now_ms
        self._topic = topic
        self._producer_id = -1
        self._producer_epoch = -1
        self._lanes = [Lane(topic, partition) for partition in range(partitions)]
        self._count = 0
        # How many keys its records have.
        self.keys = 1
        # Which part of its batches arrives a second time.
        self.repeated_part = 0.0
        # Which part of them has no value.
        self.tombstone_part = 0.0
        # Whether it sends nothing for now.
        self.is_quiet = False
        # Which part of them share groups get later.
        self.delayed_part = 0.0
        # How much older than their batches they are.
        self.record_age_ms = 0
        self._key_random = Random(f"{name} keys")
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_drained(self) -> bool:
        """Everything sent was acknowledged."""
        return self._stopping and all(lane.is_idle for lane in self._lanes)

    @property
    def unanswered(self) -> int:
        return sum(len(lane.waiting) + len(lane.flying) + len(lane.failed) for lane in self._lanes)

    def stop(self) -> None:
        """Send nothing new; what is on its way is tried until it is answered."""
        self._stopping = True

    async def run(self, pause_s: float) -> None:
        """Produce with random pauses around `pause_s`."""
        await self._take_id()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._drive(lane)) for lane in self._lanes]
        random = self._cluster.random
        while not self._stopping:
            await asyncio.sleep(random.expovariate(1 / pause_s))
            lane = random.choice(self._lanes)
            # A client's memory is bounded, too.
            if not self._stopping and not self.is_quiet and len(lane.waiting) < WAITING_MAX:
                self._submit(lane, random.randint(1, 3))

    def _submit(self, lane: Lane, count: int) -> None:
        operations = []
        for _ in range(count):
            self._count += 1
            key = f"k{self._key_random.randrange(self.keys)}"
            operation = self._history.send(self.name, lane.name, f"{self.name}:{self._count}", key)
            operation.is_tombstone = bool(self.tombstone_part) and self._key_random.random() < self.tombstone_part
            operations.append(operation)
        lane.waiting.append(Batch(lane.next_sequence, operations))
        lane.next_sequence += count
        lane.wake.set()

    async def _take_id(self) -> None:
        while not self._stopping:
            try:
                response = await self._cluster.call(self._cluster.some_address(), InitProducerIdRequest(None, 60_000))
            except Failed:
                await asyncio.sleep(BACKOFF_S)
                continue
            if response.error_code == 0:
                self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
                return
            await asyncio.sleep(BACKOFF_S)

    async def _drive(self, lane: Lane) -> None:
        while True:
            lane.wake.clear()
            if lane.failed and not lane.flying:
                lane.failed.sort(key=lambda batch: batch.first_sequence)
                lane.waiting.extendleft(reversed(lane.failed))
                lane.failed.clear()
                await self._cluster.refresh([self._topic])
            if lane.waiting and not lane.failed and len(lane.flying) < IN_FLIGHT_MAX:
                await self._send_next(lane)
                continue
            await lane.wake.wait()

    async def _send_next(self, lane: Lane) -> None:
        address = self._cluster.leader_address(lane.topic, lane.partition)
        try:
            if address is None:
                raise Failed("no leader is known", maybe_done=False)
            wire = await self._cluster.wire(address)
        except Failed:
            await asyncio.sleep(BACKOFF_S)
            await self._cluster.refresh([self._topic])
            return
        if lane.failed:
            return
        if lane.flying and lane.address != address:
            # One broker at a time, or an older batch could arrive after more newer ones than brokers remember.
            await lane.wake.wait()
            return
        lane.address = address
        batch = lane.waiting.popleft()
        if batch.tried:
            for operation in batch.operations:
                operation.attempts += 1
        batch.tried = True
        lane.flying.append(batch)
        request = self._request(lane, batch)
        sent = wire.send(request, self.name)
        if self.repeated_part and self._cluster.random.random() < self.repeated_part:
            delay_s = self._cluster.random.uniform(0.5, LATE_S_MAX)
            late = self._cluster.deliver_late(address, request, delay_s, VERSIONS["ProduceRequest"])
            asyncio.get_running_loop().create_task(late)
        asyncio.get_running_loop().create_task(self._await_answer(lane, batch, wire, sent))

    def _request(self, lane: Lane, batch: Batch) -> ProduceRequest:
        now_ms = self._now_ms() - self.record_age_ms
        records = [
            Record(
                index,
                now_ms,
                (operation.record_key or "").encode(),
                None if operation.is_tombstone else operation.value.encode(),
                self._headers(operation),
            )
            for index, operation in enumerate(batch.operations)
        ]
        data = build_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=batch.first_sequence,
        )
        topic = TopicProduceData(name=lane.topic, partition_data=[PartitionProduceData(lane.partition, data)])
        return ProduceRequest(None, -1, PRODUCE_TIMEOUT_MS, [topic])

    def _headers(self, operation: Operation) -> tuple[tuple[str, bytes], ...]:
        if operation.is_tombstone:
            return ((VALUE, operation.value.encode()),)
        if not self.delayed_part:
            return ()
        # A batch that is sent again is the same.
        random = Random(f"{operation.value} delay")
        is_delayed = random.random() < self.delayed_part
        return ((AFTER, b"%d" % random.randrange(DELAY_MAX_MS)),) if is_delayed else ()

    async def _await_answer(self, lane: Lane, batch: Batch, wire: Any, sent: asyncio.Future[Any]) -> None:
        try:
            response = await self._cluster.answer(wire, sent)
        except Failed:
            lane.flying.remove(batch)
            lane.failed.append(batch)
        else:
            lane.flying.remove(batch)
            self._answered(lane, batch, response.responses[0].partition_responses[0])
        lane.wake.set()

    def _answered(self, lane: Lane, batch: Batch, answer: Any) -> None:
        code = answer.error_code
        if code == ErrorCode.NONE:
            for index, operation in enumerate(batch.operations):
                self._history.ok(operation, answer.base_offset + index if answer.base_offset >= 0 else None)
            return
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            for operation in batch.operations:
                self._history.ok(operation)
            return
        if code not in RETRIABLE:
            name = ErrorCode(code).name
            self._history.notice("producer-refused", f"{self.name} {lane.name} sequence {batch.first_sequence}: {name}")
            for operation in batch.operations:
                self._history.unknown(operation, name)
            return
        lane.failed.append(batch)
