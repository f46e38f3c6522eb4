"""An administrator: creates and deletes topics, changes settings, asks any broker and tries again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from sim.wire import BACKOFF_S, PAUSE_MAX_S, Cluster, Failed
from support.history import History, Operation

TOPIC = 2
# Where a value of a topic's own comes from, in DescribeConfigs.
TOPIC_CONFIG = 1
TIMEOUT_MS = 3_000
SETTING = "retention.bytes"
# A request with one of these errors surely changed nothing; others may be about an answer that got lost.
WITHOUT_EFFECT = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REPLICATION_FACTOR})


class Admin:
    """Changes metadata and remembers what was promised."""

    def __init__(self, name: str, cluster: Cluster, history: History, replication_factor: int) -> None:
        self.name = name
        self._cluster = cluster
        self._history = history
        self._replication_factor = replication_factor
        self._topics: list[str] = []
        self._count = 0
        self.stopping = False
        self.is_done = False

    async def run(self, pause_s: float) -> None:
        """Make changes, with pauses, until told to stop."""
        random = self._cluster.random
        while not self.stopping:
            await asyncio.sleep(min(random.expovariate(1 / pause_s), PAUSE_MAX_S))
            choice = random.random()
            if choice < 0.4 or not self._topics:
                self._count += 1
                topic = f"{self.name}-{self._count}"
                if await self.create(topic, 1):
                    self._topics.append(topic)
            elif choice < 0.8:
                self._count += 1
                await self.alter(random.choice(self._topics), str(1_000_000 + self._count))
            else:
                topic = self._topics.pop(random.randrange(len(self._topics)))
                await self.delete(topic)
        self.is_done = True

    async def create(self, topic: str, partitions: int, settings: dict[str, str] | None = None) -> bool:
        """Create a topic; True once it surely exists."""
        configs = [CreatableTopicConfig(name, value) for name, value in (settings or {}).items()]
        wanted = CreatableTopic(topic, partitions, self._replication_factor, configs=configs)
        operation = self._history.change(self.name, f"topic {topic}", "exists")
        return await self._persist(
            operation,
            CreateTopicsRequest([wanted], TIMEOUT_MS),
            lambda response: response.topics[0].error_code,
            done_already=ErrorCode.TOPIC_ALREADY_EXISTS,
        )

    async def delete(self, topic: str) -> bool:
        """Delete a topic; True once it is surely gone."""
        operation = self._history.change(self.name, f"topic {topic}", None)
        return await self._persist(
            operation,
            DeleteTopicsRequest([DeleteTopicState(topic)], (), TIMEOUT_MS),
            lambda response: response.responses[0].error_code,
            done_already=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )

    async def alter(self, topic: str, value: str) -> bool:
        """Give a topic's setting a value; True once it surely has it."""
        operation = self._history.change(self.name, f"{SETTING} of {topic}", value)
        resource = AlterConfigsResource(TOPIC, topic, [AlterableConfig(SETTING, 0, value)])
        return await self._persist(
            operation,
            IncrementalAlterConfigsRequest([resource]),
            lambda response: response.responses[0].error_code,
        )

    async def _persist(
        self, operation: Operation, request: Any, code_of: Any, done_already: ErrorCode | None = None
    ) -> bool:
        """Try until it worked or cannot; what a first try may have done counts for the later ones."""
        maybe_done = False
        reason = ""
        while not self.stopping:
            try:
                response = await self._cluster.call(self._cluster.some_address(), request)
            except Failed as failed:
                maybe_done |= failed.maybe_done
                reason = str(failed)
            else:
                code = ErrorCode(code_of(response))
                reason = code.name
                if code == ErrorCode.NONE or (maybe_done and code == done_already):
                    self._history.ok(operation)
                    return True
                maybe_done |= code not in WITHOUT_EFFECT
            operation.attempts += 1
            await asyncio.sleep(BACKOFF_S * 2)
            await self._cluster.refresh([])
        self._history.unknown(operation, reason)
        return False

    async def try_once(self, request: Any) -> None:
        """Send something that may fail."""
        with contextlib.suppress(Failed):
            await self._cluster.call(self._cluster.some_address(), request)

    async def insist(self, topics: Sequence[str], settings: dict[str, str]) -> None:
        """Give topics settings as soon as they are there."""
        configs = [AlterableConfig(name, 0, value) for name, value in settings.items()]
        waiting = list(topics)
        while waiting and not self.stopping:
            await asyncio.sleep(BACKOFF_S * 5)
            request = IncrementalAlterConfigsRequest([AlterConfigsResource(TOPIC, topic, configs) for topic in waiting])
            with contextlib.suppress(Failed):
                answers = (await self._cluster.call(self._cluster.some_address(), request)).responses
                done = {answer.resource_name for answer in answers if answer.error_code == ErrorCode.NONE}
                waiting = [topic for topic in waiting if topic not in done]

    async def trim(self, topic: str, partition: int, offset: int) -> None:
        """Ask once for the deletion of what lies before an offset."""
        await self._cluster.refresh([topic])
        address = self._cluster.leader_address(topic, partition)
        if address is not None:
            wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, offset)])
            with contextlib.suppress(Failed):
                await self._cluster.call(address, DeleteRecordsRequest([wanted], TIMEOUT_MS))

    async def replicas_in_sync(self, topic: str) -> dict[int, list[int]]:
        """Wait until all replicas of a topic are in sync, and say who they are."""
        request = MetadataRequest([MetadataRequestTopic(name=topic)], False)
        while True:
            with contextlib.suppress(Failed):
                response = await self._cluster.call(self._cluster.some_address(), request)
                partitions = response.topics[0].partitions
                if partitions and all(sorted(one.replica_nodes) == sorted(one.isr_nodes) for one in partitions):
                    return {one.partition_index: list(one.replica_nodes) for one in partitions}
            await asyncio.sleep(BACKOFF_S)

    async def look_at_everything(self) -> None:
        """Read everything that was ever changed."""
        for thing in dict.fromkeys(
            operation.key
            for operation in self._history.operations
            if operation.kind.value == "change" and operation.process == self.name
        ):
            kind, _, topic = thing.rpartition(" ")
            if kind == "topic":
                await self._look(thing, self._topic_exists, topic)
            else:
                await self._look(thing, self._setting_of, topic)

    async def _look(self, thing: str, ask: Any, topic: str) -> None:
        operation = self._history.look(self.name, thing)
        while True:
            try:
                found, value = await ask(topic)
            except Failed:
                await asyncio.sleep(BACKOFF_S)
                continue
            if found:
                self._history.ok(operation, value)
            else:
                self._history.fail(operation, "there is nothing to look at")
            return

    async def _topic_exists(self, topic: str) -> tuple[bool, str | None]:
        request = MetadataRequest([MetadataRequestTopic(name=topic)], False)
        response = await self._cluster.call(self._cluster.some_address(), request)
        code = response.topics[0].error_code
        return True, None if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else "exists"

    async def _setting_of(self, topic: str) -> tuple[bool, str | None]:
        request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, topic, [SETTING])])
        response = await self._cluster.call(self._cluster.some_address(), request)
        result = response.results[0]
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False, None
        if result.error_code or not result.configs:
            raise Failed(f"error {result.error_code}")
        is_own = result.configs[0].config_source == TOPIC_CONFIG
        return True, result.configs[0].value if is_own else None
