"""Versions 1-6. KIP-599 error messages and quotas, KIP-516 deletion by topic id."""

from __future__ import annotations

from penstock.api.access import refusal
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.api.pieces import in_turns
from penstock.core.metadata.image import Image, Topic
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid, format_uuid
from penstock.runtime.security.client_quotas import MutationQuota
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

NAMES_AND_IDS_SINCE = 6
STRICT_QUOTA_SINCE = 5


@forwarded_api(
    ApiKey.DELETE_TOPICS,
    versions={
        1: "the first version still served: topics by name; throttle time in the response (KIP-124)",
        2: "the same fields; brokers throttle after the response (KIP-219)",
        3: "the same fields; TOPIC_DELETION_DISABLED may be returned (KIP-322)",
        4: "flexible versions (KIP-482)",
        5: "error messages; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)",
        6: "topics by name or by id (KIP-516)",
    },
)
async def delete_topics(
    services: SharedServices, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    if context.api_version >= NAMES_AND_IDS_SINCE:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, ZERO_UUID) for name in request.topic_names]
    is_strict = context.api_version >= STRICT_QUOTA_SINCE
    quota = services.quotas.mutations(context.client, context.client_id, is_strict=is_strict)
    results = [await _delete(services, *each, quota, context) async for each in in_turns(wanted)]
    return DeleteTopicsResponse(quota.throttle_ms(), results)


async def _delete(
    services: SharedServices, name: str | None, topic_id: Uuid, quota: MutationQuota, context: RequestContext
) -> DeletableTopicResult:
    def may(operation: Operation, topic: str) -> bool:
        return services.access.allows_on_cluster(
            context.client, Operation.DELETE, quiet=True
        ) or services.access.allows(context.client, operation, ResourceType.TOPIC, topic)

    shown = name

    def choose(image: Image) -> Topic:
        nonlocal shown
        if name is not None and topic_id == ZERO_UUID and not may(Operation.DESCRIBE, name):
            # Does not reveal whether there is such a topic.
            raise refusal(context, Operation.DELETE, ResourceType.TOPIC, name)
        topic = _choose(image, name, topic_id)
        if not may(Operation.DELETE, topic.name):
            if may(Operation.DESCRIBE, topic.name):
                shown = topic.name
            raise refusal(context, Operation.DELETE, ResourceType.TOPIC, shown or format_uuid(topic_id))
        return topic

    try:
        if not services.settings.node.delete_topic_enable:
            raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this cluster")
        topic = await services.controller.delete_topics(choose, quota.charge)
    except ApiError as error:
        return DeletableTopicResult(shown, topic_id, error.code, error.message)
    return DeletableTopicResult(topic.name, topic.topic_id)


def _choose(image: Image, name: str | None, topic_id: Uuid) -> Topic:
    if name is not None and topic_id != ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id, not both")
    if name is None:
        by_id = image.topics_by_id.get(topic_id)
        if by_id is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {format_uuid(topic_id)}")
        return by_id
    by_name = image.topics.get(name)
    if by_name is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return by_name
