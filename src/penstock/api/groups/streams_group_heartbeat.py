"""Version 0. KIP-1071: join, stay in and leave a streams group whose coordinator assigns tasks.

Internal topics that the application lacks are created with its own rights. As in Kafka 4.3, requests with an instance
id, warm-up tasks, task offsets or patterns of source topics are refused.
"""

from __future__ import annotations

from penstock.api.access import check, check_all, split_by_right
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import caller_of, check_streams_protocol
from penstock.api.pieces import in_turns
from penstock.core.group.streams.heartbeat import HeartbeatResult
from penstock.core.group.streams.internal_topics import InternalTopic
from penstock.core.group.streams.status import StatusCode
from penstock.core.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)

# How many topics that could not be created a status names at most.
FAILURES_SHOWN_MAX = 3


@broker_api(
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    versions={
        0: "the first version (KIP-1071)",
    },
)
async def streams_group_heartbeat(
    services: BrokerServices, request: StreamsGroupHeartbeatRequest, context: RequestContext
) -> StreamsGroupHeartbeatResponse:
    try:
        check_streams_protocol(services.image, services.groups)
        check(services.access, context, Operation.READ, ResourceType.GROUP, request.group_id)
        if request.topology is not None:
            await _check_topics(services, request.topology, context)
        caller = caller_of(context, services.access, request.group_id)
        result: HeartbeatResult = await services.groups.ask(
            request.group_id,
            lambda shard, token, now_ms: shard.streams.heartbeat(request, caller, token, now_ms),
            gather=True,
        )
    except ApiError as error:
        return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    return await _create_missing(services, result, context) if result.missing else result.response


async def _check_topics(services: BrokerServices, topology: Topology, context: RequestContext) -> None:
    names = _topics(topology)
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        reason = f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)
    invalid = [name async for name in in_turns(names) if not _is_valid(name)]
    if invalid:
        reason = f"Topic names {','.join(invalid)} are not valid topic names."
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)
    await check_all(services.access, context, Operation.DESCRIBE, ResourceType.TOPIC, names)


async def _create_missing(
    services: BrokerServices, result: HeartbeatResult, context: RequestContext
) -> StreamsGroupHeartbeatResponse:
    response = result.response
    refused: list[InternalTopic] = []
    if not services.access.allows_on_cluster(context.client, Operation.CREATE, quiet=True):
        _, refused = await split_by_right(
            services.access, context, Operation.CREATE, ResourceType.TOPIC, result.missing, lambda topic: topic.name
        )
    if refused:
        names = ", ".join(topic.name for topic in refused)
        return _explained(response, f"Unauthorized to CREATE on topics {names}.")
    services.streams_topics.create(result.missing, context, 2 * response.heartbeat_interval_ms)
    failures = services.streams_topics.failures(topic.name for topic in result.missing)
    if not failures:
        return response
    shown = ", ".join(f"{name} ({reason})" for name, reason in [*failures.items()][:FAILURES_SHOWN_MAX])
    more = f" and {len(failures) - FAILURES_SHOWN_MAX} more" if len(failures) > FAILURES_SHOWN_MAX else ""
    return _explained(response, f"Creation failed: {shown}{more}.")


def _topics(topology: Topology) -> list[str]:
    """Every topic that a topology names, once."""
    names: dict[str, None] = {}
    for row in topology.subtopologies:
        names |= dict.fromkeys((*row.source_topics, *row.repartition_sink_topics))
        names |= dict.fromkeys(topic.name for topic in (*row.repartition_source_topics, *row.state_changelog_topics))
    return list(names)


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(name)
    except ApiError:
        return False
    return True


def _explained(response: StreamsGroupHeartbeatResponse, reason: str) -> StreamsGroupHeartbeatResponse:
    """The response, saying why internal topics are still missing."""
    rows = [
        Status(row.status_code, f"{row.status_detail}; {reason}")
        if row.status_code == StatusCode.MISSING_INTERNAL_TOPICS
        else row
        for row in response.status or ()
    ]
    return response._replace(status=rows)
