"""A share group on three nodes: members, state and partitions are on different ones, and its coordinator dies."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages import alter_share_group_offsets as altering
from penstock.wire.messages import describe_share_group_offsets as describing
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from support.wire_client import WireClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 6
PATIENCE_S = 90.0
MOVING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"offsets.topic.num.partitions": "3", "share.coordinator.state.topic.num.partitions": "3"}
    with Cluster(settings, nodes=3, start_timeout_s=90) as running:
        yield running


class Coordinator:
    """Asks whichever node coordinates a group, until it answers."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self.node_id = -1

    def ask(self, request: Any, version: int, error_of: Callable[[Any], int]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                with WireClient(self._find()) as wire:
                    response = wire.call(request, version)
                if error_of(response) not in MOVING:
                    return response
            except OSError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"{type(request).__name__} got no answer")

    def _find(self) -> str:
        for node_id, pid in self._cluster.pids.items():
            if pid is not None:
                with WireClient(self._cluster.address(node_id)) as wire:
                    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
                    (found,) = wire.call(request, 6).coordinators
                if not found.error_code:
                    self.node_id = found.node_id
                    return f"{found.host}:{found.port}"
        raise OSError("no broker knows the coordinator")

    def beat(self, member: str, epoch: int, topics: list[str] | None = None) -> ShareGroupHeartbeatResponse:
        response: ShareGroupHeartbeatResponse = self.ask(
            ShareGroupHeartbeatRequest(self._group, member, epoch, None, topics), 1, lambda row: row.error_code
        )
        assert not response.error_code, response.error_message
        return response

    def lags(self) -> dict[int, tuple[int, int]]:
        """Start offset and lag by partition."""
        request = describing.DescribeShareGroupOffsetsRequest(
            [describing.DescribeShareGroupOffsetsRequestGroup(self._group, None)]
        )
        (found,) = self.ask(request, 1, lambda response: response.groups[0].error_code).groups
        assert not found.error_code
        return {row.partition_index: (row.start_offset, row.lag) for topic in found.topics for row in topic.partitions}


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_group_survives_its_coordinator(cluster: Cluster) -> None:
    group = f"sharers-{uuid.uuid4().hex[:8]}"
    topic = cluster.create_topic(f"shared-{uuid.uuid4().hex[:8]}", partitions=PARTITIONS)
    coordinator = Coordinator(cluster, group)
    rows = [altering.AlterShareGroupOffsetsRequestPartition(number, 0) for number in range(PARTITIONS)]
    request = altering.AlterShareGroupOffsetsRequest(group, [altering.AlterShareGroupOffsetsRequestTopic(topic, rows)])

    def altered() -> bool:
        # The topic with the state is created on first use, and is led by everybody a moment later.
        response = coordinator.ask(request, 0, lambda row: row.error_code)
        return not any(row.error_code for found in response.responses for row in found.partitions)

    wait_for(altered)
    wait_for(lambda: coordinator.lags() == dict.fromkeys(range(PARTITIONS), (0, 0)))

    epochs = {name: coordinator.beat(name, 0, [topic]).member_epoch for name in ("a", "b")}
    before = coordinator.node_id
    cluster.kill(before)
    epochs = {name: coordinator.beat(name, epoch).member_epoch for name, epoch in epochs.items()}
    assert coordinator.node_id != before
    described = coordinator.ask(ShareGroupDescribeRequest([group]), 1, lambda row: row.groups[0].error_code).groups[0]
    assert described.group_state == "Stable"
    held = [
        number
        for member in described.members
        for row in member.assignment.topic_partitions
        for number in row.partitions
    ]
    assert sorted(held) == [*range(PARTITIONS)]
    wait_for(lambda: coordinator.lags() == dict.fromkeys(range(PARTITIONS), (0, 0)))
    cluster.start(before)
