"""Groups that librdkafka neither lists nor describes: asked of the brokers, and of their coordinators, directly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from penstock.cli.failures import CommandFailure
from penstock.cli.group.admin import Group, Member, PartitionName, in_order
from penstock.cli.group.lag import GroupLag, PartitionLag
from penstock.client.cluster import GROUP_KEY, ClusterClient
from penstock.client.failures import NoAnswer
from penstock.client.view import BrokerView, brokers_of
from penstock.wire.messages import streams_group_describe as streams_wire
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

# Whatever is wrong, librdkafka's requests will meet it, too, and say so.
UNANSWERED = (NoAnswer, CommandFailure)

Described = TypeVar("Described")


class GroupSource(ABC, Generic[Described]):
    """Finds the groups of a kind; without a client, or where brokers don't have such groups, there are none."""

    kind: str

    def __init__(self, client: ClusterClient | None) -> None:
        self._client = client

    def names(self) -> list[str]:
        """The names of all groups of the kind, which librdkafka leaves out of its list."""
        if self._client is None:
            return []
        request = ListGroupsRequest(types_filter=[self.kind])
        try:
            cluster: DescribeClusterResponse = self._client.ask(DescribeClusterRequest())
            found: list[str] = []
            for broker in brokers_of(cluster).values():
                listed: ListGroupsResponse = self._client.ask_at(broker.address, request)
                found += [row.group_id for row in listed.groups if row.group_type == self.kind]
            return found
        except UNANSWERED:
            return []

    def describe(self, names: Sequence[str]) -> dict[str, Described]:
        """Those of the groups that are of the kind."""
        groups: dict[str, Described] = {}
        if self._client is None or not names:
            return groups
        try:
            for broker, some in by_coordinator(self._client, names).items():
                groups |= self._describe_at(self._client, broker, some)
        except UNANSWERED:
            return {}
        return groups

    @abstractmethod
    def _describe_at(self, client: ClusterClient, broker: BrokerView, names: Sequence[str]) -> dict[str, Described]:
        """Those of the groups of one coordinator that are of the kind; raises one of UNANSWERED."""


def by_coordinator(client: ClusterClient, names: Sequence[str]) -> dict[BrokerView, list[str]]:
    """The groups by the broker that coordinates them; raises one of UNANSWERED."""
    found: FindCoordinatorResponse = client.ask(FindCoordinatorRequest("", GROUP_KEY, names))
    coordinated: dict[BrokerView, list[str]] = defaultdict(list)
    for row in found.coordinators:
        if not row.error_code:
            coordinated[BrokerView(row.node_id, row.host, row.port)].append(row.key)
    return coordinated


class ShareSource(GroupSource[tuple[Group, GroupLag]]):
    """Finds share groups (KIP-932), with their offsets."""

    kind = "share"

    def _describe_at(
        self, client: ClusterClient, broker: BrokerView, names: Sequence[str]
    ) -> dict[str, tuple[Group, GroupLag]]:
        described: ShareGroupDescribeResponse = client.ask_at(broker.address, ShareGroupDescribeRequest(names))
        groups = {row.group_id: _share_group(row, broker) for row in described.groups if not row.error_code}
        if not groups:
            return {}
        wanted = [DescribeShareGroupOffsetsRequestGroup(name, None) for name in groups]
        offsets: DescribeShareGroupOffsetsResponse = client.ask_at(
            broker.address, DescribeShareGroupOffsetsRequest(wanted)
        )
        lags = {row.group_id: _share_lag(row) for row in offsets.groups}
        return {name: (group, lags.get(name, GroupLag())) for name, group in groups.items()}


def _share_group(row: DescribedGroup, coordinator: BrokerView) -> Group:
    members = []
    for member in row.members:
        topics = member.assignment.topic_partitions
        assignment = [(topic.topic_name, number) for topic in topics for number in topic.partitions]
        members.append(_member(member, None, assignment))
    return Group(row.group_id, ShareSource.kind, row.group_state, row.assignor_name, coordinator, in_order(members))


def _member(row: Any, instance_id: str | None, assignment: Iterable[PartitionName]) -> Member:
    host = row.client_host.lstrip("/")
    return Member(row.member_id, row.client_id, host, instance_id, tuple(sorted(assignment)))


def _share_lag(group: DescribeShareGroupOffsetsResponseGroup) -> GroupLag:
    """Lag counts records that are not finished yet, wherever they are; there is no one offset that is committed."""
    rows = [
        PartitionLag(
            topic.topic_name,
            row.partition_index,
            row.start_offset if row.start_offset >= 0 else None,
            lag=row.lag if row.lag >= 0 else None,
        )
        for topic in group.topics
        for row in topic.partitions
        if not row.error_code
    ]
    return GroupLag(sorted(rows, key=lambda row: (row.topic, row.partition)))


class StreamsSource(GroupSource[Group]):
    """Finds streams groups (KIP-1071)."""

    kind = "streams"

    def _describe_at(self, client: ClusterClient, broker: BrokerView, names: Sequence[str]) -> dict[str, Group]:
        request = streams_wire.StreamsGroupDescribeRequest(names)
        described: streams_wire.StreamsGroupDescribeResponse = client.ask_at(broker.address, request)
        return {row.group_id: _streams_group(row, broker) for row in described.groups if not row.error_code}


def _streams_group(row: streams_wire.DescribedGroup, coordinator: BrokerView) -> Group:
    sources: dict[str, list[str]] = {}
    for each in (row.topology.subtopologies or ()) if row.topology is not None else ():
        repartitions = [topic.name for topic in each.repartition_source_topics]
        sources[each.subtopology_id] = [*each.source_topics, *repartitions]
    members = []
    for member in row.members:
        assignment = [
            (topic, number)
            for task in member.assignment.active_tasks
            for topic in sources.get(task.subtopology_id, ())
            for number in task.partitions
        ]
        members.append(_member(member, member.instance_id, assignment))
    return Group(row.group_id, StreamsSource.kind, row.group_state, "sticky", coordinator, in_order(members))
