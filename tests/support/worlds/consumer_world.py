"""A group shard with topics that come, grow and go, for groups whose coordinator assigns partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.contract import GroupSettings
from penstock.core.group.shard import GroupShard
from penstock.model.ids import Uuid
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from support.worlds.group_world import GroupWorld

GROUP = "g"


class PartitionsOf(NamedTuple):
    """Some partitions of a topic."""

    topic_id: Uuid
    partitions: Collection[int]


class ClusterTopics:
    """The cluster's topics: partition counts by name. A topic that is made again has another id."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.ids: dict[str, Uuid] = {}
        self.rack_of: dict[tuple[str, int], frozenset[str]] = {}
        self._made = 0

    def put(self, name: str, count: int) -> None:
        if name not in self.counts:
            self._made += 1
            self.ids[name] = self._made.to_bytes(16, "big")
        self.counts[name] = count

    def delete(self, name: str) -> None:
        del self.counts[name], self.ids[name]

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    def topic_id(self, topic: str) -> Uuid | None:
        return self.ids.get(topic)

    def topic_name(self, topic_id: Uuid) -> str | None:
        return next((name for name, found in self.ids.items() if found == topic_id), None)

    def names(self) -> list[str]:
        return list(self.counts)

    def racks(self, topic: str, partition: int) -> frozenset[str]:
        return self.rack_of.get((topic, partition), frozenset())


class ConsumerWorld(GroupWorld):
    """One shard with topics and settings of groups."""

    def __init__(self, settings: GroupSettings | None = None, seed: int = 0, **counts: int) -> None:
        self.topics = ClusterTopics()
        self.configs: dict[str, Mapping[str, str]] = {}
        for name, count in counts.items():
            self.topics.put(name, count)
        super().__init__(settings, seed)

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, self.topics, self.random, lambda group: self.configs.get(group, {}))

    def put_topic(self, name: str, count: int) -> None:
        """Create a topic or have it grow; 0 deletes it."""
        if count:
            self.topics.put(name, count)
            self.perform(self.shard.topics_changed([name], []))
        else:
            topic_id = self.topics.ids[name]
            self.topics.delete(name)
            self.perform(self.shard.topics_changed([], [name], [topic_id]))

    def group(self, shard: GroupShard | None = None) -> ConsumerGroup:
        """The consumer group under test."""
        group = (shard or self.shard)._groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def shown_target(self, member_id: str) -> str:
        """What a member is to own."""
        return self.shown([PartitionsOf(*row) for row in self.group().targets[member_id].items()])

    def shown(self, rows: object) -> str:
        """Partitions by topic name, such as t/0,1 u/3, from any list of topic ids with partitions."""
        parts = []
        for row in rows:  # type: ignore[attr-defined]
            name = self.topics.topic_name(row.topic_id) or "deleted"
            parts.append(f"{name}/{','.join(map(str, sorted(row.partitions)))}")
        return " ".join(sorted(parts)) or "nothing"


def subscription(topics: list[str], owned: Mapping[str, list[int]] | None = None, version: int = 1) -> bytes:
    """What a classic consumer joins with."""
    rows = [TopicPartition(name, numbers) for name, numbers in (owned or {}).items()]
    message = ConsumerProtocolSubscription(topics=topics, owned_partitions=rows if version else ())
    return version.to_bytes(2, "big") + encode(message, version)


def assignment(parts: Mapping[str, list[int]]) -> bytes:
    """What a classic consumer is assigned by its leader."""
    rows = [TopicPartition(name, numbers) for name, numbers in parts.items()]
    return b"\0\1" + encode(ConsumerProtocolAssignment(rows), 1)
