"""Offsets and lag of consumer groups, without joining them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from penstock.gateway.kafka.admin import REQUEST_TIMEOUT_S, ask
from penstock.gateway.kafka.errors import checked_call, problem_of


class CommittedOffset(NamedTuple):
    """A group's committed offset in a partition, and the partition's end offset."""

    topic: str
    partition: int
    offset: int
    end: int

    @property
    def lag(self) -> int:
        """How many records the group has not read."""
        return max(0, self.end - self.offset)


class Groups:
    """Calls about groups that need no membership."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit a group's offsets in one request. Groups with members commit themselves: 409."""
        places = [checked_call(TopicPartition, *place, offset) for place, offset in sorted(offsets.items())]
        wanted = checked_call(ConsumerGroupTopicPartitions, group, places)
        answer = await ask(self._client.alter_consumer_group_offsets, [wanted])
        for each in answer.topic_partitions or []:
            if each.error is not None:
                raise problem_of(each.error)

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """A group's committed offsets by topic and partition; empty if there is no such group."""
        place = checked_call(ConsumerGroupTopicPartitions, group)
        answer = await ask(self._client.list_consumer_group_offsets, [place])
        return {
            (each.topic, each.partition): each.offset
            for each in answer.topic_partitions or []
            if each.offset is not None and each.offset >= 0
        }

    async def lags(self, group: str) -> list[CommittedOffset]:
        """A group's lag by partition."""
        committed = await self.committed(group)
        ends = await self.offsets(list(committed), OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return [
            CommittedOffset(topic, partition, offset, ends.get((topic, partition), offset))
            for (topic, partition), offset in sorted(committed.items())
        ]

    async def offsets(self, partitions: list[tuple[str, int]], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        """Offsets of partitions by timestamp, beginning or end; partitions whose leader did not answer are left out."""
        if not partitions:
            return {}
        wanted = {TopicPartition(topic, partition): spec for topic, partition in partitions}
        futures: dict[TopicPartition, Future[Any]] = checked_call(
            self._client.list_offsets, wanted, request_timeout=REQUEST_TIMEOUT_S
        )
        found = {}
        for place, future in futures.items():
            try:
                found[place.topic, place.partition] = int((await asyncio.wrap_future(future)).offset)
            except KafkaException:
                continue
        return found
