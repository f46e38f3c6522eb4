"""Versions 0-3. KIP-195: grow a topic, with or without naming the brokers."""

from __future__ import annotations

from collections import Counter

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.controller.controller import Controller
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

API = shared_api(
    ApiKey.CREATE_PARTITIONS,
    (0, 3),
    lambda services: make_create_partitions(services.controller, services.access),
    is_forwarded=True,
)


def make_create_partitions(controller: Controller, access: AccessControl) -> Handler:
    """The handler."""

    async def create_partitions(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
        named = Counter(topic.name for topic in request.topics)
        results = []
        for topic in {topic.name: topic for topic in request.topics}.values():
            try:
                if named[topic.name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "the request names it twice")
                check(access, context, Operation.ALTER, ResourceType.TOPIC, topic.name)
                await grow(topic, request.validate_only)
            except ApiError as error:
                results.append(CreatePartitionsTopicResult(topic.name, error.code, error.message))
            else:
                results.append(CreatePartitionsTopicResult(topic.name))
        return CreatePartitionsResponse(results=results)

    async def grow(topic: CreatePartitionsTopic, validate_only: bool) -> None:
        assignments = None
        if topic.assignments is not None:
            assignments = [tuple(row.broker_ids) for row in topic.assignments]
        await controller.create_partitions(topic.name, topic.count, assignments, validate_only=validate_only)

    return create_partitions
