"""Which partitions can be queried at which member, for applications that serve their state (interactive queries)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.core.group.contract import Topics
from penstock.core.group.streams.internal_topics import ConfiguredSubtopology, ConfiguredTopology
from penstock.core.group.streams.members import StreamsMember
from penstock.core.group.streams.tasks import Tasks
from penstock.wire.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition


def endpoints_of(
    members: Iterable[StreamsMember], configured: ConfiguredTopology, topics: Topics
) -> list[EndpointToPartitions]:
    """What each member with an endpoint serves, and keeps standbys of."""
    subtopologies = configured.subtopologies or {}
    return [
        EndpointToPartitions(
            Endpoint(*member.user_endpoint),
            _partitions(member.assigned.active, subtopologies, topics),
            _partitions(member.assigned.standby, subtopologies, topics),
        )
        for member in members
        if member.user_endpoint is not None
    ]


def _partitions(
    tasks: Tasks, subtopologies: Mapping[str, ConfiguredSubtopology], topics: Topics
) -> list[TopicPartition]:
    rows = []
    for name in sorted(tasks):
        subtopology = subtopologies.get(name)
        # A small topic among the sources has no partition for the last tasks.
        for topic in sorted(subtopology.all_sources) if subtopology is not None else ():
            count = topics.partition_count(topic) or 0
            rows.append(TopicPartition(topic, [number for number in sorted(tasks[name]) if number < count]))
    return rows
