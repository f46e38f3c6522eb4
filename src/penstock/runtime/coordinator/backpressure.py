"""Asks how far groups have come, so that producers of the topics that name them can be held back.

Off the path of data: a task queries the groups' coordinators, and a produce only looks at their last answers. As long
as no topic names a group there is nothing to ask, and the cost is one look at an empty table per request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.config.node import NodeSettings
from penstock.config.topic import BACKPRESSURE_GROUPS_MAX
from penstock.core.group.shard import GroupShard
from penstock.core.metadata.image import Image
from penstock.core.security.backpressure import STALE_INTERVALS, GroupProgress, Name, throttle_ms
from penstock.model.errors import ApiError
from penstock.runtime.brokers import Brokers
from penstock.runtime.coordinator.groups import OFFSETS_TOPIC, Groups
from penstock.runtime.coordinator.shards import partition_for
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.peer import PeerLost
from penstock.runtime.replication.partition import Partition
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

logger = logging.getLogger("penstock.coordinator")


class BackPressure:
    """Knows which partitions led here are watched, and what their groups have read."""

    def __init__(
        self,
        env: Env,
        brokers: Brokers,
        image: Image,
        groups: Groups,
        settings: Callable[[], NodeSettings],
    ) -> None:
        self._env = env
        self._brokers = brokers
        self._image = image
        self._groups = groups
        self._settings = settings
        self._progress = GroupProgress()
        # The partitions here whose topics name groups.
        self.watched: dict[Name, Partition] = {}
        # Runs for as long as something is watched.
        self._asking: asyncio.Task[None] | None = None
        # Milliseconds of throttle time that were given.
        self.throttled_ms = 0

    def note(self, partition: Partition) -> None:
        """A partition was opened, or its topic's settings have changed."""
        if partition.settings.penstock_backpressure_groups:
            self.watched[partition.name] = partition
            if self._asking is None:
                self._asking = keep_running(self._env, self._run, "back-pressure")
        else:
            self.watched.pop(partition.name, None)

    def forget(self, partition: Partition) -> None:
        """A partition was removed."""
        self.watched.pop(partition.name, None)

    def throttle_ms(self, names: Iterable[Name]) -> int:
        """The throttle time of a produce to these partitions: that of the one that is furthest ahead."""
        settings, now_ms = self._settings(), self._env.monotonic_ms()
        stale_ms = STALE_INTERVALS * settings.penstock_backpressure_check_interval_ms
        longest_ms = 0
        for name in names:
            partition = self.watched.get(name)
            if partition is None:
                continue
            topic = partition.settings
            slowest = self._progress.slowest(name, _groups_of(partition), now_ms, stale_ms)
            if slowest is not None:
                lag = partition.high_watermark - max(slowest, partition.log.start_offset)
                throttled_ms = throttle_ms(
                    lag, topic.penstock_backpressure_lag_max, settings.penstock_backpressure_throttle_max_ms
                )
                longest_ms = max(longest_ms, throttled_ms)
        self.throttled_ms += longest_ms
        return longest_ms

    async def _run(self) -> None:
        while self.watched:
            await asyncio.sleep(self._settings().penstock_backpressure_check_interval_ms / 1000)
            wanted: dict[str, list[Name]] = {}
            for name, partition in self.watched.items():
                if partition.is_leader:
                    for group in _groups_of(partition):
                        wanted.setdefault(group, []).append(name)
            self._progress.keep(wanted)
            if wanted:
                await asyncio.gather(*(self._ask(group, names) for group, names in wanted.items()))
        self._asking = None

    async def _ask(self, group: str, names: list[Name]) -> None:
        topic = self._image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return
        coordinator = topic.partitions[partition_for(group, len(topic.partitions))].leader
        asked_ms = self._env.monotonic_ms()
        timeout_ms = STALE_INTERVALS * self._settings().penstock_backpressure_check_interval_ms
        try:
            if coordinator == self._brokers.node_id:
                # What is not committed for a while must not hold up the questions about other groups.
                async with asyncio.timeout(timeout_ms / 1000):
                    offsets = await self._groups.read(group, lambda shard: _committed(shard, group))
            elif coordinator >= 0:
                offsets = await self._fetch(coordinator, group, names, timeout_ms)
            else:
                return
        except (ApiError, PeerLost, TimeoutError) as error:
            logger.info("how far group %s has come is not known: %s", group, error)
            return
        self._progress.heard(group, offsets, asked_ms)

    async def _fetch(self, broker_id: int, group: str, names: list[Name], timeout_ms: int) -> Mapping[Name, int]:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in names:
            by_topic.setdefault(topic, []).append(partition)
        topics = [
            OffsetFetchRequestTopics(topic, self._image.topics[topic].topic_id, partitions)
            for topic, partitions in by_topic.items()
            if topic in self._image.topics
        ]
        response: OffsetFetchResponse = await self._brokers.ask(
            broker_id,
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, None, -1, topics)]),
            timeout_ms=timeout_ms,
        )
        found: dict[Name, int] = {}
        for answered in (row for group_row in response.groups for row in group_row.topics):
            # Newer versions name topics by their ids alone.
            known = self._image.topics_by_id.get(answered.topic_id)
            name = answered.name or ("" if known is None else known.name)
            for row in answered.partitions:
                if not row.error_code and row.committed_offset >= 0:
                    found[name, row.partition_index] = row.committed_offset
        return found


def _groups_of(partition: Partition) -> Sequence[str]:
    """The groups that a partition's topic names; another implementation's controller may have let it name more."""
    return partition.settings.penstock_backpressure_groups[:BACKPRESSURE_GROUPS_MAX]


def _committed(shard: GroupShard, group: str) -> Mapping[Name, int]:
    return {name: progress.committed.offset for name, progress in shard.committed(group).items()}
