"""Versions 0-1. KIP-848: join, stay in and leave a consumer group whose coordinator assigns the partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from penstock.api.access import check, check_all
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.groups.group_requests import answer_or, caller_of, check_consumer_protocol
from penstock.api.pieces import ROWS_MAX
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def make_consumer_group_heartbeat(services: BrokerServices) -> Handler:
    """The handler."""

    def consumer_group_heartbeat(
        request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> (
        ConsumerGroupHeartbeatResponse
        | asyncio.Future[ConsumerGroupHeartbeatResponse]
        | Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]
    ):
        names = request.subscribed_topic_names or ()
        if len(names) > ROWS_MAX:
            return subscribe_to_many(names, request, context)
        try:
            check_consumer_protocol(services.image, services.groups)
            check(services.access, context, Operation.READ, ResourceType.GROUP, request.group_id)
            for name in names if services.access.is_on else ():
                check(services.access, context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        except ApiError as error:
            return _refused(error)
        return ask(request, context)

    async def subscribe_to_many(
        names: Sequence[str], request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> ConsumerGroupHeartbeatResponse:
        try:
            check_consumer_protocol(services.image, services.groups)
            check(services.access, context, Operation.READ, ResourceType.GROUP, request.group_id)
            await check_all(services.access, context, Operation.DESCRIBE, ResourceType.TOPIC, names)
        except ApiError as error:
            return _refused(error)
        return await ask(request, context)

    def ask(
        request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> asyncio.Future[ConsumerGroupHeartbeatResponse]:
        caller = caller_of(context, services.access)
        return answer_or(
            services.groups,
            request.group_id,
            lambda shard, token, now_ms: shard.consumer.heartbeat(request, caller, token, now_ms),
            lambda code: ConsumerGroupHeartbeatResponse(error_code=code, error_message=code.name),
            gather=True,
        )

    return consumer_group_heartbeat


def _refused(error: ApiError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


API = Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), on_broker=make_consumer_group_heartbeat)
