"""Versions 0-5. Classic groups: KIP-345 many members at once, KIP-800 reasons."""

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
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

API = Api(ApiKey.LEAVE_GROUP, (0, 5), on_broker=lambda services: make_leave_group(services.groups, services.access))


def make_leave_group(groups: Groups, access: AccessControl) -> Handler:
    """The handler."""

    def leave_group(request: LeaveGroupRequest, context: RequestContext) -> asyncio.Future[LeaveGroupResponse]:
        if not access.allows(context.client, Operation.READ, ResourceType.GROUP, request.group_id):
            return answered(LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        caller = caller_of(context)
        return answer_or(
            groups,
            request.group_id,
            lambda shard, token, now_ms: shard.leave_group(request, caller, token, now_ms),
            lambda code: LeaveGroupResponse(error_code=code),
        )

    return leave_group
