"""Consumer groups from outside: their offsets, and how far they are behind."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from penstock.gateway.kafka.admin import REQUEST_TIMEOUT_S, settled
from penstock.gateway.kafka.failures import asked, problem_of


class CommittedOffset(NamedTuple):
    """How far a group has come in a partition, and where the partition ends."""

    topic: str
    partition: int
    offset: int
    end: int

    @property
    def lag(self) -> int:
        """How many records are still to be read."""
        return max(0, self.end - self.offset)


class Groups:
    """Calls about groups that need no membership."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Set where a group reads on. Groups with members do this themselves: 409."""
        place = asked(ConsumerGroupTopicPartitions, group, [asked(TopicPartition, topic, partition, offset)])
        futures = asked(self._client.alter_consumer_group_offsets, [place], request_timeout=REQUEST_TIMEOUT_S)
        answer = await settled(futures[group])
        for each in answer.topic_partitions or []:
            if each.error is not None:
                raise problem_of(each.error)

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets a group has committed, by topic and partition; empty for one that is not there."""
        futures = asked(
            self._client.list_consumer_group_offsets,
            [asked(ConsumerGroupTopicPartitions, group)],
            request_timeout=REQUEST_TIMEOUT_S,
        )
        answer = await settled(futures[group])
        return {
            (each.topic, each.partition): each.offset
            for each in answer.topic_partitions or []
            if each.offset is not None and each.offset >= 0
        }

    async def lags(self, group: str) -> list[CommittedOffset]:
        """How far a group is behind, by partition."""
        committed = await self.committed(group)
        ends = await self.offsets(list(committed), OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return [
            CommittedOffset(topic, partition, offset, ends.get((topic, partition), offset))
            for (topic, partition), offset in sorted(committed.items())
        ]

    async def offsets(self, partitions: list[tuple[str, int]], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        """Offsets of partitions by time, beginning or end; without those that could not be asked."""
        if not partitions:
            return {}
        wanted = {TopicPartition(topic, partition): spec for topic, partition in partitions}
        futures: dict[TopicPartition, Future[Any]] = asked(
            self._client.list_offsets, wanted, request_timeout=REQUEST_TIMEOUT_S
        )
        found = {}
        for place, future in futures.items():
            try:
                found[place.topic, place.partition] = int((await asyncio.wrap_future(future)).offset)
            except KafkaException:
                continue
        return found
