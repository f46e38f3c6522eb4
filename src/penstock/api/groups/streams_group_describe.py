"""Version 0. KIP-1071: streams groups with their topology, members, epochs and tasks."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.groups.group_requests import check_streams_protocol, with_operations
from penstock.core.metadata.image import Image
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

API = Api(
    ApiKey.STREAMS_GROUP_DESCRIBE,
    (0, 0),
    on_broker=lambda services: make_streams_group_describe(services.image, services.groups, services.access),
)


def make_streams_group_describe(image: Image, groups: Groups, access: AccessControl) -> Handler:
    """The handler."""

    async def streams_group_describe(
        request: StreamsGroupDescribeRequest, context: RequestContext
    ) -> StreamsGroupDescribeResponse:
        found = [await describe(group, context) for group in request.group_ids]
        if request.include_authorized_operations:
            found = [with_operations(group, access, context) for group in found]
        return StreamsGroupDescribeResponse(groups=found)

    async def describe(group: str, context: RequestContext) -> DescribedGroup:
        try:
            check_streams_protocol(image, groups)
            check(access, context, Operation.DESCRIBE, ResourceType.GROUP, group)
            if not group:
                raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
            found: DescribedGroup = await groups.read(group, lambda shard: shard.streams.describe(group))
            allows = access.allowed(context.client, Operation.DESCRIBE, ResourceType.TOPIC, _topics(found))
            if len(allows) < len(_topics(found)):
                raise ApiError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    "The described group uses topics that the client is not authorized to describe.",
                )
            return found
        except ApiError as error:
            return DescribedGroup(error.code, error.message, group)

    return streams_group_describe


def _topics(group: DescribedGroup) -> set[str]:
    """Every topic in a description of a group."""
    names: set[str] = set()
    for row in (group.topology.subtopologies or ()) if group.topology is not None else ():
        names.update(row.source_topics, row.repartition_sink_topics)
        names.update(topic.name for topic in (*row.repartition_source_topics, *row.state_changelog_topics))
    return names
