"""How a follower starts whose leader has moved the records that it needs to object storage (KIP-405).

It does not copy them: it begins after the segment that holds the leader's last moved record, with the epochs and
producers that were stored with that segment, and fetches from the leader from there on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.peer import Peer
from penstock.runtime.replication.partition import Partition
from penstock.storage.segment_copy import TierHistory
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

EARLIEST, EARLIEST_LOCAL = -2, -4

# Where a copied segment with an epoch's offset ends, and the history there.
HistoryOf = Callable[[Partition, int, int], Awaitable[tuple[int, TierHistory]]]


class TierStart(NamedTuple):
    """Where a replica begins on disk, where its log begins in the tier, and what it begins with."""

    offset: int
    start_offset: int
    history: TierHistory


async def find_tier_start(
    peer: Peer, node_id: int, partition: Partition, history_of: HistoryOf, timeout_ms: int
) -> TierStart:
    """Ask the leader and the tier where to begin; raises ApiError, TimeoutError or PeerLost."""
    local = await _list_offset(peer, node_id, partition, EARLIEST_LOCAL, timeout_ms)
    start = await _list_offset(peer, node_id, partition, EARLIEST, timeout_ms)
    last = local.offset - 1
    epoch = local.leader_epoch
    if epoch > 0:
        earlier = await _end_of_epoch(peer, node_id, partition, epoch - 1, timeout_ms)
        if earlier.end_offset > last:
            epoch = earlier.leader_epoch
    offset, history = await history_of(partition, epoch, last)
    return TierStart(offset, start.offset, history)


async def _list_offset(
    peer: Peer, node_id: int, partition: Partition, timestamp: int, timeout_ms: int
) -> ListOffsetsPartitionResponse:
    name = partition.name
    wanted = ListOffsetsPartition(name.partition, partition.leader_epoch, timestamp)
    request = ListOffsetsRequest(node_id, topics=[ListOffsetsTopic(name.topic, [wanted])])
    response = await peer.send(request, timeout_ms=timeout_ms)
    row: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    _check(partition, row)
    return row


async def _end_of_epoch(peer: Peer, node_id: int, partition: Partition, epoch: int, timeout_ms: int) -> Any:
    name = partition.name
    wanted = OffsetForLeaderPartition(name.partition, partition.leader_epoch, epoch)
    request = OffsetForLeaderEpochRequest(node_id, [OffsetForLeaderTopic(name.topic, [wanted])])
    response = await peer.send(request, timeout_ms=timeout_ms)
    row = response.topics[0].partitions[0]
    _check(partition, row)
    return row


def _check(partition: Partition, row: Any) -> None:
    if row.error_code:
        raise ApiError(ErrorCode(row.error_code), f"the leader of {partition.name} does not say where its log begins")
