"""Versions 0-1. KIP-848: consumer groups with their members, epochs and assignments."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import check_consumer_protocol, check_described_topics, describe_each
from penstock.model.access import Operation, ResourceType
from penstock.wire.apis import ApiKey
from penstock.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


@broker_api(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    versions={
        0: "the first version (KIP-848)",
        1: "the response contains which protocol each member uses, classic or consumer (KIP-1099)",
    },
)
async def consumer_group_describe(
    services: BrokerServices, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=await describe_each(services, request, context, _describe, DescribedGroup)
    )


async def _describe(services: BrokerServices, group: str, context: RequestContext) -> DescribedGroup:
    check_consumer_protocol(services.image, services.groups)
    check(services.access, context, Operation.DESCRIBE, ResourceType.GROUP, group)
    found: DescribedGroup = await services.groups.read(group, lambda shard: shard.consumer.describe(group))
    await check_described_topics(services.access, context, _topics(found))
    return found


def _topics(group: DescribedGroup) -> set[str]:
    """Every topic in a description of a group."""
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            names.update(row.topic_name for row in assignment.topic_partitions)
    return names
