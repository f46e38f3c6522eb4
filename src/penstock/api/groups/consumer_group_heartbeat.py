"""Versions 0-1. KIP-848: join, stay in and leave a consumer group whose coordinator assigns the partitions."""

from __future__ import annotations

import asyncio

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.groups.group_requests import answer_or, caller_of, check_consumer_protocol
from penstock.core.metadata.image import Image
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

API = Api(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    (0, 1),
    on_broker=lambda services: make_consumer_group_heartbeat(services.image, services.groups, services.access),
)


def make_consumer_group_heartbeat(image: Image, groups: Groups, access: AccessControl) -> Handler:
    """The handler."""

    def consumer_group_heartbeat(
        request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> ConsumerGroupHeartbeatResponse | asyncio.Future[ConsumerGroupHeartbeatResponse]:
        try:
            check_consumer_protocol(image, groups)
            check(access, context, Operation.READ, ResourceType.GROUP, request.group_id)
            for name in (request.subscribed_topic_names or ()) if access.is_on else ():
                check(access, context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        except ApiError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
        caller = caller_of(context, access)
        return answer_or(
            groups,
            request.group_id,
            lambda shard, token, now_ms: shard.consumer.heartbeat(request, caller, token, now_ms),
            lambda code: ConsumerGroupHeartbeatResponse(error_code=code, error_message=code.name),
            gather=True,
        )

    return consumer_group_heartbeat
