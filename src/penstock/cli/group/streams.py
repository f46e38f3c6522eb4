"""Streams groups (KIP-1071), which librdkafka cannot describe: asked of their coordinators directly."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.group.admin import Group, Member, in_order
from penstock.cli.group.coordinators import GroupSource
from penstock.client.cluster import ClusterClient
from penstock.client.view import BrokerView
from penstock.wire.messages import streams_group_describe as wire

STREAMS = "streams"


class StreamsSource(GroupSource[Group]):
    """Finds streams groups."""

    kind = STREAMS

    def _describe_at(self, client: ClusterClient, broker: BrokerView, names: Sequence[str]) -> dict[str, Group]:
        request = wire.StreamsGroupDescribeRequest(names)
        described: wire.StreamsGroupDescribeResponse = client.ask_at(broker.address, request)
        return {row.group_id: _group(row, broker) for row in described.groups if not row.error_code}


def _group(row: wire.DescribedGroup, coordinator: BrokerView) -> Group:
    sources: dict[str, list[str]] = {}
    for each in (row.topology.subtopologies or ()) if row.topology is not None else ():
        repartitions = [topic.name for topic in each.repartition_source_topics]
        sources[each.subtopology_id] = [*each.source_topics, *repartitions]
    members = [
        Member(
            member.member_id,
            member.client_id,
            member.client_host.lstrip("/"),
            member.instance_id,
            tuple(
                sorted(
                    (topic, number)
                    for task in member.assignment.active_tasks
                    for topic in sources.get(task.subtopology_id, ())
                    for number in task.partitions
                )
            ),
        )
        for member in row.members
    ]
    return Group(row.group_id, STREAMS, row.group_state, "sticky", coordinator, in_order(members))
