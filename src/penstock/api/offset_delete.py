"""Version 0. KIP-496: forget a group's offsets of topics it no longer reads."""

from __future__ import annotations

import asyncio

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.group_calls import answer_or, caller_of
from penstock.runtime.coordinator.groups import Groups
from penstock.wire.apis import ApiKey
from penstock.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

API = Api(ApiKey.OFFSET_DELETE, (0, 0), on_broker=lambda services: make_offset_delete(services.groups))


def make_offset_delete(groups: Groups) -> Handler:
    """The handler."""

    def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> asyncio.Future[OffsetDeleteResponse]:
        caller = caller_of(context)
        return answer_or(
            groups,
            request.group_id,
            lambda shard, token, now_ms: shard.offset_delete(request, caller, token, now_ms),
            lambda code: OffsetDeleteResponse(error_code=code),
        )

    return offset_delete
