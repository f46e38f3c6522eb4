"""Versions 1-11. Earliest, latest, by time, KIP-734 max timestamp, KIP-405, KIP-1005 and KIP-1023 for tiered storage.

A new leader that does not know yet how far its predecessor had committed says so (KIP-207), rather than return an
offset before one that was returned earlier. A follower that asks for the latest offset gets the log end offset.
"""

from __future__ import annotations

from penstock.api.access import refusal
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.core.replica.fencing import check_leader_epoch
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST_VERSION = 11

API = Api(
    ApiKey.LIST_OFFSETS,
    (1, LATEST_VERSION),
    on_broker=lambda services: make_list_offsets(services.partitions, services.access),
)

READ_COMMITTED = 1
LEADER_EPOCHS_SINCE = 4
NOT_AVAILABLE_SINCE = 5
EARLIEST, EARLIEST_LOCAL = -2, -4
# What may be asked for instead of a time, and since which version.
SPECIAL_TIMES_SINCE = {-1: 1, EARLIEST: 1, -3: 7, EARLIEST_LOCAL: 8, -5: 9, -6: 11}


def make_list_offsets(partitions: Partitions, access: AccessControl) -> Handler:
    """The handler."""

    def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
        committed_only = request.isolation_level == READ_COMMITTED
        topics = []
        for topic in request.topics:
            rows = []
            may_describe = access.allows(context.client, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
            for wanted in topic.partitions:
                try:
                    if not may_describe:
                        raise refusal(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
                    _check_special(wanted.timestamp, context.api_version)
                    partition = partitions.lookup(topic.name, b"", wanted.partition_index, by_id=False)
                    check_leader_epoch(wanted.current_leader_epoch, partition.state.leader_epoch)
                    if _is_follower(partition, request.replica_id):
                        end = partition.log.end_offset
                    else:
                        _check_known(partition, wanted.timestamp, context.api_version)
                        end = partition.last_stable_offset if committed_only else partition.high_watermark
                    found = _find(partition, wanted, end)
                    rows.append(
                        found if context.api_version >= LEADER_EPOCHS_SINCE else found._replace(leader_epoch=-1)
                    )
                except ApiError as error:
                    rows.append(ListOffsetsPartitionResponse(wanted.partition_index, error.code))
            topics.append(ListOffsetsTopicResponse(topic.name, rows))
        return ListOffsetsResponse(topics=topics)

    return list_offsets


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


def _find(partition: Partition, wanted: ListOffsetsPartition, end: int) -> ListOffsetsPartitionResponse:
    log = partition.log
    index = wanted.partition_index
    match wanted.timestamp:
        case -1:
            return ListOffsetsPartitionResponse(index, 0, -1, end, partition.state.leader_epoch)
        case -2 | -4:
            start = log.start_offset
            return ListOffsetsPartitionResponse(index, 0, -1, start, log.epochs.epoch_for_offset(start))
        case -5 | -6:
            # Nothing has gone to object storage.
            return ListOffsetsPartitionResponse(index, 0, -1, -1, -1)
        case -3:
            found = log.max_timestamp()
        case timestamp:
            found = log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end:
        return ListOffsetsPartitionResponse(index)
    return ListOffsetsPartitionResponse(index, 0, found.timestamp, found.offset, found.leader_epoch)
