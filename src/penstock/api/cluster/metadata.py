"""Versions 0-13. KIP-516 topic ids, KIP-430 authorized operations, topics created on first use.

The response includes topics that the request creates once they exist, so the client need not ask twice.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from penstock.api.access import NOT_ASKED
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.api.pieces import ROWS_MAX, in_turns
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


def make_metadata(services: BrokerServices) -> Handler:
    """The handler."""
    node = services.settings.node
    auto_create, created_max = node.auto_create_topics_enable, node.penstock_auto_create_topics_max

    def metadata(
        request: MetadataRequest, context: RequestContext
    ) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
        wanted = request.topics
        if wanted is None or (not wanted and context.api_version == 0):
            if len(services.image.topics) > ROWS_MAX:
                return respond_with_all(request, context)
            seen = services.access.allowed(context.client, DESCRIBE, TOPIC, services.image.topics)
            return respond([describe(services.image.topics[name], request, context) for name in seen], request, context)
        if len(wanted) > ROWS_MAX:
            return create_then_respond(wanted, request, context)
        if may_create_any(request, context) and any(is_missing(topic.name, context) for topic in wanted):
            return create_then_respond(wanted, request, context)
        return respond([find(topic, request, context) for topic in wanted], request, context)

    async def respond_with_all(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        topics = []
        async for name in in_turns([*services.image.topics]):
            topic = services.image.topics.get(name)
            if topic is not None and services.access.allows(context.client, DESCRIBE, TOPIC, name, quiet=True):
                topics.append(describe(topic, request, context))
        return respond(topics, request, context)

    async def create_then_respond(
        wanted: Sequence[MetadataRequestTopic], request: MetadataRequest, context: RequestContext
    ) -> MetadataResponse:
        refused: set[str | None] = set()
        if may_create_any(request, context):
            refused = await create([topic.name async for topic in in_turns(wanted)], context)
        topics = [
            find(topic, request, context) if topic.name not in refused else refuse(topic.name)
            async for topic in in_turns(wanted)
        ]
        return respond(topics, request, context)

    def may_create_any(request: MetadataRequest, context: RequestContext) -> bool:
        return auto_create and (request.allow_auto_topic_creation or context.api_version < 4)

    async def create(names: list[str | None], context: RequestContext) -> set[str | None]:
        """Create the topics that there are not, as many as one request may; returns those that the client may not.

        Clients ask again for those that are still unknown.
        """
        refused: set[str | None] = set()
        creatable: dict[str, None] = {}
        async for name in in_turns(names):
            if name is None or not is_missing(name, context):
                continue
            if not may_create(name, context):
                refused.add(name)
            elif len(creatable) < created_max and _is_valid(name):
                creatable[name] = None
        left = [*creatable]
        while left:
            # With the client's own name and rights, and on its own account.
            wanted = CreateTopicsRequest([CreatableTopic(name, -1, -1) for name in left[:ROWS_MAX]])
            left = left[ROWS_MAX:]
            with suppress(ApiError):
                await services.decide(ApiKey.CREATE_TOPICS, wanted, context._replace(api_version=CREATE_TOPICS_VERSION))
        return refused

    def is_missing(name: str | None, context: RequestContext) -> bool:
        """Whether there is no such topic, as far as the client may know."""
        is_possible = name and name not in services.image.topics and name != AUDIT_TOPIC
        return bool(is_possible) and may_describe(name or "", context)

    def may_describe(name: str, context: RequestContext) -> bool:
        return services.access.allows(context.client, DESCRIBE, TOPIC, name)

    def may_create(name: str, context: RequestContext) -> bool:
        client = context.client
        return services.access.allows_on_cluster(client, Operation.CREATE, quiet=True) or services.access.allows(
            client, Operation.CREATE, ResourceType.TOPIC, name
        )

    def refuse(name: str | None, topic_id: Uuid = ZERO_UUID) -> MetadataResponseTopic:
        return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, topic_id)

    def find(wanted: MetadataRequestTopic, request: MetadataRequest, context: RequestContext) -> MetadataResponseTopic:
        if wanted.name is None or (not wanted.name and wanted.topic_id != ZERO_UUID):
            by_id = services.image.topics_by_id.get(wanted.topic_id)
            nameless = None if context.api_version >= NULL_NAMES_SINCE else ""
            if by_id is None:
                return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, nameless, wanted.topic_id)
            if services.access.is_on and not may_describe(by_id.name, context):
                return refuse(nameless, wanted.topic_id)
            return describe(by_id, request, context)
        if services.access.is_on and not may_describe(wanted.name, context):
            return refuse(wanted.name)
        by_name = services.image.topics.get(wanted.name)
        if by_name is not None:
            return describe(by_name, request, context)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            check_topic_name(wanted.name)
        except ApiError as error:
            code = error.code
        allowed = operations(wanted.name, request, context)
        return MetadataResponseTopic(code, wanted.name, topic_authorized_operations=allowed)

    def describe(topic: Topic, request: MetadataRequest, context: RequestContext) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions(topic, context.client.listener_name),
            topic_authorized_operations=operations(topic.name, request, context),
        )

    def operations(name: str, request: MetadataRequest, context: RequestContext) -> int:
        if not request.include_topic_authorized_operations:
            return NOT_ASKED
        return services.access.operations(context.client, ResourceType.TOPIC, name)

    def partitions(topic: Topic, listener_name: str) -> Sequence[MetadataResponsePartition]:
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

    def respond(
        topics: list[MetadataResponseTopic], request: MetadataRequest, context: RequestContext
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

    return metadata


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


API = Api(ApiKey.METADATA, (0, 13), on_broker=make_metadata)
