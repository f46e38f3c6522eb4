"""Versions 0-13. KIP-516 topic ids, KIP-430 authorized operations, topics created on first use.

The response includes topics that the request creates once they exist, so the client need not ask twice.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from penstock.api.access import NOT_ASKED
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.pieces import ROWS_MAX, distinct, in_turns
from penstock.core.metadata.image import Broker, Image, PartitionState, Topic
from penstock.core.metadata.topic_names import AUDIT_TOPIC, INTERNAL_TOPICS, check_topic_name
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_LEADER, ZERO_UUID, Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NULL_NAMES_SINCE = 12
CREATE_TOPICS_VERSION = 7
DESCRIBE, TOPIC = Operation.DESCRIBE, ResourceType.TOPIC


@broker_api(
    ApiKey.METADATA,
    versions={
        0: "the first version; an empty list of topics requests all of them",
        1: "racks, the controller's id and internal topics; null requests all topics, [] none",
        2: "the cluster id in the response (KIP-78)",
        3: "the response contains the throttle time (KIP-124)",
        4: "the request contains whether missing topics may be created",
        5: "offline replicas of each partition in the response (KIP-112)",
        6: "the same fields; brokers throttle after the response (KIP-219)",
        7: "leader epochs of partitions in the response (KIP-320)",
        8: "operations that the client may do on topics and the cluster, on request (KIP-430)",
        9: "flexible versions (KIP-482)",
        10: "topic ids in the response (KIP-516)",
        11: "no more authorized operations of the cluster; DescribeCluster returns them (KIP-700)",
        12: "topics may be requested by id; names in the response may be null (KIP-516)",
        13: "an error code for the whole response, so that a client can bootstrap again (KIP-1102)",
    },
)
def metadata(
    services: BrokerServices, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    # As in Kafka, a topic that is named many times is described once.
    wanted = request.topics and distinct(request.topics, lambda topic: topic)
    if wanted is None or (not wanted and context.api_version == 0):
        if len(services.image.topics) > ROWS_MAX:
            return _respond_with_all(services, request, context)
        seen = services.access.allowed(context.client, DESCRIBE, TOPIC, services.image.topics)
        return _respond(
            services,
            [_describe(services, services.image.topics[name], request, context) for name in seen],
            request,
            context,
        )
    if len(wanted) > ROWS_MAX:
        return _create_then_respond(services, wanted, request, context)
    if _may_create_any(services, request, context) and any(
        _is_missing(services, topic.name, context) for topic in wanted
    ):
        return _create_then_respond(services, wanted, request, context)
    return _respond(services, [_find(services, topic, request, context) for topic in wanted], request, context)


async def _respond_with_all(
    services: BrokerServices, request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    topics = []
    async for name in in_turns([*services.image.topics]):
        topic = services.image.topics.get(name)
        if topic is not None and services.access.allows(context.client, DESCRIBE, TOPIC, name, quiet=True):
            topics.append(_describe(services, topic, request, context))
    return _respond(services, topics, request, context)


async def _create_then_respond(
    services: BrokerServices, wanted: Sequence[MetadataRequestTopic], request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    refused: set[str | None] = set()
    if _may_create_any(services, request, context):
        refused = await _create(services, [topic.name async for topic in in_turns(wanted)], context)
    topics = [
        _find(services, topic, request, context) if topic.name not in refused else _refuse(topic.name)
        async for topic in in_turns(wanted)
    ]
    return _respond(services, topics, request, context)


def _may_create_any(services: BrokerServices, request: MetadataRequest, context: RequestContext) -> bool:
    return services.settings.node.auto_create_topics_enable and (
        request.allow_auto_topic_creation or context.api_version < 4
    )


async def _create(services: BrokerServices, names: list[str | None], context: RequestContext) -> set[str | None]:
    """Create the topics that there are not, as many as one request may; returns those that the client may not.

    Clients ask again for those that are still unknown.
    """
    refused: set[str | None] = set()
    creatable: dict[str, None] = {}
    async for name in in_turns(names):
        if name is None or not _is_missing(services, name, context):
            continue
        if not _may_create(services, name, context):
            refused.add(name)
        elif len(creatable) < services.settings.node.penstock_auto_create_topics_max and _is_valid(name):
            creatable[name] = None
    left = [*creatable]
    while left:
        # With the client's own name and rights, and on its own account.
        wanted = CreateTopicsRequest([CreatableTopic(name, -1, -1) for name in left[:ROWS_MAX]])
        left = left[ROWS_MAX:]
        with suppress(ApiError):
            await services.decide(ApiKey.CREATE_TOPICS, wanted, context._replace(api_version=CREATE_TOPICS_VERSION))
    return refused


def _is_missing(services: BrokerServices, name: str | None, context: RequestContext) -> bool:
    """Whether there is no such topic, as far as the client may know."""
    is_possible = name and name not in services.image.topics and name != AUDIT_TOPIC
    return bool(is_possible) and _may_describe(services, name or "", context)


def _may_describe(services: BrokerServices, name: str, context: RequestContext) -> bool:
    return services.access.allows(context.client, DESCRIBE, TOPIC, name)


def _may_create(services: BrokerServices, name: str, context: RequestContext) -> bool:
    client = context.client
    return services.access.allows_on_cluster(client, Operation.CREATE, quiet=True) or services.access.allows(
        client, Operation.CREATE, ResourceType.TOPIC, name
    )


def _refuse(name: str | None, topic_id: Uuid = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, topic_id)


def _find(
    services: BrokerServices, wanted: MetadataRequestTopic, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    if wanted.name is None or (not wanted.name and wanted.topic_id != ZERO_UUID):
        by_id = services.image.topics_by_id.get(wanted.topic_id)
        nameless = None if context.api_version >= NULL_NAMES_SINCE else ""
        if by_id is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, nameless, wanted.topic_id)
        if services.access.is_on and not _may_describe(services, by_id.name, context):
            return _refuse(nameless, wanted.topic_id)
        return _describe(services, by_id, request, context)
    if services.access.is_on and not _may_describe(services, wanted.name, context):
        return _refuse(wanted.name)
    by_name = services.image.topics.get(wanted.name)
    if by_name is not None:
        return _describe(services, by_name, request, context)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(wanted.name)
    except ApiError as error:
        code = error.code
    allowed = _operations(services, wanted.name, request, context)
    return MetadataResponseTopic(code, wanted.name, topic_authorized_operations=allowed)


def _describe(
    services: BrokerServices, topic: Topic, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=_partitions(services, topic, context.client.listener_name),
        topic_authorized_operations=_operations(services, topic.name, request, context),
    )


def _operations(services: BrokerServices, name: str, request: MetadataRequest, context: RequestContext) -> int:
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return services.access.operations(context.client, ResourceType.TOPIC, name)


def _partitions(services: BrokerServices, topic: Topic, listener_name: str) -> Sequence[MetadataResponsePartition]:
    reachable = frozenset(row[0] for row in brokers_on(services.image, listener_name))
    return [
        MetadataResponsePartition(
            error_code=leader_error(services.image, state.leader, reachable),
            partition_index=index,
            leader_id=state.leader if state.leader in reachable else NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.in_sync_replicas,
            offline_replicas=offline_replicas(services.image, state),
        )
        for index, state in enumerate(topic.partitions)
    ]


def _respond(
    services: BrokerServices, topics: list[MetadataResponseTopic], request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(broker_id, host, port, rack)
            for broker_id, host, port, rack in brokers_on(services.image, context.client.listener_name)
        ],
        cluster_id=services.cluster_id,
        controller_id=services.controller_id(),
        topics=topics,
        cluster_authorized_operations=(
            services.access.operations_on_cluster(context.client)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(name)
    except ApiError:
        return False
    return True


def brokers_on(image: Image, listener_name: str) -> list[tuple[int, str, int, str | None]]:
    """Id, host, port and rack of the live brokers as clients of one listener reach them."""
    found = []
    for broker in image.brokers.values():
        endpoint = None if broker.fenced else broker.endpoint(listener_name)
        if endpoint is not None:
            found.append((broker.broker_id, *endpoint, broker.registration.rack))
    return found


def leader_error(image: Image, leader: int, reachable: Collection[int]) -> ErrorCode:
    """The error of a partition's leader: none, that there is no leader, or that it lacks the listener."""
    if leader in reachable:
        return ErrorCode.NONE
    broker = image.brokers.get(leader)
    return ErrorCode.LEADER_NOT_AVAILABLE if broker is None or broker.fenced else ErrorCode.LISTENER_NOT_FOUND


def offline_replicas(image: Image, state: PartitionState) -> list[int]:
    """The replicas whose broker is fenced or gone, or cannot open them, as their disk or their log is damaged."""
    return [replica for replica in state.replicas if not _is_online(image.brokers.get(replica), state, replica)]


def _is_online(broker: Broker | None, state: PartitionState, replica: int) -> bool:
    return broker is not None and not broker.fenced and broker.has_online_directory(state.directory(replica))
