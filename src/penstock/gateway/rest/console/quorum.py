"""The quorum of controllers, as its leader sees it."""

from __future__ import annotations

from penstock.client.view import QUORUM_REQUEST, QuorumView, quorum_of
from penstock.gateway.kafka.broker_requests import BrokerWire, check
from penstock.model.errors import ApiError


async def describe_quorum(wire: BrokerWire) -> QuorumView:
    """The quorum's description; raises Problem if no broker answers."""
    try:
        return quorum_of(await wire.ask(QUORUM_REQUEST))
    except ApiError as error:
        check(error.code, error.message, "cannot describe the quorum")
        raise


async def read_quorum(wire: BrokerWire) -> dict[str, object]:
    """The quorum for the brokers page; raises Problem if it cannot be described."""
    quorum = await describe_quorum(wire)
    return {
        "leader": quorum.leader,
        "epoch": quorum.epoch,
        "high_watermark": quorum.high_watermark,
        "nodes": [
            {
                "id": node.node_id,
                "role": node.role,
                "address": node.address,
                "log_end_offset": node.log_end_offset,
                "lag": node.lag,
                "last_fetch_ms": node.last_fetch_ms,
                "last_caught_up_ms": node.last_caught_up_ms,
            }
            for node in quorum.nodes
        ],
    }
