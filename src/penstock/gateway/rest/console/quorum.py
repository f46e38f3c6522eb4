"""The quorum of controllers, as its leader sees it."""

from __future__ import annotations

from typing import Any

from penstock.gateway.rest.console.wire import ANSWER_TIMEOUT_MS, BrokerWire, check
from penstock.gateway.web.problem import Problem
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)

METADATA_TOPIC = "__cluster_metadata"


async def ask_quorum(wire: BrokerWire, *, timeout_ms: int = ANSWER_TIMEOUT_MS) -> tuple[Any, dict[int, str]]:
    """The metadata log's partition with its leader and voters, and where they are; a Problem where nobody says."""
    request = DescribeQuorumRequest(
        [DescribeQuorumRequestTopicData(METADATA_TOPIC, [DescribeQuorumRequestPartitionData(0)])]
    )
    response: DescribeQuorumResponse = await wire.ask(request, timeout_ms=timeout_ms)
    what = "cannot describe the quorum"
    check(response.error_code, response.error_message, what)
    if not response.topics or not response.topics[0].partitions:
        raise Problem(503, 50301, f"{what}: the answer names no partition of the metadata log", "try again")
    found = response.topics[0].partitions[0]
    check(found.error_code, found.error_message, what)
    addresses = {
        node.node_id: f"{node.listeners[0].host}:{node.listeners[0].port}" for node in response.nodes if node.listeners
    }
    return found, addresses


async def read_quorum(wire: BrokerWire) -> dict[str, Any]:
    """The quorum for the page of brokers; a Problem where it cannot be asked."""
    found, addresses = await ask_quorum(wire)
    end = max((state.log_end_offset for state in found.current_voters), default=0)

    def show(state: ReplicaState, role: str) -> dict[str, Any]:
        return {
            "id": state.replica_id,
            "role": "leader" if state.replica_id == found.leader_id else role,
            "address": addresses.get(state.replica_id),
            "log_end_offset": state.log_end_offset,
            "lag": max(0, end - state.log_end_offset) if state.log_end_offset >= 0 else None,
            "last_fetch_ms": state.last_fetch_timestamp if state.last_fetch_timestamp >= 0 else None,
            "last_caught_up_ms": state.last_caught_up_timestamp if state.last_caught_up_timestamp >= 0 else None,
        }

    return {
        "leader": found.leader_id,
        "epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "nodes": [show(state, "voter") for state in found.current_voters]
        + [show(state, "observer") for state in found.observers],
    }
