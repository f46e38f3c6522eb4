"""Versions 0-9. Classic groups: KIP-345 static members, KIP-394 member ids first, KIP-814 skipped assignments.

The answer waits until the group's rebalance is complete.
"""

from __future__ import annotations

import asyncio

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.group_calls import answer_or, caller_of
from penstock.runtime.coordinator.groups import Groups
from penstock.wire.apis import ApiKey
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

API = Api(ApiKey.JOIN_GROUP, (0, 9), on_broker=lambda services: make_join_group(services.groups))


def make_join_group(groups: Groups) -> Handler:
    """The handler."""

    def join_group(request: JoinGroupRequest, context: RequestContext) -> asyncio.Future[JoinGroupResponse]:
        caller = caller_of(context)
        return answer_or(
            groups,
            request.group_id,
            lambda shard, token, now_ms: shard.join_group(request, caller, token, now_ms),
            lambda code: JoinGroupResponse(
                error_code=code,
                member_id=request.member_id,
                protocol_name=None if context.api_version >= 7 else "",
            ),
        )

    return join_group
