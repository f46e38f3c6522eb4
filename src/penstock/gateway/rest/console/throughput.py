"""Records written per second, computed from the end offsets of all partitions when requested."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import NamedTuple

from penstock.client.address import Address
from penstock.client.operations.offsets import LATEST
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.rest.console.cluster_snapshot import ClusterSnapshot, ClusterSnapshots, is_internal
from penstock.model.ids import TopicPartition
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

INTERVAL_S = 2.0
POINTS_MAX = 450
BUSIEST_MAX = 8
PARTITIONS_MAX = 50_000
CONSUMER = -1


class RatePoint(NamedTuple):
    """Records written per second up to a point in time."""

    at_ms: int
    records_per_s: float


class Throughput:
    """Rates of the last fifteen minutes, sampled on request; internal topics are left out."""

    def __init__(self, snapshots: ClusterSnapshots, wire: BrokerWire) -> None:
        self._snapshots = snapshots
        self._wire = wire
        self._ends: dict[TopicPartition, int] = {}
        self._sampled = 0.0
        self._lock = asyncio.Lock()
        self.points: deque[RatePoint] = deque(maxlen=POINTS_MAX)
        self.busiest: list[tuple[str, float]] = []

    async def sample(self) -> None:
        """Read the end offsets, unless that was done a moment ago."""
        async with self._lock:
            now = time.monotonic()
            if now - self._sampled < INTERVAL_S * 0.9:
                return
            ends = await self.ends(await self._snapshots.latest())
            elapsed_s = time.monotonic() - self._sampled
            if self._ends and elapsed_s < INTERVAL_S * 10:
                self._note(ends, elapsed_s)
            # A partition whose leader did not answer keeps its last end, or its records would be counted twice.
            self._ends |= ends
            self._sampled = time.monotonic()

    async def ends(self, snapshot: ClusterSnapshot) -> dict[TopicPartition, int]:
        """The end offsets of all partitions whose leaders answer."""
        wanted: dict[Address, dict[str, list[int]]] = {}
        count = 0
        for name, partitions in snapshot.topics.items():
            for number, partition in enumerate(partitions):
                leader = snapshot.brokers.get(partition.leader)
                if leader is None or leader.fenced or count >= PARTITIONS_MAX:
                    continue
                count += 1
                wanted.setdefault(leader.address, {}).setdefault(name, []).append(number)
        answers = await asyncio.gather(*(self._ask(address, topics) for address, topics in wanted.items()))
        return {partition: end for answer in answers for partition, end in answer.items()}

    async def _ask(self, address: Address, topics: dict[str, list[int]]) -> dict[TopicPartition, int]:
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            topics=[
                ListOffsetsTopic(name, [ListOffsetsPartition(number, -1, LATEST) for number in numbers])
                for name, numbers in topics.items()
            ],
        )
        answers: dict[Address, ListOffsetsResponse] = await self._wire.ask_each([address], request)
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            for response in answers.values()
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code and each.offset >= 0
        }

    def _note(self, ends: dict[TopicPartition, int], elapsed_s: float) -> None:
        by_topic: dict[str, int] = {}
        for partition, end in ends.items():
            if is_internal(partition[0]):
                continue
            grown = end - self._ends.get(partition, 0)
            if grown > 0:
                by_topic[partition[0]] = by_topic.get(partition[0], 0) + grown
        rates = sorted(((name, count / elapsed_s) for name, count in by_topic.items()), key=lambda each: -each[1])
        self.busiest = rates[:BUSIEST_MAX]
        total = sum(rate for _, rate in rates)
        self.points.append(RatePoint(time.time_ns() // 1_000_000, round(total, 2)))
