"""Where the dead letters of share groups go: each to the leader of its partition, here or on another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from penstock.config.node import NodeSettings
from penstock.core.metadata.image import Image, ResourceType
from penstock.core.metadata.topic_names import INTERNAL_TOPICS
from penstock.core.metadata.topics import NewTopic
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.brokers import Brokers
from penstock.runtime.controller.client import TopicCreator
from penstock.runtime.peer import PeerLost
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

ALL = -1
TIMEOUT_MS = 15_000
# A topic must say that groups may write dead letters to it.
ENABLED = "errors.deadletterqueue.group.enable"
RESERVED = "__"


class DeadLetterDestination(NamedTuple):
    """A partition for dead letters and its leader."""

    name: str
    topic_id: Uuid
    partition: int
    leader: int


class DeadLetterTopics:
    """`take_producer_id` allocates an id that no other producer has."""

    def __init__(
        self,
        brokers: Brokers,
        image: Image,
        creator: TopicCreator,
        take_producer_id: Callable[[], Awaitable[int]],
        settings: Callable[[], NodeSettings],
    ) -> None:
        self.take_producer_id = take_producer_id
        self._brokers = brokers
        self._image = image
        self._creator = creator
        self._settings = settings

    async def place_of(self, name: str, partition: int) -> DeadLetterDestination:
        """Where the dead letters of a partition go; raises ApiError if they may not go there, or not now."""
        if name.startswith(RESERVED) or name in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is an internal topic")
        prefix = self._settings().errors_deadletterqueue_topic_name_prefix
        if not name.startswith(prefix):
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name} does not begin with {prefix!r}; see errors.deadletterqueue.topic.name.prefix",
            )
        if name not in self._image.topics:
            await self._create(name)
        topic = self._image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name} yet")
        if self._image.overrides(ResourceType.TOPIC, name).get(ENABLED) != "true":
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} does not have {ENABLED}=true")
        index = partition % len(topic.partitions)
        leader = topic.partitions[index].leader
        if leader < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{index} has no leader")
        return DeadLetterDestination(name, topic.topic_id, index, leader)

    async def _create(self, name: str) -> None:
        if not self._settings().errors_deadletterqueue_auto_create_topics_enable:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {name}; see errors.deadletterqueue.auto.create.topics.enable",
            )
        (outcome,) = await self._creator.create_topics([NewTopic(name, -1, -1, configs={ENABLED: "true"})])
        if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ApiError(outcome.error, f"{name} cannot be created: {outcome.message}")

    async def write(self, place: DeadLetterDestination, batches: Sequence[bytes]) -> list[ErrorCode]:
        """Append batches in this order with acks=all; what became of each. One that is there already counts as done."""
        return [*await asyncio.gather(*(self._write(place, batch) for batch in batches))]

    async def _write(self, place: DeadLetterDestination, batch: bytes) -> ErrorCode:
        data = PartitionProduceData(place.partition, memoryview(bytearray(batch)))
        topic = TopicProduceData(place.name, place.topic_id, [data])
        request = ProduceRequest(None, ALL, TIMEOUT_MS, [topic])
        try:
            response: ProduceResponse = await self._brokers.ask(place.leader, request, timeout_ms=TIMEOUT_MS)
        except PeerLost:
            return ErrorCode.NETWORK_EXCEPTION
        except ApiError as error:
            return error.code
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        return ErrorCode.NONE if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER else code
