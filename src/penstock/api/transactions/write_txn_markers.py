"""Versions 1-2. KIP-98: a transaction coordinator ends transactions on the partitions that this broker leads.

From version 2 on a marker carries its transaction's version (KIP-1228).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.core.replica.producer_state import EndMarker
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.coordinator.marker_writer import WriteMarker
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

API = Api(
    ApiKey.WRITE_TXN_MARKERS,
    (1, 2),
    on_broker=lambda services: make_write_txn_markers(services.write_marker, services.access),
)

# A group coordinator that is not available is to the transaction coordinator a leader that is not available.
_AS_LEADER = frozenset(
    (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
)


def make_write_txn_markers(write_marker: WriteMarker, access: AccessControl) -> Handler:
    """The handler."""

    async def write_txn_markers(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
        client = context.client
        if not access.allows_on_cluster(client, Operation.ALTER, quiet=True) and not access.allows_on_cluster(
            client, Operation.CLUSTER_ACTION
        ):
            refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return WriteTxnMarkersResponse([_result(one, lambda _: refused) for one in request.markers])
        return await answer_markers(write_marker, request)

    return write_txn_markers


async def answer_markers(write_marker: WriteMarker, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Write every marker of a request, all at once; a coordinator on this broker calls this without a connection."""
    return WriteTxnMarkersResponse([*await asyncio.gather(*(_end(write_marker, one) for one in request.markers))])


async def _end(write_marker: WriteMarker, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    partitions = [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
    ending = EndMarker(not marker.transaction_result, marker.coordinator_epoch, marker.transaction_version)

    async def write(partition: TopicPartition) -> ErrorCode:
        try:
            await write_marker(partition, marker.producer_id, marker.producer_epoch, ending)
        except ApiError as error:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _AS_LEADER else error.code
        return ErrorCode.NONE

    errors = dict(zip(partitions, await asyncio.gather(*map(write, partitions)), strict=True))
    return _result(marker, errors.__getitem__)


def _result(marker: WritableTxnMarker, error_of: Callable[[TopicPartition], ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        marker.producer_id,
        [
            WritableTxnMarkerTopicResult(
                topic.name,
                [
                    WritableTxnMarkerPartitionResult(index, error_of(TopicPartition(topic.name, index)))
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )
