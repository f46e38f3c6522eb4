"""Versions 0-1. KIP-848: join, stay in and leave a consumer group whose coordinator assigns the partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

from penstock.api.access import check, check_all
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import answer_or, caller_of, check_consumer_protocol
from penstock.api.pieces import ROWS_MAX
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@broker_api(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    versions={
        0: "the first version: topics by name; the coordinator can choose member ids (KIP-848)",
        1: "subscription by regular expression (KIP-848); clients choose member ids (KIP-1082)",
    },
)
def consumer_group_heartbeat(
    services: BrokerServices, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> (
    ConsumerGroupHeartbeatResponse
    | asyncio.Future[ConsumerGroupHeartbeatResponse]
    | Coroutine[object, object, ConsumerGroupHeartbeatResponse]
):
    names = request.subscribed_topic_names or ()
    if len(names) > ROWS_MAX:
        return _subscribe_to_many(services, names, request, context)
    try:
        check_consumer_protocol(services.image, services.groups)
        check(services.access, context, Operation.READ, ResourceType.GROUP, request.group_id)
        for name in names if services.access.is_on else ():
            check(services.access, context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    except ApiError as error:
        return _refused(error)
    return _ask(services, request, context)


async def _subscribe_to_many(
    services: BrokerServices, names: Sequence[str], request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    try:
        check_consumer_protocol(services.image, services.groups)
        check(services.access, context, Operation.READ, ResourceType.GROUP, request.group_id)
        await check_all(services.access, context, Operation.DESCRIBE, ResourceType.TOPIC, names)
    except ApiError as error:
        return _refused(error)
    return await _ask(services, request, context)


def _ask(
    services: BrokerServices, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> asyncio.Future[ConsumerGroupHeartbeatResponse]:
    caller = caller_of(context, services.access, request.group_id)
    return answer_or(
        services.groups,
        request.group_id,
        lambda shard, token, now_ms: shard.consumer.heartbeat(request, caller, token, now_ms),
        lambda code: ConsumerGroupHeartbeatResponse(error_code=code, error_message=code.name),
        gather=True,
    )


def _refused(error: ApiError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
