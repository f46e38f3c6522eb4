"""The internal topic of a coordinator: created on first use, and which of its partitions a key belongs to."""

from __future__ import annotations

import asyncio

from penstock.core.metadata.image import Image, PartitionState
from penstock.core.metadata.topics import NewTopic, TopicOutcome
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.controller.client import TopicCreator
from penstock.runtime.coordinator.shards import partition_for


class InternalTopic:
    """`wanted` is the topic to create; `factor_setting` names the setting to check when that is not possible."""

    def __init__(self, image: Image, creator: TopicCreator, wanted: NewTopic, factor_setting: str) -> None:
        self._image = image
        self._creator = creator
        self._wanted = wanted
        self._factor_setting = factor_setting
        self._creating: asyncio.Future[list[TopicOutcome]] | None = None

    def index_of(self, key: str) -> int:
        """The partition of a group or a transactional id; raises NOT_COORDINATOR while the topic does not exist."""
        name = self._wanted.name
        topic = self._image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"there is no {name} yet; ask FindCoordinator first")
        return partition_for(key, len(topic.partitions))

    async def leader_of(self, key: str) -> PartitionState:
        """The state of that partition; creates the topic on first use."""
        name = self._wanted.name
        topic = self._image.topics.get(name)
        if topic is None:
            await self._create()
            topic = self._image.topics.get(name)
            if topic is None:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} could not be created yet")
        return topic.partitions[partition_for(key, len(topic.partitions))]

    async def _create(self) -> None:
        if self._creating is None:
            self._creating = self._creator.create_topics([self._wanted])
        try:
            outcome = (await asyncio.shield(self._creating))[0]
        finally:
            self._creating = None
        if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{self._wanted.name} cannot be created: {outcome.message}; see {self._factor_setting}",
            )
