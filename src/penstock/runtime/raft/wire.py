"""Converts the core's messages to and from Kafka's: Vote, Begin- and EndQuorumEpoch, Fetch, FetchSnapshot.

Every message is about one partition, the metadata log's. A response carries the epoch and leader that its sender knows;
an error beside them only states how the request's epoch compares, and adds nothing for the core.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.core.raft.messages import (
    BeginEpochRequest,
    BeginEpochResponse,
    EndEpochRequest,
    EndEpochResponse,
    FetchRequest,
    FetchResponse,
    LogEnd,
    Message,
    VoteRequest,
    VoteResponse,
)
from penstock.core.raft.voters import VoterEndpoint, VoterSet
from penstock.model.errors import ErrorCode, error_name
from penstock.model.ids import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from penstock.wire.apis import Request
from penstock.wire.messages import begin_quorum_epoch as begin
from penstock.wire.messages import end_quorum_epoch as end
from penstock.wire.messages import fetch, vote
from penstock.wire.messages import fetch_snapshot as snapshots
from penstock.wire.record_types import Buffer

TOPIC = "__cluster_metadata"
FETCH_BYTES_MAX = 8 * 1024 * 1024


class RaftSender(NamedTuple):
    """What every request contains about its sender."""

    node_id: int
    directory_id: Uuid
    cluster_id: str | None
    endpoints: tuple[VoterEndpoint, ...]


class RaftReply(NamedTuple):
    """A peer's answer: the core's message, and the data beside it."""

    message: Message
    records: Buffer = b""
    leader_address: tuple[str, int] | None = None


class RefusedByPeer(Exception):
    """The peer answered with an error that is not about epochs."""


def to_wire(
    message: Message,
    sender: RaftSender,
    voters: VoterSet,
    voter_id: int,
    high_watermark: int = -1,
    max_wait_ms: int = 0,
) -> Request[object]:
    """The request for one of the core's messages, to one voter."""
    voter_directory_id = _directory(voters, voter_id)
    match message:
        case VoteRequest():
            row = vote.VoteRequestPartitionData(
                replica_epoch=message.epoch,
                replica_id=message.candidate_id,
                replica_directory_id=sender.directory_id,
                voter_directory_id=voter_directory_id,
                last_offset_epoch=message.log_end.epoch,
                last_offset=message.log_end.offset,
                pre_vote=message.pre_vote,
            )
            return vote.VoteRequest(sender.cluster_id, voter_id, [vote.VoteRequestTopicData(TOPIC, [row])])
        case BeginEpochRequest():
            begun = begin.BeginQuorumEpochRequestPartitionData(0, voter_directory_id, message.leader_id, message.epoch)
            return begin.BeginQuorumEpochRequest(
                sender.cluster_id,
                voter_id,
                [begin.BeginQuorumEpochRequestTopicData(TOPIC, [begun])],
                [begin.LeaderEndpoint(*endpoint) for endpoint in sender.endpoints],
            )
        case EndEpochRequest():
            ended = end.EndQuorumEpochRequestPartitionData(
                0,
                message.leader_id,
                message.epoch,
                list(message.successors),
                [end.ReplicaInfo(successor, _directory(voters, successor)) for successor in message.successors],
            )
            return end.EndQuorumEpochRequest(
                sender.cluster_id,
                [end.EndQuorumEpochRequestTopicData(TOPIC, [ended])],
                [end.LeaderEndpoint(*endpoint) for endpoint in sender.endpoints],
            )
        case FetchRequest():
            return _fetch(message, sender, high_watermark, max_wait_ms)
    raise AssertionError(f"{type(message).__name__} is not a request")


def _directory(voters: VoterSet, voter_id: int) -> Uuid:
    voter = voters.get(voter_id)
    return voter.directory_id if voter is not None else ZERO_UUID


def _fetch(message: FetchRequest, sender: RaftSender, high_watermark: int, max_wait_ms: int) -> fetch.FetchRequest:
    row = fetch.FetchPartition(
        current_leader_epoch=message.epoch,
        fetch_offset=message.log_end.offset,
        last_fetched_epoch=message.log_end.epoch,
        partition_max_bytes=FETCH_BYTES_MAX,
        replica_directory_id=sender.directory_id,
        high_watermark=high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=sender.cluster_id,
        replica_state=fetch.ReplicaState(message.replica_id, -1),
        max_wait_ms=max_wait_ms,
        max_bytes=FETCH_BYTES_MAX,
        topics=[fetch.FetchTopic(TOPIC, METADATA_TOPIC_ID, [row])],
    )


def from_wire(response: Any, request: Message) -> RaftReply:
    """The core's message for a response. Raises RefusedByPeer for an error."""
    if response.error_code:
        raise RefusedByPeer(f"it answered {error_name(response.error_code)}")
    if isinstance(response, fetch.FetchResponse):
        return _fetched(response)
    try:
        row = response.topics[0].partitions[0]
    except IndexError:
        raise RefusedByPeer("its answer is empty") from None
    address = _address(response.node_endpoints, row.leader_id)
    epoch, leader_id = row.leader_epoch, row.leader_id
    if row.error_code not in EPOCH_ERRORS:
        raise RefusedByPeer(f"it answered {error_name(row.error_code)}")
    if isinstance(response, vote.VoteResponse):
        assert isinstance(request, VoteRequest)
        return RaftReply(VoteResponse(epoch, leader_id, row.vote_granted, request.pre_vote), b"", address)
    if isinstance(response, begin.BeginQuorumEpochResponse):
        return RaftReply(BeginEpochResponse(epoch, leader_id), b"", address)
    assert isinstance(response, end.EndQuorumEpochResponse)
    return RaftReply(EndEpochResponse(epoch, leader_id), b"", address)


EPOCH_ERRORS = (
    ErrorCode.NONE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.BROKER_NOT_AVAILABLE,
)


def _fetched(response: fetch.FetchResponse) -> RaftReply:
    try:
        row = response.responses[0].partitions[0]
    except IndexError:
        raise RefusedByPeer("its answer is empty") from None
    leader = row.current_leader
    address = _address(response.node_endpoints, leader.leader_id)
    if row.error_code not in EPOCH_ERRORS:
        raise RefusedByPeer(f"it answered {error_name(row.error_code)}")
    if row.error_code:
        return RaftReply(FetchResponse(leader.leader_epoch, leader.leader_id, is_refused=True), b"", address)
    diverging, snapshot = row.diverging_epoch, row.snapshot_id
    message = FetchResponse(
        leader.leader_epoch,
        leader.leader_id,
        row.high_watermark,
        LogEnd(diverging.end_offset, diverging.epoch) if diverging.epoch >= 0 else None,
        LogEnd(snapshot.end_offset, snapshot.epoch) if snapshot.epoch >= 0 else None,
    )
    records = row.records
    data = b"" if records is None else records if isinstance(records, Buffer) else b"".join(records)
    return RaftReply(message, data, address)


def _address(endpoints: Any, leader_id: int) -> tuple[str, int] | None:
    return next(((one.host, one.port) for one in endpoints if one.node_id == leader_id), None)


def epoch_error(request_epoch: int, epoch: int, *, leads: bool) -> ErrorCode:
    """The error for a request that only a leader serves, given the epoch that this node knows."""
    if request_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request_epoch > epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER


def snapshot_request(
    sender: RaftSender, epoch: int, snapshot: LogEnd, position: int, max_bytes: int
) -> snapshots.FetchSnapshotRequest:
    """Request a part of a snapshot."""
    row = snapshots.FetchSnapshotRequestPartitionSnapshot(
        0, epoch, snapshots.SnapshotId(snapshot.offset, snapshot.epoch), position, sender.directory_id
    )
    return snapshots.FetchSnapshotRequest(
        sender.cluster_id, sender.node_id, max_bytes, [snapshots.FetchSnapshotRequestTopicSnapshot(TOPIC, [row])]
    )
