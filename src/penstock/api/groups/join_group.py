"""Versions 0-9. Classic groups: KIP-345 static members, KIP-394 member ids first, KIP-814 skipped assignments.

The answer waits until the group's rebalance is complete.
"""

from __future__ import annotations

import asyncio

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import answer_or, answered, caller_of
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


@broker_api(
    ApiKey.JOIN_GROUP,
    versions={
        0: "the first version; the session timeout bounds rebalances too",
        1: "a separate rebalance timeout in the request (KIP-62)",
        2: "the response contains the throttle time (KIP-124)",
        3: "the same fields; brokers throttle after the response (KIP-219)",
        4: "the same fields; a new member gets its id first, then joins again with it (KIP-394)",
        5: "the group instance id of static members (KIP-345)",
        6: "flexible versions (KIP-482)",
        7: "the protocol type in the response, and a protocol name that may be null (KIP-559)",
        8: "the reason for joining in the request (KIP-800)",
        9: "the response can tell the leader to skip the assignment (KIP-814)",
    },
)
def join_group(
    services: BrokerServices, request: JoinGroupRequest, context: RequestContext
) -> asyncio.Future[JoinGroupResponse]:
    def refuse(code: ErrorCode) -> JoinGroupResponse:
        protocol_name = None if context.api_version >= 7 else ""
        return JoinGroupResponse(error_code=code, member_id=request.member_id, protocol_name=protocol_name)

    if not services.access.allows(context.client, Operation.READ, ResourceType.GROUP, request.group_id):
        return answered(refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    caller = caller_of(context, services.access, request.group_id)
    return answer_or(
        services.groups,
        request.group_id,
        lambda shard, token, now_ms: shard.join_group(request, caller, token, now_ms),
        refuse,
    )
