"""Version 0. KIP-966: topics with their partitions, a page at a time."""

from __future__ import annotations

from penstock.api.cluster.metadata import brokers_on, leader_error, offline_replicas
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.pieces import in_turns
from penstock.core.metadata.image import Image, Topic
from penstock.core.metadata.topic_names import INTERNAL_TOPICS
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_LEADER
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


@broker_api(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions={
        0: "the first version (KIP-966)",
    },
)
async def describe_topic_partitions(
    services: BrokerServices, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    asked = {topic.name for topic in request.topics}
    seen, refused = [], []
    async for name in in_turns(sorted(asked or services.image.topics)):
        if services.access.allows(context.client, Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=not asked):
            seen.append(name)
        elif asked:
            refused.append(name)
    page = await _page(services, seen, request, context)
    hidden = [
        DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        for name in refused
        if request.cursor is None or name >= request.cursor.topic_name
    ]
    return page._replace(topics=[*page.topics, *hidden]) if hidden else page


async def _page(
    services: BrokerServices, names: list[str], request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    start = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            start = max(0, request.cursor.partition_index)
    room = max(1, min(request.response_partition_limit, services.settings.node.max_request_partition_size_limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    async for name in in_turns(names):
        if room <= 0:
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, 0))
        topic = services.image.topics.get(name)
        if topic is None:
            topics.append(
                DescribeTopicPartitionsResponseTopic(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    name,
                    topic_authorized_operations=services.access.operations(context.client, ResourceType.TOPIC, name),
                )
            )
            continue
        end = min(len(topic.partitions), start + room)
        allowed = services.access.operations(context.client, ResourceType.TOPIC, name)
        topics.append(_described(services.image, topic, start, end, context.client.listener_name, allowed))
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, end))
        room -= end - start
        start = 0
    return DescribeTopicPartitionsResponse(topics=topics)


def _described(
    image: Image, topic: Topic, start: int, end: int, listener_name: str, allowed: int
) -> DescribeTopicPartitionsResponseTopic:
    reachable = frozenset(row[0] for row in brokers_on(image, listener_name))
    partitions = [
        DescribeTopicPartitionsResponsePartition(
            error_code=leader_error(image, state.leader, reachable),
            partition_index=index,
            leader_id=state.leader if state.leader in reachable else NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.in_sync_replicas,
            eligible_leader_replicas=state.eligible_leader_replicas,
            last_known_elr=state.last_known_leader_replicas,
            offline_replicas=offline_replicas(image, state),
        )
        for index, state in enumerate(topic.partitions[start:end], start)
    ]
    return DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE, topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, partitions, allowed
    )
