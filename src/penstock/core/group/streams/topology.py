"""The topology of a streams application: the subtopologies, and the topics between them.

The first member brings it; all others must have the same, or an earlier epoch of it. It is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.codec import encode
from penstock.wire.messages import streams_group_heartbeat as heartbeats
from penstock.wire.messages.streams_group_records import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)

# It is one record of a topic whose batches have a megabyte at most, and others may be in the same batch.
SIZE_BYTES_MAX = 400_000


@dataclass(frozen=True)
class Topology:
    """Subtopologies by id; topologies with equal ones are equal."""

    epoch: int
    subtopologies: Mapping[str, Subtopology]

    @cached_property
    def source_topics(self) -> Mapping[str, str]:
        """The subtopology that reads a topic, by the topic's name."""
        return {topic: row.subtopology_id for row in self.subtopologies.values() for topic in sources_of(row)}

    @cached_property
    def required_topics(self) -> frozenset[str]:
        """All topics that must exist before there are tasks."""
        changelogs = {topic.name for row in self.subtopologies.values() for topic in row.state_changelog_topics}
        return frozenset(changelogs.union(self.source_topics))

    def value(self) -> StreamsGroupTopologyValue:
        """The record of this topology; raises STREAMS_INVALID_TOPOLOGY if that would be too large to be written."""
        value = StreamsGroupTopologyValue(self.epoch, tuple(self.subtopologies.values()))
        size = len(encode(value, 0))
        refuse(size > SIZE_BYTES_MAX, f"The topology has {size} bytes, and {SIZE_BYTES_MAX} are allowed.")
        return value


def sources_of(row: Subtopology) -> list[str]:
    """The topics that a subtopology reads."""
    return [*row.source_topics, *(topic.name for topic in row.repartition_source_topics)]


def topology_of(sent: heartbeats.Topology | StreamsGroupTopologyValue) -> Topology:
    """The topology in a request or a record."""
    return Topology(sent.epoch, {row.subtopology_id: _subtopology(row) for row in sent.subtopologies})


def check_topology(sent: heartbeats.Topology) -> None:
    """Raises STREAMS_INVALID_TOPOLOGY for a topology that makes no sense with any topics."""
    names = {row.subtopology_id for row in sent.subtopologies}
    refuse(sent.epoch < 0, "Topology epoch must be non-negative.")
    refuse(len(names) < len(sent.subtopologies), "Each subtopology must have an id of its own.")
    for row in sent.subtopologies:
        kept = _subtopology(row)
        refuse(not sources_of(kept), f"No source topics found for subtopology {row.subtopology_id}")
        _check_topics(kept)


def refuse(condition: bool, reason: str) -> None:
    """Raises STREAMS_INVALID_TOPOLOGY if the condition holds."""
    if condition:
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)


def _check_topics(row: Subtopology) -> None:
    for changelog in row.state_changelog_topics:
        refuse(
            changelog.partitions != 0,
            f"Changelog topic {changelog.name} must have an undefined partition count, but it is set to"
            f" {changelog.partitions}.",
        )
    for repartition in row.repartition_source_topics:
        refuse(repartition.partitions < 0, f"Repartition topic {repartition.name} cannot have fewer than 0 partitions.")
    for group in row.copartition_groups:
        is_known = _within(group.source_topics, len(row.source_topics)) and _within(
            group.repartition_source_topics, len(row.repartition_source_topics)
        )
        refuse(not is_known, f"A copartition group of subtopology {row.subtopology_id} names a topic that it lacks.")


def _within(numbers: Iterable[int], count: int) -> bool:
    return all(0 <= number < count for number in numbers)


def _subtopology(row: heartbeats.Subtopology | Subtopology) -> Subtopology:
    """As it is kept, with tuples, so that subtopologies can be compared."""
    return Subtopology(
        row.subtopology_id,
        tuple(row.source_topics),
        tuple(row.source_topic_regex),
        tuple(_topic_info(topic) for topic in row.state_changelog_topics),
        tuple(row.repartition_sink_topics),
        tuple(_topic_info(topic) for topic in row.repartition_source_topics),
        tuple(CopartitionGroup(*(tuple(numbers) for numbers in group)) for group in row.copartition_groups),
    )


def _topic_info(topic: heartbeats.TopicInfo | TopicInfo) -> TopicInfo:
    configs = tuple(TopicConfig(*config) for config in topic.topic_configs)
    return TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)
