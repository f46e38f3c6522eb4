"""Streams groups (KIP-1071), which librdkafka cannot describe: asked of their coordinators directly."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.group.admin import Group, Member
from penstock.cli.group.coordinators import UNANSWERED, by_coordinator, names_of
from penstock.client.cluster import ClusterClient
from penstock.client.view import BrokerView
from penstock.wire.messages import streams_group_describe as wire

STREAMS = "streams"


class StreamsSource:
    """Finds streams groups; without a client, or where brokers don't have them, there are none."""

    def __init__(self, client: ClusterClient | None) -> None:
        self._client = client

    def names(self) -> list[str]:
        """The names of all streams groups, which librdkafka leaves out of its list."""
        return names_of(self._client, STREAMS)

    def describe(self, names: Sequence[str]) -> dict[str, Group]:
        """Those of the groups that are streams groups."""
        if self._client is None or not names:
            return {}
        groups: dict[str, Group] = {}
        try:
            for broker, some in by_coordinator(self._client, names).items():
                request = wire.StreamsGroupDescribeRequest(some)
                described: wire.StreamsGroupDescribeResponse = self._client.ask_at(broker.address, request)
                groups |= {row.group_id: _group(row, broker) for row in described.groups if not row.error_code}
        except UNANSWERED:
            return {}
        return groups


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
    members.sort(key=lambda member: (member.client_id, member.member_id))
    return Group(row.group_id, STREAMS, row.group_state, "sticky", coordinator, tuple(members))
