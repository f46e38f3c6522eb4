"""Versions 0-5. Classic groups: the leader sends the assignment, every member gets its own."""

from __future__ import annotations

import asyncio

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import ask_as_member
from penstock.core.group.shard import GroupShard
from penstock.wire.apis import ApiKey
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@broker_api(
    ApiKey.SYNC_GROUP,
    versions={
        0: "the first version: the leader sends assignments, each member gets its own",
        1: "the response contains the throttle time (KIP-124)",
        2: "the same fields; brokers throttle after the response (KIP-219)",
        3: "the group instance id of static members (KIP-345)",
        4: "flexible versions (KIP-482)",
        5: "protocol type and name, in request and response, which must match the group's (KIP-559)",
    },
)
def sync_group(
    services: BrokerServices, request: SyncGroupRequest, context: RequestContext
) -> asyncio.Future[SyncGroupResponse]:
    return ask_as_member(services, request, context, GroupShard.sync_group, SyncGroupResponse)
