"""Versions 1-2. KIP-98: a transaction coordinator ends transactions on the partitions that this broker leads.

From version 2 on a marker carries its transaction's version (KIP-1228). Our coordinators also say where a transaction
of version 1 began, and are told where they do not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.core.replica.producer_state import NO_OFFSET, EndMarker, MarkerRefused
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.coordinator.marker_writer import WriteMarker
from penstock.wire.apis import ApiKey
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

# A group coordinator that is not available is to the transaction coordinator a leader that is not available.
_AS_LEADER = frozenset(
    (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
)


class Verdict(NamedTuple):
    """What became of a marker; `first_offset` is where the transaction began that it would have ended unseen."""

    code: ErrorCode
    first_offset: int = NO_OFFSET


@broker_api(
    ApiKey.WRITE_TXN_MARKERS,
    versions={
        1: "the first version still served: flexible versions (KIP-482)",
        2: "the transaction's version in each marker (KIP-1228)",
    },
)
async def write_txn_markers(
    services: BrokerServices, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    client = context.client
    if not services.access.allows_on_cluster(
        client, Operation.ALTER, quiet=True
    ) and not services.access.allows_on_cluster(client, Operation.CLUSTER_ACTION):
        refused = Verdict(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return WriteTxnMarkersResponse([_result(one, lambda _: refused) for one in request.markers])
    return await answer_markers(services.write_marker, request)


async def answer_markers(write_marker: WriteMarker, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Write every marker of a request, all at once; a coordinator on this broker calls this without a connection."""
    return WriteTxnMarkersResponse([*await asyncio.gather(*(_end(write_marker, one) for one in request.markers))])


async def _end(write_marker: WriteMarker, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    async def write(partition: TopicPartition, ending: EndMarker) -> Verdict:
        try:
            await write_marker(partition, marker.producer_id, marker.producer_epoch, ending)
        except MarkerRefused as refused:
            return Verdict(refused.code, refused.first_offset)
        except ApiError as error:
            return Verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _AS_LEADER else error.code)
        return Verdict(ErrorCode.NONE)

    endings = dict(_endings(marker))
    verdicts = dict(zip(endings, await asyncio.gather(*(write(*item) for item in endings.items())), strict=True))
    return _result(marker, verdicts.__getitem__)


def _endings(marker: WritableTxnMarker) -> Iterator[tuple[TopicPartition, EndMarker]]:
    ending = EndMarker(not marker.transaction_result, marker.coordinator_epoch, marker.transaction_version)
    for topic in marker.topics:
        known = dict(zip(topic.partition_indexes, topic.first_offsets, strict=False))
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index), ending._replace(first_offset=known.get(index))


def _result(marker: WritableTxnMarker, verdict_on: Callable[[TopicPartition], Verdict]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        marker.producer_id,
        [
            WritableTxnMarkerTopicResult(
                topic.name,
                [
                    WritableTxnMarkerPartitionResult(index, *verdict_on(TopicPartition(topic.name, index)))
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )
