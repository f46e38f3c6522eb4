"""Version 1. KIP-932: share groups with their members, epochs and assignments."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.groups.group_requests import check_described_topics, check_share_protocol, describing
from penstock.model.access import Operation, ResourceType
from penstock.wire.apis import ApiKey
from penstock.wire.messages.share_group_describe import DescribedGroup, ShareGroupDescribeResponse


def make_share_group_describe(services: BrokerServices) -> Handler:
    """The handler."""

    async def describe(group: str, context: RequestContext) -> DescribedGroup:
        check_share_protocol(services.image)
        check(services.access, context, Operation.DESCRIBE, ResourceType.GROUP, group)
        found: DescribedGroup = await services.groups.read(group, lambda shard: shard.share.describe(group))
        await check_described_topics(services.access, context, _topics(found))
        return found

    return describing(services.access, describe, DescribedGroup, ShareGroupDescribeResponse)


def _topics(group: DescribedGroup) -> set[str]:
    """Every topic in a description of a group."""
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        names.update(row.topic_name for row in member.assignment.topic_partitions)
    return names


API = Api(ApiKey.SHARE_GROUP_DESCRIBE, (1, 1), on_broker=make_share_group_describe)
