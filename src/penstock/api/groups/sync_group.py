"""Versions 0-5. Classic groups: the leader sends the assignment, every member gets its own."""

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
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

API = Api(ApiKey.SYNC_GROUP, (0, 5), on_broker=lambda services: make_sync_group(services.groups, services.access))


def make_sync_group(groups: Groups, access: AccessControl) -> Handler:
    """The handler."""

    def sync_group(request: SyncGroupRequest, context: RequestContext) -> asyncio.Future[SyncGroupResponse]:
        if not access.allows(context.client, Operation.READ, ResourceType.GROUP, request.group_id):
            return answered(SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        caller = caller_of(context)
        return answer_or(
            groups,
            request.group_id,
            lambda shard, token, now_ms: shard.sync_group(request, caller, token, now_ms),
            lambda code: SyncGroupResponse(error_code=code),
        )

    return sync_group
