"""Versions 2-10. KIP-320 leader epochs and commit metadata are kept; KIP-848 member epochs and topic ids.

An offset for a partition that does not exist is rejected; the others of the request are committed. From version 10 on
topics are named by their ids, and an offset for a deleted topic is not taken for one of its successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import answer_or, answered, caller_of
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.apis import ApiKey
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_SINCE = 10

Rows = list[OffsetCommitResponsePartition]
# By the topic's name and id; of an unknown id there is no name, before version 10 there is no id.
RowsByTopic = dict[tuple[str, Uuid], Rows]


@broker_api(
    ApiKey.OFFSET_COMMIT,
    versions={
        2: "the first version still served: group generation and member, one retention time for all",
        3: "the response contains the throttle time (KIP-124)",
        4: "the same fields; brokers throttle after the response (KIP-219)",
        5: "no more retention time in the request; only brokers configure it (KIP-211)",
        6: "leader epochs are committed with offsets (KIP-320)",
        7: "the group instance id of static members (KIP-345)",
        8: "flexible versions (KIP-482)",
        9: "the same fields; consumers of the new protocol send their member epoch (KIP-848)",
        10: "topic ids instead of names (KIP-848)",
    },
)
def offset_commit(
    services: BrokerServices, request: OffsetCommitRequest, context: RequestContext
) -> asyncio.Future[OffsetCommitResponse] | Coroutine[Any, Any, OffsetCommitResponse]:
    if not services.access.allows(context.client, Operation.READ, ResourceType.GROUP, request.group_id):
        return answered(refuse_all(request, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    known, refused = _divide(services, request, context)
    if not known:
        return answered(OffsetCommitResponse(topics=_topics(refused)))
    if refused:
        return _commit_known(services, request._replace(topics=known), refused, context)
    return _ask(services, request._replace(topics=known), context)


async def _commit_known(
    services: BrokerServices, request: OffsetCommitRequest, refused: RowsByTopic, context: RequestContext
) -> OffsetCommitResponse:
    response: OffsetCommitResponse = await _ask(services, request, context)
    rows = {(topic.name, topic.topic_id): [*topic.partitions] for topic in response.topics}
    for topic, more in refused.items():
        rows.setdefault(topic, []).extend(more)
    return response._replace(topics=_topics(rows))


def _ask(
    services: BrokerServices, request: OffsetCommitRequest, context: RequestContext
) -> asyncio.Future[OffsetCommitResponse]:
    caller = caller_of(context, services.access, request.group_id)
    return answer_or(
        services.groups,
        request.group_id,
        lambda shard, token, now_ms: shard.offset_commit(request, caller, token, now_ms),
        lambda code: refuse_all(request, code),
    )


def _divide(
    services: BrokerServices, request: OffsetCommitRequest, context: RequestContext
) -> tuple[list[OffsetCommitRequestTopic], RowsByTopic]:
    known = []
    refused: RowsByTopic = {}
    for asked in request.topics:
        topic = asked
        if context.api_version >= TOPIC_IDS_SINCE:
            named = services.image.topics_by_id.get(asked.topic_id)
            if named is None:
                unknown = _rows(asked.partitions, ErrorCode.UNKNOWN_TOPIC_ID)
                refused.setdefault(("", asked.topic_id), []).extend(unknown)
                continue
            topic = asked._replace(name=named.name)
        if not services.access.allows(context.client, Operation.READ, ResourceType.TOPIC, topic.name):
            refused[topic.name, topic.topic_id] = _rows(topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            continue
        found = services.image.topics.get(topic.name)
        count = len(found.partitions) if found is not None else 0
        good = [row for row in topic.partitions if 0 <= row.partition_index < count]
        bad = [row for row in topic.partitions if not 0 <= row.partition_index < count]
        if good:
            known.append(topic._replace(partitions=good))
        if bad:
            refused[topic.name, topic.topic_id] = _rows(bad, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return known, refused


def refuse_all(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition of a request."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(topic.name, topic.topic_id, _rows(topic.partitions, code))
            for topic in request.topics
        ]
    )


def _rows(partitions: Iterable[OffsetCommitRequestPartition], code: ErrorCode) -> Rows:
    return [OffsetCommitResponsePartition(row.partition_index, code) for row in partitions]


def _topics(rows: RowsByTopic) -> list[OffsetCommitResponseTopic]:
    return [OffsetCommitResponseTopic(*topic, partitions) for topic, partitions in rows.items()]
