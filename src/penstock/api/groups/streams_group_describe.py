"""Version 0. KIP-1071: streams groups with their topology, members, epochs and tasks."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.groups.group_requests import check_streams_protocol, describing
from penstock.core.metadata.image import Image
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeResponse

API = Api(
    ApiKey.STREAMS_GROUP_DESCRIBE,
    (0, 0),
    on_broker=lambda services: make_streams_group_describe(services.image, services.groups, services.access),
)


def make_streams_group_describe(image: Image, groups: Groups, access: AccessControl) -> Handler:
    """The handler."""

    async def describe(group: str, context: RequestContext) -> DescribedGroup:
        check_streams_protocol(image, groups)
        check(access, context, Operation.DESCRIBE, ResourceType.GROUP, group)
        if not group:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
        found: DescribedGroup = await groups.read(group, lambda shard: shard.streams.describe(group))
        topics = _topics(found)
        if len(access.allowed(context.client, Operation.DESCRIBE, ResourceType.TOPIC, topics)) < len(topics):
            raise ApiError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The described group uses topics that the client is not authorized to describe.",
            )
        return found

    return describing(access, describe, DescribedGroup, StreamsGroupDescribeResponse)


def _topics(group: DescribedGroup) -> set[str]:
    """Every topic in a description of a group."""
    names: set[str] = set()
    for row in (group.topology.subtopologies or ()) if group.topology is not None else ():
        names.update(row.source_topics, row.repartition_sink_topics)
        names.update(topic.name for topic in (*row.repartition_source_topics, *row.state_changelog_topics))
    return names
