"""Versions 0-4. Classic groups: keeps a member alive and tells it of a rebalance."""

from __future__ import annotations

import asyncio

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.group_calls import answer_or, caller_of
from penstock.runtime.coordinator.groups import Groups
from penstock.wire.apis import ApiKey
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

API = Api(ApiKey.HEARTBEAT, (0, 4), on_broker=lambda services: make_heartbeat(services.groups))


def make_heartbeat(groups: Groups) -> Handler:
    """The handler."""

    def heartbeat(request: HeartbeatRequest, context: RequestContext) -> asyncio.Future[HeartbeatResponse]:
        caller = caller_of(context)
        return answer_or(
            groups,
            request.group_id,
            lambda shard, token, now_ms: shard.heartbeat(request, caller, token, now_ms),
            lambda code: HeartbeatResponse(error_code=code),
        )

    return heartbeat
