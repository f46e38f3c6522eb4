"""Share groups (KIP-932), which librdkafka cannot describe: asked of their coordinators directly."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.group.admin import Group, Member, in_order
from penstock.cli.group.coordinators import GroupSource
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


class ShareSource(GroupSource[tuple[Group, GroupLag]]):
    """Finds share groups, with their offsets."""

    kind = SHARE

    def _describe_at(
        self, client: ClusterClient, broker: BrokerView, names: Sequence[str]
    ) -> dict[str, tuple[Group, GroupLag]]:
        described: ShareGroupDescribeResponse = client.ask_at(broker.address, ShareGroupDescribeRequest(names))
        groups = {row.group_id: _group(row, broker) for row in described.groups if not row.error_code}
        if not groups:
            return {}
        wanted = [DescribeShareGroupOffsetsRequestGroup(name, None) for name in groups]
        offsets: DescribeShareGroupOffsetsResponse = client.ask_at(
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
    return Group(row.group_id, SHARE, row.group_state, row.assignor_name, coordinator, in_order(members))


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
