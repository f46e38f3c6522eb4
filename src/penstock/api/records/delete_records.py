"""Versions 0-2. KIP-107: move a partition's start up; -1 means up to the high watermark.

The new start is checkpointed before the answer, so that deleted records do not come back after a crash, and every
in-sync replica has it, so that they do not come back with another leader.
"""

from __future__ import annotations

import asyncio
import logging

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.pieces import in_turns
from penstock.api.records.coordinated_topics import check_deletion
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication import leading
from penstock.storage.files import StorageError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

logger = logging.getLogger("penstock.api")

Waiting = list[tuple[asyncio.Future[None], list[DeleteRecordsPartitionResult], int]]


@broker_api(
    ApiKey.DELETE_RECORDS,
    versions={
        0: "the first version (KIP-107)",
        1: "the same fields; brokers throttle after the response (KIP-219)",
        2: "flexible versions (KIP-482)",
    },
)
async def delete_records(
    services: BrokerServices, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    topics = []
    moved = []
    places: list[tuple[list[DeleteRecordsPartitionResult], int]] = []
    waiting: Waiting = []
    async for topic in in_turns(request.topics):
        rows = []
        async for wanted in in_turns(topic.partitions):
            try:
                check(services.access, context, Operation.DELETE, ResourceType.TOPIC, topic.name)
                check_deletion(topic.name)
                partition = services.partitions.lookup(topic.name, b"", wanted.partition_index, by_id=False)
                services.image.links.check_not_mirroring(partition.topic_id, topic.name)
                start = leading.delete_records(partition, wanted.offset)
            except ApiError as error:
                rows.append(DeleteRecordsPartitionResult(wanted.partition_index, -1, error.code))
                continue
            moved.append(partition)
            places.append((rows, len(rows)))
            gone = leading.deleted(partition, start)
            if not gone.done():
                waiting.append((gone, rows, len(rows)))
            rows.append(DeleteRecordsPartitionResult(wanted.partition_index, start))
        topics.append(DeleteRecordsTopicResult(topic.name, rows))
    try:
        await services.settle_deletions(moved)
    except StorageError as error:
        # For example a full disk: until the new starts are durable no record may be reported as deleted.
        logger.error("records were not deleted: %s", error)
        waiting = []
        for rows, number in places:
            rows[number] = DeleteRecordsPartitionResult(rows[number].partition_index, -1, error.code)
    response = DeleteRecordsResponse(topics=topics)
    return await _wait(response, waiting, request.timeout_ms) if waiting else response


async def _wait(response: DeleteRecordsResponse, waiting: Waiting, timeout_ms: int) -> DeleteRecordsResponse:
    """Answer when the followers have caught up, or after the client's timeout."""
    await asyncio.wait([gone for gone, _, _ in waiting], timeout=max(0, timeout_ms) / 1000)
    for gone, rows, number in waiting:
        if not gone.done():
            code = ErrorCode.REQUEST_TIMED_OUT
        else:
            failure = gone.exception()
            code = failure.code if isinstance(failure, ApiError) else ErrorCode.NONE
        rows[number] = rows[number]._replace(error_code=code)
    return response
