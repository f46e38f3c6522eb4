"""The group coordinator of this broker: finds the shard of a group, asks it, and keeps its topic there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.config.node import NodeSettings
from penstock.core.contract import ProducerIdentity
from penstock.core.group.contract import Effects, GroupSettings, Token
from penstock.core.group.shard import GroupShard
from penstock.core.metadata.image import Image, PartitionState, ResourceType
from penstock.core.metadata.topics import NewTopic
from penstock.core.replica.producer_state import EndMarker
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.controller_client import TopicCreator
from penstock.runtime.coordinator import Coordinator, Seat, as_coordinator_error
from penstock.runtime.coordinator_counters import GroupCounters
from penstock.runtime.env import Env
from penstock.runtime.internal_topic import InternalTopic
from penstock.runtime.partitions import Partitions
from penstock.wire.messages.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord

OFFSETS_TOPIC = "__consumer_offsets"

T = TypeVar("T")
Question = Callable[[GroupShard, Token, int], Effects]


class ImageTopics:
    """The cluster's topics as coordinators see them."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, or None when there is no such topic."""
        found = self._image.topics.get(topic)
        return len(found.partitions) if found is not None else None

    def topic_id(self, topic: str) -> Uuid | None:
        """The id of a topic."""
        found = self._image.topics.get(topic)
        return found.topic_id if found is not None else None

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic, or None once it was deleted."""
        found = self._image.topics_by_id.get(topic_id)
        return found.name if found is not None else None

    def names(self) -> Sequence[str]:
        """Every topic's name."""
        return list(self._image.topics)

    def racks(self, topic: str, partition: int) -> frozenset[str]:
        """The racks that hold a replica of a partition."""
        state = self._image.partition(topic, partition)
        brokers = self._image.brokers
        holders = [brokers[replica] for replica in state.replicas if replica in brokers] if state else []
        return frozenset(broker.registration.rack for broker in holders if broker.registration.rack)


class Groups:
    """What handlers ask about groups."""

    def __init__(
        self, env: Env, image: Image, controller: TopicCreator, partitions: Partitions, settings: NodeSettings
    ) -> None:
        self._env = env
        self._image = image
        self._settings = settings
        wanted = NewTopic(
            OFFSETS_TOPIC,
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.offsets_topic_segment_bytes),
            },
        )
        self._topic = InternalTopic(image, controller, wanted, "offsets.topic.replication.factor")
        # When a topic is removed its name has left the image already.
        self._names = {topic.topic_id: topic.name for topic in image.topics.values()}
        topics = ImageTopics(image)
        group_settings = _group_settings(settings)

        def configs(group: str) -> dict[str, str]:
            return image.overrides(ResourceType.GROUP, group)

        self.counters = GroupCounters()
        self.coordinator: Coordinator[GroupShard] = Coordinator(
            env,
            "group",
            OFFSETS_TOPIC,
            lambda: GroupShard(group_settings, topics, env.random, configs),
            self.counters.count,
        )
        for partition in partitions:
            self.coordinator.take(partition)
        partitions.on_leader(self.coordinator.take)
        partitions.on_resigned(self.coordinator.leave)
        env.spawn(self._expire_offsets(), "offset expiry")

    # Where a group lives.

    async def leader_of(self, group: str) -> PartitionState:
        """The partition of the offsets topic a group belongs to; creates the topic when it is first needed."""
        return await self._topic.leader_of(group)

    def _seat(self, group: str) -> Seat[GroupShard]:
        return self.coordinator.seat(self._topic.index_of(group))

    # Asking.

    def ask(self, group: str, question: Question) -> asyncio.Future[Any]:
        """Put a request to a group's shard; done when it is answered and what it changed is committed."""
        seat = self._seat(group)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        seat.perform(question(seat.shard, answer, self._env.now_ms()))
        return answer

    async def read(self, group: str, query: Callable[[GroupShard], T]) -> T:
        """Look something up; nothing is shown that could still be lost."""
        seat = self._seat(group)
        result = query(seat.shard)
        settled = seat.settled()
        if settled is not None:
            try:
                await settled
            except ApiError as error:
                raise as_coordinator_error(error) from error
        return result

    def end_transaction(self, index: int, producer: ProducerIdentity, marker: EndMarker) -> asyncio.Future[None]:
        """End a transaction in one partition of the offsets topic; done when that is committed."""
        return self.coordinator.seat(index).end_transaction(producer, marker)

    def read_all(self, query: Callable[[GroupShard], Sequence[T]]) -> list[T]:
        """The same question to every shard here; raises while one is being loaded."""
        if self.coordinator.is_loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being loaded")
        return [row for seat in self.coordinator.seats() for row in query(seat.shard)]

    def close(self) -> None:
        """Coordinate no longer: everybody who waits is told to look elsewhere."""
        self.coordinator.close()

    # Following the cluster.

    def follow(self, records: Sequence[Any]) -> None:
        """Tell the shards which topics came, grew or went."""
        changed: set[str] = set()
        deleted: set[str] = set()
        for record in records:
            if isinstance(record, TopicRecord):
                changed.add(record.name)
                self._names[record.topic_id] = record.name
            elif isinstance(record, PartitionRecord):
                topic = self._image.topics_by_id.get(record.topic_id)
                if topic is not None:
                    changed.add(topic.name)
            elif isinstance(record, RemoveTopicRecord):
                name = self._names.pop(record.topic_id, None)
                if name is not None:
                    deleted.add(name)
        if changed or deleted:
            now_ms = self._env.now_ms()
            for seat in self.coordinator.seats():
                seat.perform(seat.shard.topics_changed(changed, deleted, now_ms))

    async def _expire_offsets(self) -> None:
        while True:
            await asyncio.sleep(self._settings.offsets_retention_check_interval_ms / 1000)
            for seat in self.coordinator.seats():
                seat.perform(seat.shard.expire_offsets(self._env.now_ms()))
                await asyncio.sleep(0)


def _group_settings(settings: NodeSettings) -> GroupSettings:
    return GroupSettings(
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        max_size=settings.group_max_size,
        consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
        consumer_min_session_timeout_ms=settings.group_consumer_min_session_timeout_ms,
        consumer_max_session_timeout_ms=settings.group_consumer_max_session_timeout_ms,
        consumer_heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
        consumer_min_heartbeat_interval_ms=settings.group_consumer_min_heartbeat_interval_ms,
        consumer_max_heartbeat_interval_ms=settings.group_consumer_max_heartbeat_interval_ms,
        consumer_max_size=settings.group_consumer_max_size,
        consumer_assignors=tuple(settings.group_consumer_assignors),
        consumer_migration_policy=settings.group_consumer_migration_policy.lower(),
        consumer_regex_refresh_interval_ms=settings.group_consumer_regex_refresh_interval_ms,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
    )
