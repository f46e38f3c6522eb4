"""Version 1. KIP-932: share groups with their members, epochs and assignments."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import check_described_topics, check_share_protocol, describe_each
from penstock.model.access import Operation, ResourceType
from penstock.wire.apis import ApiKey
from penstock.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@broker_api(
    ApiKey.SHARE_GROUP_DESCRIBE,
    versions={
        1: "the first version still served (KIP-932)",
    },
)
async def share_group_describe(
    services: BrokerServices, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(groups=await describe_each(services, request, context, _describe, DescribedGroup))


async def _describe(services: BrokerServices, group: str, context: RequestContext) -> DescribedGroup:
    check_share_protocol(services.image)
    check(services.access, context, Operation.DESCRIBE, ResourceType.GROUP, group)
    found: DescribedGroup = await services.groups.read(group, lambda shard: shard.share.describe(group))
    await check_described_topics(services.access, context, _topics(found))
    return found


def _topics(group: DescribedGroup) -> set[str]:
    """Every topic in a description of a group."""
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        names.update(row.topic_name for row in member.assignment.topic_partitions)
    return names
