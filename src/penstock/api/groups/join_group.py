"""Versions 0-9. Classic groups: KIP-345 static members, KIP-394 member ids first, KIP-814 skipped assignments.

The answer waits until the group's rebalance is complete.
"""

from __future__ import annotations

import asyncio

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.groups.group_requests import answer_or, answered, caller_of
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


def make_join_group(services: BrokerServices) -> Handler:
    """The handler."""

    def join_group(request: JoinGroupRequest, context: RequestContext) -> asyncio.Future[JoinGroupResponse]:
        def refuse(code: ErrorCode) -> JoinGroupResponse:
            protocol_name = None if context.api_version >= 7 else ""
            return JoinGroupResponse(error_code=code, member_id=request.member_id, protocol_name=protocol_name)

        if not services.access.allows(context.client, Operation.READ, ResourceType.GROUP, request.group_id):
            return answered(refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        caller = caller_of(context, services.access)
        return answer_or(
            services.groups,
            request.group_id,
            lambda shard, token, now_ms: shard.join_group(request, caller, token, now_ms),
            refuse,
        )

    return join_group


API = Api(ApiKey.JOIN_GROUP, (0, 9), on_broker=make_join_group)
