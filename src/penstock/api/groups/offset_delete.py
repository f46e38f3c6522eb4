"""Version 0. KIP-496: forget a group's offsets of topics it no longer reads."""

from __future__ import annotations

from penstock.api.access import split_by_right
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import answer_or, caller_of
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@broker_api(
    ApiKey.OFFSET_DELETE,
    versions={
        0: "the first version (KIP-496)",
    },
)
async def offset_delete(
    services: BrokerServices, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse:
    if not services.access.allows(context.client, Operation.DELETE, ResourceType.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    allowed, refused = await split_by_right(
        services.access, context, Operation.READ, ResourceType.TOPIC, request.topics, lambda topic: topic.name
    )
    asked = request._replace(topics=allowed)
    caller = caller_of(context)
    response: OffsetDeleteResponse = await answer_or(
        services.groups,
        request.group_id,
        lambda shard, token, now_ms: shard.offset_delete(asked, caller, token, now_ms),
        lambda code: OffsetDeleteResponse(error_code=code),
    )
    if response.error_code or not refused:
        return response
    return response._replace(topics=[*response.topics, *map(_refused, refused)])


def _refused(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetDeleteResponseTopic(
        topic.name, [OffsetDeleteResponsePartition(row.partition_index, code) for row in topic.partitions]
    )
