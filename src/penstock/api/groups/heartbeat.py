"""Versions 0-4. Classic groups: keeps a member's session alive and tells it of a rebalance."""

from __future__ import annotations

import asyncio

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.groups.group_requests import answer_or, answered, caller_of
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ErrorCode
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

API = Api(ApiKey.HEARTBEAT, (0, 4), on_broker=lambda services: make_heartbeat(services.groups, services.access))


def make_heartbeat(groups: Groups, access: AccessControl) -> Handler:
    """The handler."""

    def heartbeat(request: HeartbeatRequest, context: RequestContext) -> asyncio.Future[HeartbeatResponse]:
        if not access.allows(context.client, Operation.READ, ResourceType.GROUP, request.group_id):
            return answered(HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        caller = caller_of(context)
        return answer_or(
            groups,
            request.group_id,
            lambda shard, token, now_ms: shard.heartbeat(request, caller, token, now_ms),
            lambda code: HeartbeatResponse(error_code=code),
        )

    return heartbeat
