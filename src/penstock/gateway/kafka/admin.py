"""The cluster's topics, and a cache of their partition counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.client.operations import topics
from penstock.client.operations.routing import Refused
from penstock.client.operations.topics import Partition, Topic
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.errors import problem_of
from penstock.gateway.web.problem import Problem

REMEMBER_S = 5.0
ASK_AHEAD_S = 1.0
SHOWN_S = 5.0
LOOK_AGAIN_S = 0.05
REMEMBERED_MAX = 50_000


def no_partition(topic: str, number: int) -> Problem:
    """404: the topic has no such partition."""
    return Problem(40402, f"topic {topic} has no partition {number}", "partitions count from 0")


class TopicPartitions(NamedTuple):
    """How many partitions a topic has, and which of them have a leader; all of them if none has."""

    total: int
    led: Sequence[int]


class Admin:
    """The cluster's topics. `brokers` is for operations that only one resource needs."""

    def __init__(self, brokers: BrokerWire) -> None:
        self.brokers = brokers
        self._partitions: dict[str, tuple[float, TopicPartitions]] = {}
        self._asking: dict[str, asyncio.Task[TopicPartitions]] = {}

    async def describe(self, topic: str) -> Topic:
        """Describe a topic; raises Problem (404) if it does not exist."""
        return (await self.describe_all([topic]))[topic]

    async def describe_all(self, names: Sequence[str], *, with_operations: bool = False) -> dict[str, Topic]:
        """Describe several topics, by name; with `with_operations` also the authorized operations."""
        described = await self.brokers.run(topics.describe_topics, names, with_operations=with_operations)
        found: dict[str, Topic] = {}
        for name, topic in described.items():
            if isinstance(topic, Refused):
                raise problem_of(topic)
            found[name] = topic
        return found

    async def names(self) -> list[str]:
        """The names of all topics, sorted."""
        return [topic.name for topic in await self.brokers.run(topics.list_topics)]

    async def partition(self, topic: str, number: int) -> Partition:
        """Describe a partition; raises Problem (404) if it does not exist."""
        for each in (await self.describe(topic)).partitions:
            if each.partition == number:
                return each
        raise no_partition(topic, number)

    async def check_partition(self, topic: str, number: int) -> None:
        """Raises Problem (404) if a topic has no such partition, judging by its cached partition count."""
        if number >= await self.partition_count(topic):
            raise no_partition(topic, number)

    async def partition_count(self, topic: str) -> int:
        """A topic's partition count, cached for some seconds; raises Problem if the topic does not exist."""
        return (await self.partitions(topic)).total

    async def partitions(self, topic: str) -> TopicPartitions:
        """A topic's partitions, cached for some seconds; raises Problem if the topic does not exist."""
        known = self.known_partitions(topic)
        return known if known is not None else await asyncio.shield(self._ask(topic))

    def known_partitions(self, topic: str) -> TopicPartitions | None:
        """The cached partitions, without waiting; shortly before they expire, they are looked up again."""
        known = self._partitions.get(topic)
        if known is None:
            return None
        left_s = known[0] - time.monotonic()
        if left_s < ASK_AHEAD_S:
            if left_s <= 0:
                return None
            self._ask(topic)
        return known[1]

    def _ask(self, topic: str) -> asyncio.Task[TopicPartitions]:
        """One lookup for all concurrent callers."""
        asking = self._asking.get(topic)
        if asking is None:
            asking = self._asking[topic] = asyncio.create_task(self._look_up(topic), name=f"look up {topic}")
            asking.add_done_callback(lambda done: self._asked(topic, done))
        return asking

    def _asked(self, topic: str, done: asyncio.Task[TopicPartitions]) -> None:
        if self._asking.get(topic) is done:
            del self._asking[topic]
        # There may be no caller waiting for the result; the next caller looks it up again and gets the error.
        if not done.cancelled():
            done.exception()

    async def _look_up(self, topic: str) -> TopicPartitions:
        described = (await self.describe(topic)).partitions
        led = [each.partition for each in described if each.leader >= 0]
        found = TopicPartitions(len(described), led or range(len(described)))
        # The result of a lookup that began before a change must not be cached after it.
        if self._asking.get(topic) is asyncio.current_task():
            if len(self._partitions) >= REMEMBERED_MAX:
                self._partitions.clear()
            self._partitions[topic] = (time.monotonic() + REMEMBER_S, found)
        return found

    def forget(self, topic: str) -> None:
        """Look the topic up again the next time."""
        self._partitions.pop(topic, None)
        self._asking.pop(topic, None)

    async def create(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str], *, validate: bool = False
    ) -> Topic | None:
        """Create a topic; -1 stands for the cluster's defaults. Returns when brokers know it, or after a while."""
        await self.brokers.run(
            topics.create_topic, name, partitions, replication_factor, configs, validate_only=validate
        )
        self.forget(name)
        return None if validate else await self.shown(name, lambda topic: topic is not None)

    async def shown(self, name: str, is_shown: Callable[[Topic | None], bool]) -> Topic | None:
        """Wait until the brokers' metadata reflects a change of a topic; returns the last description."""
        deadline = time.monotonic() + SHOWN_S
        while True:
            try:
                topic: Topic | None = await self.describe(name)
            except Problem as problem:
                if problem.status != 404:
                    raise
                topic = None
            if is_shown(topic) or time.monotonic() >= deadline:
                return topic
            await asyncio.sleep(LOOK_AGAIN_S)

    async def delete(self, name: str) -> None:
        """Delete a topic and its records."""
        await self.brokers.run(topics.delete_topic, name)
        self.forget(name)
        await self.shown(name, lambda topic: topic is None)
