"""Versions 0-5. Classic groups: KIP-345 many members at once, KIP-800 reasons."""

from __future__ import annotations

import asyncio

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import ask_as_member
from penstock.core.group.shard import GroupShard
from penstock.wire.apis import ApiKey
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


@broker_api(
    ApiKey.LEAVE_GROUP,
    versions={
        0: "the first version: one member leaves",
        1: "the response contains the throttle time (KIP-124)",
        2: "the same fields; brokers throttle after the response (KIP-219)",
        3: "many members in one request, also by group instance id (KIP-345)",
        4: "flexible versions (KIP-482)",
        5: "the reason of each member for leaving (KIP-800)",
    },
)
def leave_group(
    services: BrokerServices, request: LeaveGroupRequest, context: RequestContext
) -> asyncio.Future[LeaveGroupResponse]:
    return ask_as_member(services, request, context, GroupShard.leave_group, LeaveGroupResponse)
