"""Versions 0-1. KIP-848: consumer groups with their members, epochs and assignments."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.groups.group_requests import check_consumer_protocol, check_described_topics, describing
from penstock.model.access import Operation, ResourceType
from penstock.wire.apis import ApiKey
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse, DescribedGroup


def make_consumer_group_describe(services: BrokerServices) -> Handler:
    """The handler."""

    async def describe(group: str, context: RequestContext) -> DescribedGroup:
        check_consumer_protocol(services.image, services.groups)
        check(services.access, context, Operation.DESCRIBE, ResourceType.GROUP, group)
        found: DescribedGroup = await services.groups.read(group, lambda shard: shard.consumer.describe(group))
        await check_described_topics(services.access, context, _topics(found))
        return found

    return describing(services.access, describe, DescribedGroup, ConsumerGroupDescribeResponse)


def _topics(group: DescribedGroup) -> set[str]:
    """Every topic in a description of a group."""
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        for assignment in (member.assignment, member.target_assignment):
            names.update(row.topic_name for row in assignment.topic_partitions)
    return names


API = Api(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), on_broker=make_consumer_group_describe)
