"""Version 0. KIP-1071: streams groups with their topology, members, epochs and tasks."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import check_streams_protocol, describe_each
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)


@broker_api(
    ApiKey.STREAMS_GROUP_DESCRIBE,
    versions={
        0: "the first version (KIP-1071)",
    },
)
async def streams_group_describe(
    services: BrokerServices, request: StreamsGroupDescribeRequest, context: RequestContext
) -> StreamsGroupDescribeResponse:
    return StreamsGroupDescribeResponse(
        groups=await describe_each(services, request, context, _describe, DescribedGroup)
    )


async def _describe(services: BrokerServices, group: str, context: RequestContext) -> DescribedGroup:
    check_streams_protocol(services.image, services.groups)
    check(services.access, context, Operation.DESCRIBE, ResourceType.GROUP, group)
    if not group:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
    found: DescribedGroup = await services.groups.read(group, lambda shard: shard.streams.describe(group))
    topics = _topics(found)
    if len(services.access.allowed(context.client, Operation.DESCRIBE, ResourceType.TOPIC, topics)) < len(topics):
        raise ApiError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The described group uses topics that the client is not authorized to describe.",
        )
    return found


def _topics(group: DescribedGroup) -> set[str]:
    """Every topic in a description of a group."""
    names: set[str] = set()
    for row in (group.topology.subtopologies or ()) if group.topology is not None else ():
        names.update(row.source_topics, row.repartition_sink_topics)
        names.update(topic.name for topic in (*row.repartition_source_topics, *row.state_changelog_topics))
    return names
