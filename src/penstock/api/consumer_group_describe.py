"""Versions 0-1. KIP-848: consumer groups with their members, epochs and assignments."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.group_calls import check_consumer_protocol
from penstock.api.operations import ALL_ON_GROUP, NOT_ASKED
from penstock.core.metadata.image import Image
from penstock.model.errors import ApiError
from penstock.runtime.coordinator.groups import Groups
from penstock.wire.apis import ApiKey
from penstock.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

API = Api(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    (0, 1),
    on_broker=lambda services: make_consumer_group_describe(services.image, services.groups),
)


def make_consumer_group_describe(image: Image, groups: Groups) -> Handler:
    """The handler."""

    async def consumer_group_describe(
        request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> ConsumerGroupDescribeResponse:
        allowed = ALL_ON_GROUP if request.include_authorized_operations else NOT_ASKED
        found = [await describe(group) for group in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=[group._replace(authorized_operations=allowed) for group in found])

    async def describe(group: str) -> DescribedGroup:
        try:
            check_consumer_protocol(image)
            return await groups.read(group, lambda shard: shard.consumer_group_describe(group))
        except ApiError as error:
            return DescribedGroup(error.code, error.message, group)

    return consumer_group_describe
