"""The messages that the core of a node of the metadata quorum gets for the answers of others."""

from __future__ import annotations

import pytest

from penstock.core.raft.messages import FetchRequest, FetchResponse, LogEnd
from penstock.runtime.raft.wire import RaftReply, from_wire
from penstock.wire.messages import fetch

NOTHING = fetch.PartitionData(0, high_watermark=5, current_leader=fetch.LeaderIdAndEpoch(2, 7))


def fetched(row: fetch.PartitionData) -> RaftReply:
    response = fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(partitions=[row])],
        node_endpoints=[fetch.NodeEndpoint(1, "other", 1), fetch.NodeEndpoint(2, "leader", 9093)],
    )
    return from_wire(response, FetchRequest(7, 1, LogEnd(0, 0)))


@pytest.mark.parametrize("epoch", [0, 3])
def test_a_follower_learns_where_the_logs_diverge_and_which_snapshot_to_fetch(epoch: int) -> None:
    assert fetched(NOTHING) == RaftReply(FetchResponse(7, 2, 5, None, None), b"", ("leader", 9093))
    diverging = NOTHING._replace(diverging_epoch=fetch.EpochEndOffset(epoch, 4))
    assert fetched(diverging).message == FetchResponse(7, 2, 5, LogEnd(4, epoch), None)
    snapshot = NOTHING._replace(snapshot_id=fetch.SnapshotId(4, epoch))
    assert fetched(snapshot).message == FetchResponse(7, 2, 5, None, LogEnd(4, epoch))
