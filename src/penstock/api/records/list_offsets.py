"""Versions 1-11. Earliest, latest, by time, KIP-734 max timestamp, KIP-405, KIP-1005 and KIP-1023 for tiered storage.

A new leader that does not know yet how far its predecessor had committed returns an error (KIP-207), rather than an
offset before one that was returned earlier. A follower that requests the latest offset gets the log end offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from penstock.api.access import refusal
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.core.replica.fencing import check_leader_epoch
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.absence import note_read_failure
from penstock.runtime.replication.partition import Partition
from penstock.runtime.tier.remote_logs import RemoteLogs
from penstock.storage.files import StorageError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST_VERSION = 11


READ_COMMITTED = 1
LEADER_EPOCHS_SINCE = 4
NOT_AVAILABLE_SINCE = 5
EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -3, -4, -5
# What may be requested instead of a time, and since which version.
SPECIAL_TIMES_SINCE = {-1: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, -5: 9, -6: 11}


Row = ListOffsetsPartitionResponse | Coroutine[Any, Any, ListOffsetsPartitionResponse]


@broker_api(
    ApiKey.LIST_OFFSETS,
    versions={
        1: "the first version still served: one offset per partition, with its timestamp (KIP-79)",
        2: "isolation level in the request (KIP-98), throttle time in the response (KIP-124)",
        3: "the same fields; brokers throttle after the response (KIP-219)",
        4: "the client's leader epoch in the request, the offset's in the response (KIP-320)",
        5: "the same fields; OFFSET_NOT_AVAILABLE from a leader that is too new (KIP-207)",
        6: "flexible versions (KIP-482)",
        7: "the same fields; -3 requests the record with the largest timestamp (KIP-734)",
        8: "the same fields; -4 requests the earliest offset on the broker's own disk (KIP-405)",
        9: "the same fields; -5 requests the last offset in tiered storage (KIP-1005)",
        10: "a timeout in the request, for lookups in tiered storage (KIP-1075)",
        11: "the same fields; -6 requests the first offset not yet in tiered storage (KIP-1023)",
    },
)
def list_offsets(
    services: BrokerServices, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Coroutine[object, object, ListOffsetsResponse]:
    committed_only = request.isolation_level == READ_COMMITTED
    topics: list[tuple[str, list[Row]]] = []
    for topic in request.topics:
        rows: list[Row] = []
        may_describe = services.access.allows(context.client, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        for wanted in topic.partitions:
            try:
                if not may_describe:
                    raise refusal(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
                _check_special(wanted.timestamp, context.api_version)
                partition = services.partitions.lookup(topic.name, b"", wanted.partition_index, by_id=False)
                check_leader_epoch(wanted.current_leader_epoch, partition.state.leader_epoch)
                if _is_follower(partition, request.replica_id):
                    end = partition.log.end_offset
                else:
                    _check_known(partition, wanted.timestamp, context.api_version)
                    end = partition.last_stable_offset if committed_only else partition.high_watermark
                if services.tier is not None and wanted.timestamp >= 0 and _starts_in_tier(partition):
                    rows.append(_search(services.tier, partition, wanted, end, context.api_version))
                    continue
                copied = (
                    services.tier.copied_offset(partition)
                    if services.tier is not None and _is_tiered(partition)
                    else None
                )
                rows.append(_since(_find(partition, wanted, end, copied), context.api_version))
            except ApiError as error:
                rows.append(ListOffsetsPartitionResponse(wanted.partition_index, error.code))
        topics.append((topic.name, rows))
    if all(isinstance(row, ListOffsetsPartitionResponse) for _, rows in topics for row in rows):
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(*topic) for topic in topics])  # type: ignore[arg-type]
    return _settle(topics)


async def _settle(topics: Sequence[tuple[str, Sequence[Row]]]) -> ListOffsetsResponse:
    async def settle(row: Row) -> ListOffsetsPartitionResponse:
        return row if isinstance(row, ListOffsetsPartitionResponse) else await row

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(topic, await asyncio.gather(*(settle(row) for row in rows)))
            for topic, rows in topics
        ]
    )


def _is_tiered(partition: Partition) -> bool:
    return partition.settings.remote_storage_enable


def _starts_in_tier(partition: Partition) -> bool:
    return partition.log.start_offset < partition.log.local_start_offset


async def _search(
    tier: RemoteLogs, partition: Partition, wanted: ListOffsetsPartition, end: int, api_version: int
) -> ListOffsetsPartitionResponse:
    """Find a record by its time in the tier first, and then on disk."""
    try:
        found = await tier.find_time(partition, wanted.timestamp)
        if found is None:
            return _since(_find(partition, wanted, end, None), api_version)
    except ApiError as error:
        return ListOffsetsPartitionResponse(wanted.partition_index, error.code)
    row = ListOffsetsPartitionResponse(wanted.partition_index, 0, found.timestamp, found.offset, found.leader_epoch)
    return _since(row, api_version)


def _since(row: ListOffsetsPartitionResponse, api_version: int) -> ListOffsetsPartitionResponse:
    return row if api_version >= LEADER_EPOCHS_SINCE else row._replace(leader_epoch=-1)


def _check_special(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < SPECIAL_TIMES_SINCE.get(timestamp, LATEST_VERSION + 1):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{timestamp} is neither a time nor one of the special values of version {version}",
        )


def _is_follower(partition: Partition, replica_id: int) -> bool:
    return partition.leading is not None and partition.leading.follower(replica_id) is not None


def _check_known(partition: Partition, timestamp: int, version: int) -> None:
    leading = partition.leading
    if timestamp in (EARLIEST, EARLIEST_LOCAL) or leading is None:
        return
    if leading.high_watermark < leading.epoch_start_offset:
        raise ApiError(
            ErrorCode.OFFSET_NOT_AVAILABLE if version >= NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE,
            f"{partition.name} has a new leader, which waits for its followers",
        )


def _tiered_offset(partition: Partition, timestamp: int, copied: int | None) -> int:
    """The last offset in object storage, or the first that is not there yet; -1 if there is none."""
    if copied is None or timestamp == LATEST_TIERED:
        return -1 if copied is None else copied
    if copied >= 0:
        return max(copied + 1, partition.log.start_offset)
    # Not knowing what is in the tier is only harmless if nothing can be there.
    return -1 if _starts_in_tier(partition) else partition.log.start_offset


def _find(
    partition: Partition, wanted: ListOffsetsPartition, end: int, copied: int | None
) -> ListOffsetsPartitionResponse:
    """What is on disk; `copied` is the last offset in object storage, None for a topic that is not tiered."""
    log = partition.log
    index = wanted.partition_index
    match wanted.timestamp:
        case -1:
            return ListOffsetsPartitionResponse(index, 0, -1, end, partition.state.leader_epoch)
        case -2 | -4:
            start = log.start_offset if wanted.timestamp == EARLIEST else log.local_start_offset
            return ListOffsetsPartitionResponse(index, 0, -1, start, log.epochs.epoch_for_offset(start))
        case -5 | -6:
            offset = _tiered_offset(partition, wanted.timestamp, copied)
            return ListOffsetsPartitionResponse(index, 0, -1, offset, log.epochs.epoch_for_offset(offset))
        case timestamp:
            try:
                found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
            except StorageError as error:
                raise ApiError(note_read_failure(partition, error), error.message) from error
    if found is None or found.offset >= end:
        return ListOffsetsPartitionResponse(index)
    return ListOffsetsPartitionResponse(index, 0, found.timestamp, found.offset, found.leader_epoch)
