"""Versions 0-2. KIP-107: move a partition's start up; -1 means up to the high watermark.

The new start is checkpointed before the answer, so that deleted records do not come back after a crash.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.api.context import Handler, RequestContext
from penstock.model.errors import ApiError
from penstock.runtime.partition import Partition
from penstock.runtime.partitions import Partitions
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def make_delete_records(partitions: Partitions, settle: Callable[[list[Partition]], None]) -> Handler:
    """The handler; `settle` makes new starts durable and frees what lies before them."""

    def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
        topics = []
        moved = []
        for topic in request.topics:
            rows = []
            for wanted in topic.partitions:
                try:
                    partition = partitions.lookup(topic.name, b"", wanted.partition_index, by_id=False)
                    start = partition.delete_records(wanted.offset)
                except ApiError as error:
                    rows.append(DeleteRecordsPartitionResult(wanted.partition_index, -1, error.code))
                    continue
                moved.append(partition)
                rows.append(DeleteRecordsPartitionResult(wanted.partition_index, start))
            topics.append(DeleteRecordsTopicResult(topic.name, rows))
        settle(moved)
        return DeleteRecordsResponse(topics=topics)

    return delete_records
