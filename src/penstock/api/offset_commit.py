"""Versions 2-9. KIP-320 leader epochs and commit metadata are kept; KIP-848 member epochs are checked.

An offset for a partition that does not exist is refused; the others of the request are committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.api.group_calls import answer_or, caller_of
from penstock.core.metadata.image import Image
from penstock.model.errors import ErrorCode
from penstock.runtime.coordinator.groups import Groups
from penstock.wire.apis import ApiKey
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

API = Api(ApiKey.OFFSET_COMMIT, (2, 9), on_broker=lambda services: make_offset_commit(services.image, services.groups))

Rows = list[OffsetCommitResponsePartition]


def make_offset_commit(image: Image, groups: Groups) -> Handler:
    """The handler."""

    def offset_commit(
        request: OffsetCommitRequest, context: RequestContext
    ) -> asyncio.Future[OffsetCommitResponse] | Coroutine[Any, Any, OffsetCommitResponse]:
        known, refused = divide(request)
        if not known:
            return asyncio.sleep(0, OffsetCommitResponse(topics=_topics(refused)))
        if refused:
            return commit_known(request._replace(topics=known), refused, context)
        return ask(request, context)

    async def commit_known(
        request: OffsetCommitRequest, refused: dict[str, Rows], context: RequestContext
    ) -> OffsetCommitResponse:
        response: OffsetCommitResponse = await ask(request, context)
        rows = {topic.name: [*topic.partitions] for topic in response.topics}
        for name, more in refused.items():
            rows.setdefault(name, []).extend(more)
        return response._replace(topics=_topics(rows))

    def ask(request: OffsetCommitRequest, context: RequestContext) -> asyncio.Future[OffsetCommitResponse]:
        caller = caller_of(context)
        return answer_or(
            groups,
            request.group_id,
            lambda shard, token, now_ms: shard.offset_commit(request, caller, token, now_ms),
            lambda code: refuse_all(request, code),
        )

    def divide(request: OffsetCommitRequest) -> tuple[list[OffsetCommitRequestTopic], dict[str, Rows]]:
        known = []
        refused: dict[str, Rows] = {}
        for topic in request.topics:
            found = image.topics.get(topic.name)
            count = len(found.partitions) if found is not None else 0
            good = [row for row in topic.partitions if 0 <= row.partition_index < count]
            bad = [row for row in topic.partitions if not 0 <= row.partition_index < count]
            if good:
                known.append(topic._replace(partitions=good))
            if bad:
                refused[topic.name] = [
                    OffsetCommitResponsePartition(row.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    for row in bad
                ]
        return known, refused

    return offset_commit


def refuse_all(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition of a request."""
    return OffsetCommitResponse(
        topics=_topics(
            {
                topic.name: [OffsetCommitResponsePartition(row.partition_index, code) for row in topic.partitions]
                for topic in request.topics
            }
        )
    )


def _topics(rows: dict[str, Rows]) -> list[OffsetCommitResponseTopic]:
    return [OffsetCommitResponseTopic(name, partitions=partitions) for name, partitions in rows.items()]
