"""The cluster snapshot: the controller is the quorum's leader, whatever Metadata responses contain."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.client.operations.topics import Topic, list_topics
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.rest.console.cluster_snapshot import ClusterSnapshots
from penstock.gateway.web.problem import Problem
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)


class Wire:
    """Brokers that name broker 2 as controller, as Kafka's do at random.

    `leader` is the quorum's, None where it cannot be described.
    """

    def __init__(self, named: int, leader: int | None) -> None:
        self._named, self._leader = named, leader

    async def run(self, operation: Any) -> list[Topic]:
        assert operation is list_topics
        return []

    async def ask(self, request: Any, *, timeout_ms: int = 0) -> Any:
        del timeout_ms
        if isinstance(request, DescribeClusterRequest):
            return DescribeClusterResponse(controller_id=self._named, brokers=[])
        assert isinstance(request, DescribeQuorumRequest)
        if self._leader is None:
            raise Problem(50301, "no leader", "wait")
        partition = DescribeQuorumResponsePartitionData(
            partition_index=0,
            error_code=0,
            leader_id=self._leader,
            leader_epoch=1,
            high_watermark=1,
            current_voters=[],
            observers=[],
        )
        return DescribeQuorumResponse(
            error_code=0, topics=[DescribeQuorumResponseTopicData("__cluster_metadata", [partition])], nodes=[]
        )


@pytest.mark.parametrize(
    ("named", "leader", "expected"),
    [(2, 100, 100), (2, 1, 1), (2, None, None), (-1, None, -1), (-1, 3, 3), (2, -1, -1)],
)
def test_the_controller_is_the_leader_of_the_quorum(named: int, leader: int | None, expected: int | None) -> None:
    async def snapshot_controller() -> int | None:
        wire: Any = Wire(named, leader)
        snapshots = ClusterSnapshots(Admin(wire), wire)
        return (await snapshots.latest()).controller

    assert asyncio.run(snapshot_controller()) == expected
