"""Versions 0-1. KIP-932: where share groups are; KIP-1226 their lag."""

from __future__ import annotations

from penstock.api.access import check, split_by_right
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import check_share_protocol
from penstock.api.pieces import GROUPS_MAX, distinct, in_turns
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


@broker_api(
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    versions={
        0: "the first version (KIP-932)",
        1: "the lag of each partition in the response (KIP-1226)",
    },
)
async def describe_share_group_offsets(
    services: BrokerServices, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    groups = distinct(request.groups, lambda group: group.group_id if group.topics is None else id(group))
    return DescribeShareGroupOffsetsResponse(
        groups=[await _describe(services, group, context) async for group in in_turns(groups, GROUPS_MAX)]
    )


async def _describe(
    services: BrokerServices, group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> DescribeShareGroupOffsetsResponseGroup:
    name = group.group_id
    try:
        check_share_protocol(services.image)
        check(services.access, context, Operation.DESCRIBE, ResourceType.GROUP, name)
        topics = await (
            _all_topics(services, name, context) if group.topics is None else _some_topics(services, group, context)
        )
        return DescribeShareGroupOffsetsResponseGroup(name, topics)
    except ApiError as error:
        return DescribeShareGroupOffsetsResponseGroup(name, (), error.code, error.message)


async def _all_topics(
    services: BrokerServices, group: str, context: RequestContext
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    found = await services.share_groups.describe_all_offsets(group)
    allowed, _ = await split_by_right(
        services.access, context, Operation.DESCRIBE, ResourceType.TOPIC, found, lambda topic: topic.topic_name
    )
    return allowed


async def _some_topics(
    services: BrokerServices, group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    allowed, refused = await split_by_right(
        services.access,
        context,
        Operation.DESCRIBE,
        ResourceType.TOPIC,
        group.topics or (),
        lambda topic: topic.topic_name,
    )
    return [*await services.share_groups.describe_offsets(group.group_id, allowed), *map(_refused, refused)]


def _refused(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rows = [
        DescribeShareGroupOffsetsResponsePartition(index, error_code=code, error_message="Topic authorization failed.")
        for index in topic.partitions
    ]
    return DescribeShareGroupOffsetsResponseTopic(topic.topic_name, partitions=rows)
