"""Versions 0-1. KIP-848: join, stay in and leave a consumer group whose coordinator assigns the partitions."""

from __future__ import annotations

import asyncio

from penstock.api.context import Handler, RequestContext
from penstock.api.group_calls import answer_or, caller_of
from penstock.runtime.groups import Groups
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def make_consumer_group_heartbeat(groups: Groups) -> Handler:
    """The handler."""

    def consumer_group_heartbeat(
        request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> asyncio.Future[ConsumerGroupHeartbeatResponse]:
        caller = caller_of(context)
        return answer_or(
            groups,
            request.group_id,
            lambda shard, token, now_ms: shard.consumer_group_heartbeat(request, caller, token, now_ms),
            lambda code: ConsumerGroupHeartbeatResponse(error_code=code, error_message=code.name),
        )

    return consumer_group_heartbeat
