"""Version 1. KIP-932: share groups with their members, epochs and assignments."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.groups.group_requests import check_described_topics, check_share_protocol, describing
from penstock.core.metadata.image import Image
from penstock.model.access import Operation, ResourceType
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.share_group_describe import DescribedGroup, ShareGroupDescribeResponse

API = Api(
    ApiKey.SHARE_GROUP_DESCRIBE,
    (1, 1),
    on_broker=lambda services: make_share_group_describe(services.image, services.groups, services.access),
)


def make_share_group_describe(image: Image, groups: Groups, access: AccessControl) -> Handler:
    """The handler."""

    async def describe(group: str, context: RequestContext) -> DescribedGroup:
        check_share_protocol(image)
        check(access, context, Operation.DESCRIBE, ResourceType.GROUP, group)
        found: DescribedGroup = await groups.read(group, lambda shard: shard.share.describe(group))
        check_described_topics(access, context, _topics(found))
        return found

    return describing(access, describe, DescribedGroup, ShareGroupDescribeResponse)


def _topics(group: DescribedGroup) -> set[str]:
    """Every topic in a description of a group."""
    names: set[str] = set()
    for member in group.members:
        names.update(member.subscribed_topic_names)
        names.update(row.topic_name for row in member.assignment.topic_partitions)
    return names
