"""Admin calls from an event loop, and a cache of topics' partition counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka._model import TopicPartitionInfo
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._topic import TopicDescription
from confluent_kafka.cimpl import NewTopic

from penstock.gateway.kafka.errors import ARGUMENT_ERRORS, checked_call, problem_of
from penstock.gateway.web.problem import Problem

REQUEST_TIMEOUT_S = 15.0
REMEMBER_S = 5.0
ASK_AHEAD_S = 1.0
SHOWN_S = 5.0
LOOK_AGAIN_S = 0.05
REMEMBERED_MAX = 50_000


async def result_of(future: Future[Any]) -> Any:
    """The result of an admin call; raises Problem if it failed."""
    try:
        return await asyncio.wrap_future(future)
    except (KafkaException, *ARGUMENT_ERRORS) as error:
        raise problem_of(error) from None


async def ask(
    call: Callable[..., Any], *arguments: Any, request_timeout: float = REQUEST_TIMEOUT_S, **named: Any
) -> Any:
    """The result of an admin call on a single thing, be it the cluster, a topic or a group; raises Problem if it fails.

    Calls that could be on several things have a future for each.
    """
    future = checked_call(call, *arguments, request_timeout=request_timeout, **named)
    if isinstance(future, dict):
        [future] = future.values()
    return await result_of(future)


def no_partition(topic: str, number: int) -> Problem:
    """404: the topic has no such partition."""
    return Problem(40402, f"topic {topic} has no partition {number}", "partitions count from 0")


class TopicPartitions(NamedTuple):
    """How many partitions a topic has, and which of them have a leader; all of them if none has."""

    total: int
    led: Sequence[int]


class Admin:
    """The cluster's topics. `client` is for calls that only one resource needs."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client
        self._partitions: dict[str, tuple[float, TopicPartitions]] = {}
        self._asking: dict[str, asyncio.Task[TopicPartitions]] = {}

    async def describe(self, topic: str) -> TopicDescription:
        """Describe a topic; raises Problem (404) if it does not exist."""
        return (await self.describe_all([topic]))[topic]

    async def describe_all(self, topics: list[str], *, operations: bool = False) -> dict[str, TopicDescription]:
        """Describe several topics, by name; with `operations` also the authorized operations."""
        futures = checked_call(
            self.client.describe_topics,
            checked_call(TopicCollection, topics),
            include_authorized_operations=operations,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        return {name: await result_of(future) for name, future in futures.items()}

    async def names(self) -> list[str]:
        """The names of all topics, sorted."""
        try:
            metadata = await asyncio.to_thread(self.client.list_topics, timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise problem_of(error) from None
        return sorted(metadata.topics)

    async def partition(self, topic: str, number: int) -> TopicPartitionInfo:
        """Describe a partition; raises Problem (404) if it does not exist."""
        for each in (await self.describe(topic)).partitions:
            if each.id == number:
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
        # There may be nobody waiting for the result; the next caller looks it up again and gets the error.
        if not done.cancelled():
            done.exception()

    async def _look_up(self, topic: str) -> TopicPartitions:
        described = (await self.describe(topic)).partitions
        led = [each.id for each in described if each.leader is not None]
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
    ) -> TopicDescription | None:
        """Create a topic; -1 stands for the cluster's defaults. Returns when brokers know it, or after a while."""
        topic = checked_call(NewTopic, name, partitions, replication_factor, config=dict(configs))
        await ask(self.client.create_topics, [topic], validate_only=validate)
        self.forget(name)
        return None if validate else await self.shown(name, lambda topic: topic is not None)

    async def shown(self, name: str, is_shown: Callable[[TopicDescription | None], bool]) -> TopicDescription | None:
        """Wait until the brokers' metadata reflects a change of a topic; returns the last description."""
        deadline = time.monotonic() + SHOWN_S
        while True:
            try:
                topic: TopicDescription | None = await self.describe(name)
            except Problem as problem:
                if problem.status != 404:
                    raise
                topic = None
            if is_shown(topic) or time.monotonic() >= deadline:
                return topic
            await asyncio.sleep(LOOK_AGAIN_S)

    async def delete(self, names: Iterable[str]) -> None:
        """Delete topics and their records."""
        futures = checked_call(self.client.delete_topics, list(names), request_timeout=REQUEST_TIMEOUT_S)
        for name, future in futures.items():
            self.forget(name)
            await result_of(future)
            await self.shown(name, lambda topic: topic is None)
