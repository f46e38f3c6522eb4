"""Share groups for the pages of groups: librdkafka, which lists the other groups, does not list them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka.admin._listoffsets import OffsetSpec

from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.rest.console.cluster_snapshot import ClusterSnapshots
from penstock.gateway.rest.console.lags import PartitionLag, total_lag
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest

SHARE = "share"


class ShareGroups:
    """Reads share groups from all brokers, since each knows those that it coordinates; silent brokers are left out."""

    def __init__(self, groups: Groups, snapshots: ClusterSnapshots, wire: BrokerWire) -> None:
        self._groups = groups
        self._snapshots = snapshots
        self._wire = wire

    async def states(self) -> dict[str, str]:
        """The states of all share groups by name."""
        answers = await self._ask(ListGroupsRequest())
        return {
            row.group_id: row.group_state.lower()
            for answer in answers
            for row in answer.groups
            if row.group_type.lower() == SHARE
        }

    async def lags(self, names: Sequence[str]) -> dict[str, list[PartitionLag]]:
        """Where groups start in their partitions, and how many records they have to finish from there on."""
        if not names:
            return {}
        wanted = [DescribeShareGroupOffsetsRequestGroup(name, None) for name in names]
        return {
            group.group_id: [
                PartitionLag(
                    topic.topic_name,
                    row.partition_index,
                    row.start_offset if row.start_offset >= 0 else None,
                    None,
                    row.lag if row.lag >= 0 else None,
                )
                for topic in group.topics
                for row in topic.partitions
            ]
            for answer in await self._ask(DescribeShareGroupOffsetsRequest(wanted))
            for group in answer.groups
            if not group.error_code
        }

    async def total_lags(self, names: Sequence[str]) -> dict[str, int]:
        """The lag of each group whose coordinator answers."""
        return {name: total_lag(rows) for name, rows in (await self.lags(names)).items()}

    async def one(self, name: str) -> tuple[dict[str, Any], list[PartitionLag]] | None:
        """A group with its members, and its partitions; None if there is no such share group."""
        found = [
            group
            for answer in await self._ask(ShareGroupDescribeRequest([name], False))
            for group in answer.groups
            if not group.error_code
        ]
        if not found:
            return None
        rows = (await self.lags([name])).get(name, [])
        partitions = sorted((row.topic, row.partition) for row in rows)
        ends = await self._groups.offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        shown = {
            "name": name,
            "state": found[0].group_state.lower(),
            "type": SHARE,
            "assignor": found[0].assignor_name,
            "coordinator": None,
            "members": [
                {
                    "id": member.member_id,
                    "client_id": member.client_id,
                    "instance_id": None,
                    "host": member.client_host,
                    "partitions": sum(len(row.partitions) for row in member.assignment.topic_partitions),
                }
                for member in found[0].members
            ],
        }
        return shown, [row._replace(end=ends.get((row.topic, row.partition))) for row in rows]

    async def _ask(self, request: Any) -> list[Any]:
        if not self._wire.is_usable:
            return []
        addresses = [broker.address for broker in (await self._snapshots.latest()).alive()]
        return [*(await self._wire.ask_each(addresses, request)).values()]
