"""Share groups (KIP-932), which librdkafka cannot describe: asked of their coordinators directly."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.group.admin import Group, Member
from penstock.cli.group.coordinators import UNANSWERED, by_coordinator, names_of
from penstock.cli.group.lag import GroupLag, PartitionLag
from penstock.client.cluster import ClusterClient
from penstock.client.view import BrokerView
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from penstock.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

SHARE = "share"


class ShareSource:
    """Finds share groups; without a client, or where brokers don't have them, there are none."""

    def __init__(self, client: ClusterClient | None) -> None:
        self._client = client

    def names(self) -> list[str]:
        """The names of all share groups, which librdkafka leaves out of its list."""
        return names_of(self._client, SHARE)

    def describe(self, names: Sequence[str]) -> dict[str, tuple[Group, GroupLag]]:
        """Those of the groups that are share groups, with their offsets."""
        if self._client is None or not names:
            return {}
        try:
            groups: dict[str, tuple[Group, GroupLag]] = {}
            for broker, some in by_coordinator(self._client, names).items():
                groups |= self._describe_at(broker, some)
            return groups
        except UNANSWERED:
            return {}

    def _describe_at(self, broker: BrokerView, names: Sequence[str]) -> dict[str, tuple[Group, GroupLag]]:
        assert self._client is not None
        described: ShareGroupDescribeResponse = self._client.ask_at(broker.address, ShareGroupDescribeRequest(names))
        groups = {row.group_id: _group(row, broker) for row in described.groups if not row.error_code}
        if not groups:
            return {}
        wanted = [DescribeShareGroupOffsetsRequestGroup(name, None) for name in groups]
        offsets: DescribeShareGroupOffsetsResponse = self._client.ask_at(
            broker.address, DescribeShareGroupOffsetsRequest(wanted)
        )
        lags = {row.group_id: _lag(row) for row in offsets.groups}
        return {name: (group, lags.get(name, GroupLag())) for name, group in groups.items()}


def _group(row: DescribedGroup, coordinator: BrokerView) -> Group:
    members = [
        Member(
            member.member_id,
            member.client_id,
            member.client_host.lstrip("/"),
            None,
            tuple(
                sorted(
                    (topic.topic_name, number)
                    for topic in member.assignment.topic_partitions
                    for number in topic.partitions
                )
            ),
        )
        for member in row.members
    ]
    members.sort(key=lambda member: (member.client_id, member.member_id))
    return Group(row.group_id, SHARE, row.group_state, row.assignor_name, coordinator, tuple(members))


def _lag(group: DescribeShareGroupOffsetsResponseGroup) -> GroupLag:
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
