"""A streams group as StreamsGroupDescribe shows it."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.group.assignors.contract import rows_of
from penstock.core.group.streams.group import StreamsGroup
from penstock.core.group.streams.internal_topics import ConfiguredSubtopology, InternalTopic
from penstock.core.group.streams.tasks import NO_TASK_SETS, TaskSets
from penstock.wire.messages import streams_group_records as records
from penstock.wire.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)


def described(group: StreamsGroup) -> DescribedGroup:
    """The group, with the members' current and target tasks."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[
            Member(
                member_id=member.member_id,
                member_epoch=member.member_epoch,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                topology_epoch=member.topology_epoch,
                process_id=member.process_id,
                user_endpoint=None if member.user_endpoint is None else Endpoint(*member.user_endpoint),
                client_tags=[KeyValue(key, value) for key, value in sorted(member.client_tags.items())],
                assignment=_assignment(member.assigned),
                target_assignment=_assignment(group.targets.get(member.member_id, NO_TASK_SETS)),
            )
            for member in group.members.values()
        ],
    )


def _topology(group: StreamsGroup) -> Topology | None:
    """With the numbers of partitions once the topology is ready; before that, as the members sent it."""
    topology, configured = group.topology, group.configured
    if topology is None:
        return None
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        return Topology(topology.epoch, [_configured(*row) for row in sorted(configured.subtopologies.items())])
    return Topology(topology.epoch, [_sent(topology.subtopologies[name]) for name in sorted(topology.subtopologies)])


def _configured(name: str, row: ConfiguredSubtopology) -> Subtopology:
    def infos(topics: Iterable[InternalTopic]) -> list[TopicInfo]:
        return sorted(
            TopicInfo(
                topic.name,
                topic.partitions,
                topic.replication_factor,
                [KeyValue(key, topic.configs[key]) for key in sorted(topic.configs)],
            )
            for topic in topics
        )

    return Subtopology(
        name,
        sorted(row.source_topics),
        sorted(row.repartition_sink_topics),
        infos(row.state_changelog_topics.values()),
        infos(row.repartition_source_topics.values()),
    )


def _sent(row: records.Subtopology) -> Subtopology:
    def infos(topics: Iterable[records.TopicInfo]) -> list[TopicInfo]:
        return sorted(
            TopicInfo(
                topic.name,
                topic.partitions,
                topic.replication_factor,
                [KeyValue(*config) for config in topic.topic_configs],
            )
            for topic in topics
        )

    return Subtopology(
        row.subtopology_id,
        sorted(row.source_topics),
        sorted(row.repartition_sink_topics),
        infos(row.state_changelog_topics),
        infos(row.repartition_source_topics),
    )


def _assignment(tasks: TaskSets) -> Assignment:
    return Assignment(*([TaskIds(*row) for row in rows_of(role)] for role in tasks))
