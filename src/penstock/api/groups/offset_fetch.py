"""Versions 1-10. KIP-709 many groups in one request, KIP-447 stable offsets only, KIP-848 member epochs, topic ids."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TypeVar

from penstock.api.access import check, split_by_right
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import caller_of
from penstock.api.pieces import GROUPS_MAX, distinct, in_turns
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

MANY_SINCE = 8
TOPIC_IDS_SINCE = 10
GROUP_ERROR_SINCE = 2
NO_OFFSET = -1
# So many groups of a request wait at the same time.
TOGETHER_MAX = 1_000

T = TypeVar("T", OffsetFetchRequestTopics, OffsetFetchResponseTopics)


@broker_api(
    ApiKey.OFFSET_FETCH,
    versions={
        1: "the first version still served: offsets come from the offsets topic, not from ZooKeeper",
        2: "null topics request all offsets; an error code for the whole group (KIP-88)",
        3: "the response contains the throttle time (KIP-124)",
        4: "the same fields; brokers throttle after the response (KIP-219)",
        5: "leader epochs of committed offsets in the response (KIP-320)",
        6: "flexible versions (KIP-482)",
        7: "the request can insist on offsets without open transactions (KIP-447)",
        8: "many groups in one request (KIP-709)",
        9: "member id and member epoch of the new consumer protocol (KIP-848)",
        10: "topic ids instead of names (KIP-848)",
    },
)
async def offset_fetch(
    services: BrokerServices, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    if context.api_version >= MANY_SINCE:
        fetch = _fetch_by_id if context.api_version >= TOPIC_IDS_SINCE else _fetch
        found_groups: list[OffsetFetchResponseGroup] = []
        # Many together: a coordinator that has to find out whether it still leads does so once for all of them.
        groups = _without_repeats(request.groups)
        for start in range(0, len(groups), TOGETHER_MAX):
            async with asyncio.TaskGroup() as tasks:
                fetches = [
                    tasks.create_task(fetch(services, group, request, context))
                    async for group in in_turns(groups[start : start + TOGETHER_MAX], GROUPS_MAX)
                ]
            found_groups += [one.result() for one in fetches]
        return OffsetFetchResponse(groups=found_groups)
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(topic.name, partition_indexes=topic.partition_indexes) for topic in request.topics
        ]
    (group,) = _without_repeats([OffsetFetchRequestGroup(request.group_id, topics=topics)])
    found = await _fetch(services, group, request, context)
    return _single(found, request, context.api_version)


def _without_repeats(groups: Sequence[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Each group and partition once: offsets have metadata of some kilobytes, and a group may have many."""
    known = set[tuple[str, str, bytes, int]]()
    found = []
    for group in distinct(groups, lambda one: one.group_id if one.topics is None else id(one)):
        topics = None
        if group.topics is not None:
            topics = []
            for topic in group.topics:
                keys = dict.fromkeys((group.group_id, topic.name, topic.topic_id, at) for at in topic.partition_indexes)
                left = [key for key in keys if key not in known]
                known.update(left)
                if left or not keys:
                    topics.append(topic._replace(partition_indexes=[key[-1] for key in left]))
        found.append(group._replace(topics=topics))
    return found


async def _fetch(
    services: BrokerServices, wanted: OffsetFetchRequestGroup, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponseGroup:
    caller = caller_of(context)
    try:
        check(services.access, context, Operation.DESCRIBE, ResourceType.GROUP, wanted.group_id)
        if not wanted.group_id:
            # A consumer without a group sends an empty name; it has committed nothing.
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
        asked, refused = wanted, list[OffsetFetchRequestTopics]()
        if wanted.topics is not None:
            allowed, refused = await _may_describe(services, wanted.topics, context)
            asked = wanted._replace(topics=allowed)
        found: OffsetFetchResponseGroup = await services.groups.read(
            wanted.group_id, lambda shard: shard.offset_fetch_group(asked, request.require_stable, caller)
        )
    except ApiError as error:
        return OffsetFetchResponseGroup(wanted.group_id, error_code=error.code)
    if not services.access.is_on or found.error_code:
        return found
    if wanted.topics is None:
        seen, _ = await _may_describe(services, found.topics, context)
        return found._replace(topics=seen)
    denied = (_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for topic in refused)
    return found._replace(topics=[*found.topics, *denied])


async def _fetch_by_id(
    services: BrokerServices, wanted: OffsetFetchRequestGroup, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponseGroup:
    """As `fetch`, of topics that are named by their ids. Without any, those that still exist are returned."""
    unknown = list[OffsetFetchRequestTopics]()
    if wanted.topics is not None:
        known = []
        for topic in wanted.topics:
            found = services.image.topics_by_id.get(topic.topic_id)
            if found is None:
                unknown.append(topic)
            else:
                known.append(topic._replace(name=found.name))
        wanted = wanted._replace(topics=known)
    answer = await _fetch(services, wanted, request, context)
    if answer.error_code:
        return answer
    rows = list[OffsetFetchResponseTopics]()
    for row in answer.topics:
        named = services.image.topics.get(row.name)
        if wanted.topics is not None:
            rows.append(row)
        elif named is not None:
            rows.append(row._replace(topic_id=named.topic_id))
    return answer._replace(topics=[*rows, *(_refused(one, ErrorCode.UNKNOWN_TOPIC_ID) for one in unknown)])


async def _may_describe(
    services: BrokerServices, topics: Iterable[T], context: RequestContext
) -> tuple[list[T], list[T]]:
    return await split_by_right(
        services.access, context, Operation.DESCRIBE, ResourceType.TOPIC, topics, lambda topic: topic.name
    )


def _refused(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic.name,
        topic.topic_id,
        [
            OffsetFetchResponsePartitions(index, NO_OFFSET, metadata="", error_code=code)
            for index in topic.partition_indexes
        ],
    )


def _single(group: OffsetFetchResponseGroup, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    """The response to a request for one group. Before version 2 its error is in every partition."""
    topics = [
        OffsetFetchResponseTopic(topic.name, [OffsetFetchResponsePartition(*row) for row in topic.partitions])
        for topic in group.topics
    ]
    if group.error_code and version < GROUP_ERROR_SINCE:
        topics = [
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(index, NO_OFFSET, metadata="", error_code=group.error_code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code if version >= GROUP_ERROR_SINCE else 0)
