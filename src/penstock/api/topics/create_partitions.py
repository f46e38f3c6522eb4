"""Versions 0-3. KIP-195: grow a topic, with or without naming the brokers. KIP-599 quotas."""

from __future__ import annotations

from collections import Counter

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.api.pieces import in_turns
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.security.client_quotas import MutationQuota
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_QUOTA_SINCE = 3


@forwarded_api(
    ApiKey.CREATE_PARTITIONS,
    versions={
        0: "the first version (KIP-195)",
        1: "the same fields; brokers throttle after the response (KIP-219)",
        2: "flexible versions (KIP-482)",
        3: "the same fields; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)",
    },
)
async def create_partitions(
    services: SharedServices, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = []
    is_strict = context.api_version >= STRICT_QUOTA_SINCE
    quota = services.quotas.mutations(context.client, context.client_id, is_strict=is_strict)
    async for topic in in_turns({topic.name: topic for topic in request.topics}.values()):
        try:
            if named[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the request names it twice")
            check(services.access, context, Operation.ALTER, ResourceType.TOPIC, topic.name)
            await _grow(services, topic, quota, request.validate_only)
        except ApiError as error:
            results.append(CreatePartitionsTopicResult(topic.name, error.code, error.message))
        else:
            results.append(CreatePartitionsTopicResult(topic.name))
    return CreatePartitionsResponse(quota.throttle_ms(), results)


async def _grow(
    services: SharedServices, topic: CreatePartitionsTopic, quota: MutationQuota, validate_only: bool
) -> None:
    assignments = None
    if topic.assignments is not None:
        assignments = [tuple(row.broker_ids) for row in topic.assignments]
    await services.controller.create_partitions(
        topic.name, topic.count, assignments, quota.charge, validate_only=validate_only
    )
