"""Versions 0-4. Classic groups: keeps a member's session alive and reports a rebalance to it."""

from __future__ import annotations

import asyncio

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import ask_as_member
from penstock.core.group.shard import GroupShard
from penstock.wire.apis import ApiKey
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@broker_api(
    ApiKey.HEARTBEAT,
    versions={
        0: "the first version: group, generation and member",
        1: "the response contains the throttle time (KIP-124)",
        2: "the same fields; brokers throttle after the response (KIP-219)",
        3: "the group instance id of static members (KIP-345)",
        4: "flexible versions (KIP-482)",
    },
)
def heartbeat(
    services: BrokerServices, request: HeartbeatRequest, context: RequestContext
) -> asyncio.Future[HeartbeatResponse]:
    return ask_as_member(services, request, context, GroupShard.heartbeat, HeartbeatResponse)
