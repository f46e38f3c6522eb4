"""This broker's share coordinator: the state of the share-partitions whose partition of `__share_group_state` it leads.

The log is not compacted, since updates of one share-partition add up. It is cut before the oldest snapshot that counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from penstock.config.node import NodeSettings
from penstock.core.metadata.image import Image
from penstock.core.metadata.topics import NewTopic
from penstock.core.share.state import Answer, ShareKey, ShareStateShard, StateWrite
from penstock.model.errors import ApiError
from penstock.model.ids import Uuid
from penstock.runtime.controller.client import TopicCreator
from penstock.runtime.coordinator.coordinated_topic import CoordinatedTopic
from penstock.runtime.coordinator.internal_topic import InternalTopic
from penstock.runtime.coordinator.shard_host import ShardHost
from penstock.runtime.coordinator.shards import Coordinator
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.replication import leading
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.metadata_records import RemoveTopicRecord

SHARE_TOPIC = "__share_group_state"

logger = logging.getLogger("penstock.share")


class ShareStates(CoordinatedTopic[ShareStateShard]):
    """The operations that handlers call; each raises ApiError if the coordinator is elsewhere.

    `settle_deletions` makes cut logs durable.
    """

    def __init__(
        self,
        env: Env,
        image: Image,
        topics: TopicCreator,
        partitions: Partitions,
        settings: NodeSettings,
        settle_deletions: Callable[[list[Partition]], Awaitable[None]],
    ) -> None:
        self._settle_deletions = settle_deletions
        wanted = NewTopic(
            SHARE_TOPIC,
            settings.share_coordinator_state_topic_num_partitions,
            settings.share_coordinator_state_topic_replication_factor,
            configs={
                "cleanup.policy": "delete",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(settings.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
                "segment.bytes": str(settings.share_coordinator_state_topic_segment_bytes),
            },
        )

        def partition_count(topic_id: Uuid) -> int | None:
            found = image.topics_by_id.get(topic_id)
            return len(found.partitions) if found is not None else None

        updates = settings.share_coordinator_snapshot_update_records_per_snapshot
        coordinator: Coordinator[ShareStateShard] = Coordinator(
            env, "share", SHARE_TOPIC, lambda: ShareStateShard(updates, partition_count), has_deltas=True
        )
        topic = InternalTopic(image, topics, wanted, "share.coordinator.state.topic.replication.factor")
        super().__init__(env, topic, coordinator, partitions, "share groups")
        cold_ms = settings.share_coordinator_cold_partition_snapshot_interval_ms
        cold = partial(self._repeat, cold_ms, lambda shard, now_ms: shard.snapshot_cold(now_ms - cold_ms, now_ms))
        keep_running(env, cold, "snapshots of share state")
        prune_ms = settings.share_coordinator_state_topic_prune_interval_ms
        keep_running(env, partial(self._prune, prune_ms), "prune share state")

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Answer:
        """Begin, or begin anew."""
        answer: Answer = await self.ask(
            key.coordinator_key,
            lambda shard, token, now_ms: shard.initialize(key, state_epoch, start_offset, token, now_ms),
        )
        return answer

    async def read_state(self, key: ShareKey, leader_epoch: int) -> Answer:
        """The state, for a leader."""
        answer: Answer = await self.ask(
            key.coordinator_key, lambda shard, token, now_ms: shard.read(key, leader_epoch, token, now_ms)
        )
        return answer

    async def write(self, key: ShareKey, change: StateWrite) -> Answer:
        """What became of records, from their leader."""
        answer: Answer = await self.ask(
            key.coordinator_key, lambda shard, token, now_ms: shard.write(key, change, token, now_ms)
        )
        return answer

    async def delete(self, key: ShareKey, state_epoch: int) -> Answer:
        """Forget a share-partition."""
        answer: Answer = await self.ask(
            key.coordinator_key, lambda shard, token, _: shard.delete(key, state_epoch, token)
        )
        return answer

    async def summary(self, key: ShareKey) -> Answer:
        """A share-partition in numbers."""
        return await self.read(key.coordinator_key, lambda shard: shard.summary(key))

    def follow(self, records: Sequence[Any]) -> None:
        """Forget the share-partitions of topics that were deleted."""
        gone = {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
        if gone:
            self.coordinator.perform_on_all(lambda shard: shard.topics_deleted(gone))

    async def _prune(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for host in self.coordinator.hosts():
                await self.prune(host)

    async def prune(self, host: ShardHost[ShareStateShard]) -> None:
        """Cut a log before the oldest snapshot that counts."""
        partition = host.partition
        offset = host.shard.redundant_before(partition.log.end_offset)
        if offset <= partition.log.start_offset:
            return
        try:
            # All snapshots that make the records before them redundant must be committed first.
            settled = host.settled()
            if settled is not None:
                await settled
            leading.delete_records(partition, offset)
            host.shard.cut(offset)
            await self._settle_deletions([partition])
        except ApiError as error:
            logger.info("%s is not cut now: %s", partition.name, error)
