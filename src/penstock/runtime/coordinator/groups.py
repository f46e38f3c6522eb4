"""This broker's group coordinator: finds the shard of a group, calls it, and keeps it up to date about topics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.config.node import NodeSettings
from penstock.core.contract import ProducerIdentity
from penstock.core.group.contract import Bounded, Effects, GroupSettings, Token
from penstock.core.group.shard import GroupShard
from penstock.core.metadata.image import Image, ResourceType
from penstock.core.metadata.topics import NewTopic
from penstock.core.replica.producer_state import EndMarker
from penstock.model.ids import Uuid
from penstock.runtime.controller.client import TopicCreator
from penstock.runtime.coordinator.coordinated_topic import CoordinatedTopic
from penstock.runtime.coordinator.counters import GroupCounters
from penstock.runtime.coordinator.internal_topic import InternalTopic
from penstock.runtime.coordinator.shards import Coordinator
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord

OFFSETS_TOPIC = "__consumer_offsets"

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
        """The name of a topic, or None after it was deleted."""
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


class Groups(CoordinatedTopic[GroupShard]):
    """The operations that handlers call."""

    def __init__(
        self, env: Env, image: Image, controller: TopicCreator, partitions: Partitions, settings: NodeSettings
    ) -> None:
        self._image = image
        # What this broker offers; share groups are turned on and off by their feature alone.
        self.protocols = frozenset(settings.group_coordinator_rebalance_protocols)
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
        # When a topic is deleted its name is no longer in the image.
        self._names = {topic.topic_id: topic.name for topic in image.topics.values()}
        topics = ImageTopics(image)
        group_settings = _group_settings(settings)

        def configs(group: str) -> dict[str, str]:
            return image.overrides(ResourceType.GROUP, group)

        self.counters = GroupCounters()
        coordinator: Coordinator[GroupShard] = Coordinator(
            env,
            "group",
            OFFSETS_TOPIC,
            lambda: GroupShard(group_settings, topics, env.random, configs, time.thread_time),
            self.counters.count,
            settings.group_coordinator_append_linger_ms,
        )
        topic = InternalTopic(image, controller, wanted, "offsets.topic.replication.factor")
        super().__init__(env, topic, coordinator, partitions, "groups")
        expiry = partial(self._repeat, settings.offsets_retention_check_interval_ms, GroupShard.expire_offsets)
        keep_running(env, expiry, "offset expiry")

    def end_transaction(self, index: int, producer: ProducerIdentity, marker: EndMarker) -> asyncio.Future[None]:
        """End a transaction in one partition of the offsets topic; completes when that is committed."""
        return self.coordinator.host(index).end_transaction(producer, marker)

    def follow(self, records: Sequence[Any]) -> None:
        """Tell the shards which topics were created, changed or deleted."""
        changed: set[str] = set()
        deleted: dict[Uuid, str] = {}
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
                    deleted[record.topic_id] = name
        if deleted:
            # A topic of the same name may be created before a shard that is being loaded could see that this one is
            # gone: its readers must not start at offsets of the former one.
            self.coordinator.perform_on_all(lambda shard: shard.topics_changed(changed, deleted.values(), deleted))
        elif changed:
            for host in self.coordinator.hosts():
                host.perform(host.shard.topics_changed(changed, (), ()))


def _group_settings(settings: NodeSettings) -> GroupSettings:
    return GroupSettings(
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        max_size=settings.group_max_size,
        metadata_bytes_max=settings.penstock_group_metadata_max_bytes,
        prefix_bytes_max=settings.penstock_coordinator_prefix_bytes_max,
        consumer_session_timeout_ms=Bounded(
            settings.group_consumer_session_timeout_ms,
            settings.group_consumer_min_session_timeout_ms,
            settings.group_consumer_max_session_timeout_ms,
        ),
        consumer_heartbeat_interval_ms=Bounded(
            settings.group_consumer_heartbeat_interval_ms,
            settings.group_consumer_min_heartbeat_interval_ms,
            settings.group_consumer_max_heartbeat_interval_ms,
        ),
        consumer_max_size=settings.group_consumer_max_size,
        consumer_assignors=tuple(settings.group_consumer_assignors),
        consumer_migration_policy=settings.group_consumer_migration_policy.lower(),
        consumer_regex_refresh_interval_ms=settings.group_consumer_regex_refresh_interval_ms,
        share_session_timeout_ms=Bounded(
            settings.group_share_session_timeout_ms,
            settings.group_share_min_session_timeout_ms,
            settings.group_share_max_session_timeout_ms,
        ),
        share_heartbeat_interval_ms=Bounded(
            settings.group_share_heartbeat_interval_ms,
            settings.group_share_min_heartbeat_interval_ms,
            settings.group_share_max_heartbeat_interval_ms,
        ),
        share_max_size=settings.group_share_max_size,
        streams_assignment_interval_ms=Bounded(
            settings.group_streams_assignment_interval_ms,
            settings.group_streams_min_assignment_interval_ms,
            settings.group_streams_max_assignment_interval_ms,
        ),
        streams_heartbeat_interval_ms=Bounded(
            settings.group_streams_heartbeat_interval_ms,
            settings.group_streams_min_heartbeat_interval_ms,
            settings.group_streams_max_heartbeat_interval_ms,
        ),
        streams_initial_rebalance_delay_ms=settings.group_streams_initial_rebalance_delay_ms,
        streams_max_size=settings.group_streams_max_size,
        streams_num_standby_replicas=Bounded(
            settings.group_streams_num_standby_replicas, 0, settings.group_streams_max_standby_replicas
        ),
        streams_session_timeout_ms=Bounded(
            settings.group_streams_session_timeout_ms,
            settings.group_streams_min_session_timeout_ms,
            settings.group_streams_max_session_timeout_ms,
        ),
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
    )
