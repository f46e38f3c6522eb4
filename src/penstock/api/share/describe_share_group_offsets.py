"""Versions 0-1. KIP-932: where share groups are; KIP-1226 their lag."""

from __future__ import annotations

from penstock.api.access import check, split_by_right
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.groups.group_requests import check_share_protocol
from penstock.api.pieces import GROUPS_MAX, in_turns
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)


def make_describe_share_group_offsets(services: BrokerServices) -> Handler:
    """The handler."""
    access = services.access

    async def describe_share_group_offsets(
        request: DescribeShareGroupOffsetsRequest, context: RequestContext
    ) -> DescribeShareGroupOffsetsResponse:
        return DescribeShareGroupOffsetsResponse(
            groups=[await describe(group, context) async for group in in_turns(request.groups, GROUPS_MAX)]
        )

    async def describe(
        group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
    ) -> DescribeShareGroupOffsetsResponseGroup:
        name = group.group_id
        try:
            check_share_protocol(services.image)
            check(access, context, Operation.DESCRIBE, ResourceType.GROUP, name)
            topics = await (all_topics(name, context) if group.topics is None else some_topics(group, context))
            return DescribeShareGroupOffsetsResponseGroup(name, topics)
        except ApiError as error:
            return DescribeShareGroupOffsetsResponseGroup(name, (), error.code, error.message)

    async def all_topics(group: str, context: RequestContext) -> list[DescribeShareGroupOffsetsResponseTopic]:
        found = await services.share_groups.describe_all_offsets(group)
        allowed, _ = await split_by_right(
            access, context, Operation.DESCRIBE, ResourceType.TOPIC, found, lambda topic: topic.topic_name
        )
        return allowed

    async def some_topics(
        group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
    ) -> list[DescribeShareGroupOffsetsResponseTopic]:
        allowed, refused = await split_by_right(
            access, context, Operation.DESCRIBE, ResourceType.TOPIC, group.topics or (), lambda topic: topic.topic_name
        )
        return [*await services.share_groups.describe_offsets(group.group_id, allowed), *map(_refused, refused)]

    return describe_share_group_offsets


def _refused(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rows = [
        DescribeShareGroupOffsetsResponsePartition(index, error_code=code, error_message="Topic authorization failed.")
        for index in topic.partitions
    ]
    return DescribeShareGroupOffsetsResponseTopic(topic.topic_name, partitions=rows)


API = Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), on_broker=make_describe_share_group_offsets)
