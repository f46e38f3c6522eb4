"""What a node of the quorum answers to requests as they come over the wire: codes, leaders, pieces of snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from raft_world import CLUSTER_ID, LISTENER, FakeNode, World, quorum

from penstock.model.errors import ErrorCode
from penstock.model.ids import METADATA_TOPIC_ID, ZERO_UUID
from penstock.runtime.raft.metadata_files import SnapshotId
from penstock.runtime.raft.requests import RaftRequests
from penstock.wire.messages import begin_quorum_epoch as begin
from penstock.wire.messages import end_quorum_epoch as end
from penstock.wire.messages import fetch as fetches
from penstock.wire.messages import fetch_snapshot as snapshots
from penstock.wire.messages import vote as votes

TOPIC = "__cluster_metadata"


@pytest.fixture
def world() -> Iterator[World]:
    with quorum() as made:
        made.make_sure(3)
        made.run(1)
        yield made


def requests_of(node: FakeNode) -> RaftRequests:
    assert node.raft is not None
    return node.raft.requests


def call(world: World, node: FakeNode, name: str, request: Any, listener_name: str = LISTENER) -> Any:
    """The answer to a request; a parked one is waited for."""

    async def ask() -> Any:
        answer = getattr(requests_of(node), name)(request, listener_name)
        return await answer if isinstance(answer, asyncio.Future) else answer

    return world.wait(ask())[0]


def vote(epoch: int, *, cluster_id: str = CLUSTER_ID, topic: str = TOPIC, **row: Any) -> votes.VoteRequest:
    voter_id = row.pop("voter_id", -1)
    data = votes.VoteRequestPartitionData(replica_epoch=epoch, replica_id=2, **row)
    return votes.VoteRequest(cluster_id, voter_id, [votes.VoteRequestTopicData(topic, [data])])


def fetch(
    epoch: int, offset: int, last_epoch: int, *, wait_ms: int = 0, replica_id: int = 9, **row: Any
) -> fetches.FetchRequest:
    data = fetches.FetchPartition(0, epoch, offset, last_epoch, partition_max_bytes=1 << 20, **row)
    return fetches.FetchRequest(
        cluster_id=CLUSTER_ID,
        replica_state=fetches.ReplicaState(replica_id, -1),
        max_wait_ms=wait_ms,
        topics=[fetches.FetchTopic("", METADATA_TOPIC_ID, [data])],
    )


def test_requests_for_another_cluster_or_topic_are_refused_whole(world: World) -> None:
    leader = world.a_leader()
    assert leader.raft is not None
    epoch = leader.raft.epoch
    foreign = call(world, leader, "vote", vote(epoch, cluster_id="other"))
    assert (foreign.error_code, foreign.topics) == (ErrorCode.INCONSISTENT_CLUSTER_ID, ())
    assert call(world, leader, "vote", vote(epoch, topic="orders")).error_code == ErrorCode.INVALID_REQUEST
    strange = fetch(epoch, 0, 0)._replace(cluster_id="other")
    assert call(world, leader, "fetch", strange).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    for empty in (begin.BeginQuorumEpochRequest(), end.EndQuorumEpochRequest()):
        name = "begin_epoch" if isinstance(empty, begin.BeginQuorumEpochRequest) else "end_epoch"
        assert call(world, leader, name, empty).error_code == ErrorCode.INVALID_REQUEST


def test_a_vote_of_an_old_epoch_for_another_voter_or_without_sense_is_refused(world: World) -> None:
    leader = world.a_leader()
    assert leader.raft is not None
    epoch = leader.raft.epoch
    rows = {
        ErrorCode.FENCED_LEADER_EPOCH: vote(epoch - 1, pre_vote=True),
        ErrorCode.INVALID_VOTER_KEY: vote(epoch + 1, voter_id=77),
        ErrorCode.INVALID_REQUEST: vote(epoch + 1, last_offset=-1),
    }
    for code, request in rows.items():
        row = call(world, leader, "vote", request).topics[0].partitions[0]
        assert (row.error_code, row.vote_granted) == (code, False)
        assert (row.leader_id, row.leader_epoch) == (leader.node_id, epoch)
    ahead = vote(epoch + 1, last_offset=0, last_offset_epoch=epoch + 1)
    assert call(world, leader, "vote", ahead).topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert leader.raft.is_leader


def test_responses_contain_the_leaders_address(world: World) -> None:
    leader, follower = world.a_leader(), world.followers()[0]
    assert leader.raft is not None
    answer = call(world, follower, "fetch", fetch(leader.raft.epoch, 0, 0))
    row = answer.responses[0].partitions[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row.current_leader == fetches.LeaderIdAndEpoch(leader.node_id, leader.raft.epoch)
    assert answer.node_endpoints == [fetches.NodeEndpoint(leader.node_id, "host", leader.node_id)]


def test_a_fetch_compares_epochs_and_histories(world: World) -> None:
    leader = world.a_leader()
    assert leader.raft is not None
    epoch, log_end = leader.raft.epoch, leader.raft.log.end_offset
    rows = {
        ErrorCode.FENCED_LEADER_EPOCH: fetch(epoch - 1, 0, 0),
        ErrorCode.UNKNOWN_LEADER_EPOCH: fetch(epoch + 1, 0, 0),
        ErrorCode.INVALID_REQUEST: fetch(epoch, -1, 0),
    }
    for code, request in rows.items():
        assert call(world, leader, "fetch", request).responses[0].partitions[0].error_code == code
    whole = call(world, leader, "fetch", fetch(epoch, 0, 0)).responses[0].partitions[0]
    assert whole.records == leader.raft.metadata_log.read(0, 1 << 20)
    assert whole.high_watermark == log_end
    parted = call(world, leader, "fetch", fetch(epoch, log_end + 5, epoch)).responses[0].partitions[0]
    assert parted.diverging_epoch == fetches.EpochEndOffset(epoch, log_end)
    assert parted.records == b""


def test_a_fetch_that_finds_nothing_waits_for_entries_or_for_its_time(world: World) -> None:
    leader = world.a_leader()
    assert leader.raft is not None
    epoch, log_end = leader.raft.epoch, leader.raft.log.end_offset
    began = world.loop.time()
    nothing = call(world, leader, "fetch", fetch(epoch, log_end, epoch, wait_ms=400))
    assert world.loop.time() - began > 0.399
    assert nothing.responses[0].partitions[0].records == b""
    requests = requests_of(leader)

    async def park() -> list[Any]:
        return [requests.fetch(fetch(epoch, log_end, epoch, wait_ms=60_000), LISTENER)]

    parked = world.loop.run_until_complete(park())[0]
    world.make_sure(1)
    assert parked.done()
    assert len(parked.result().responses[0].partitions[0].records) > 0
    assert not [one for one in requests._parked if one.answer is parked]


def test_a_parked_fetch_is_answered_on_commits_and_when_its_leader_resigns(world: World) -> None:
    leader = world.a_leader()
    assert leader.raft is not None
    requests, epoch = requests_of(leader), leader.raft.epoch
    end_offset = leader.raft.log.end_offset
    behind = call(
        world, leader, "fetch", fetch(epoch, end_offset, epoch, wait_ms=60_000, high_watermark=end_offset - 1)
    )
    assert behind.responses[0].partitions[0].high_watermark == end_offset

    async def park() -> list[Any]:
        return [requests.fetch(fetch(epoch, end_offset, epoch, wait_ms=60_000), LISTENER)]

    parked = world.loop.run_until_complete(park())[0]
    world.cut(leader.node_id)
    world.until(parked.done, 20)
    row = parked.result().responses[0].partitions[0]
    assert row.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def snapshot_piece(epoch: int, snapshot: SnapshotId, position: int, size_max: int) -> snapshots.FetchSnapshotRequest:
    row = snapshots.FetchSnapshotRequestPartitionSnapshot(
        0, epoch, snapshots.SnapshotId(*snapshot), position, ZERO_UUID
    )
    return snapshots.FetchSnapshotRequest(
        CLUSTER_ID, 9, size_max, [snapshots.FetchSnapshotRequestTopicSnapshot(TOPIC, [row])]
    )


def test_snapshots_are_handed_out_in_pieces(world: World) -> None:
    leader = world.a_leader()
    assert leader.raft is not None
    leader.raft.take_snapshot()
    snapshot, epoch = leader.raft.metadata_log.snapshots[-1], leader.raft.epoch
    whole = leader.env.filesystem.read_file(leader.raft.metadata_log.directory / snapshot.file_name)
    taken = b""
    while len(taken) < len(whole):
        request = snapshot_piece(epoch, snapshot, len(taken), 100)
        row = call(world, leader, "fetch_snapshot", request).topics[0].partitions[0]
        assert (row.error_code, row.size, row.position) == (0, len(whole), len(taken))
        assert 0 < len(row.unaligned_records) <= 100
        taken += row.unaligned_records
    assert taken == whole
    refused = {
        ErrorCode.POSITION_OUT_OF_RANGE: snapshot_piece(epoch, snapshot, len(whole), 100),
        ErrorCode.SNAPSHOT_NOT_FOUND: snapshot_piece(epoch, SnapshotId(1, 1), 0, 100),
        ErrorCode.FENCED_LEADER_EPOCH: snapshot_piece(epoch - 1, snapshot, 0, 100),
        ErrorCode.UNKNOWN_LEADER_EPOCH: snapshot_piece(epoch + 1, snapshot, 0, 100),
    }
    for code, request in refused.items():
        assert call(world, leader, "fetch_snapshot", request).topics[0].partitions[0].error_code == code


def test_a_leader_of_an_old_epoch_learns_of_the_new_one(world: World) -> None:
    leader, follower = world.a_leader(), world.followers()[0]
    assert leader.raft is not None
    assert follower.raft is not None
    epoch = leader.raft.epoch
    old = begin.BeginQuorumEpochRequestPartitionData(0, ZERO_UUID, 3, epoch - 1)
    request = begin.BeginQuorumEpochRequest(CLUSTER_ID, -1, [begin.BeginQuorumEpochRequestTopicData(TOPIC, [old])])
    row = call(world, follower, "begin_epoch", request).topics[0].partitions[0]
    assert (row.error_code, row.leader_id) == (ErrorCode.FENCED_LEADER_EPOCH, leader.node_id)
    impostor = next(one for one in (1, 2, 3) if one not in (leader.node_id, follower.node_id))
    second = begin.BeginQuorumEpochRequestPartitionData(0, ZERO_UUID, impostor, epoch)
    request = request._replace(topics=[begin.BeginQuorumEpochRequestTopicData(TOPIC, [second])])
    row = call(world, follower, "begin_epoch", request).topics[0].partitions[0]
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert follower.raft.leader_id == leader.node_id


def test_a_resigning_leader_named_successors_and_the_first_stands_at_once(world: World) -> None:
    leader, follower = world.a_leader(), world.followers()[0]
    assert leader.raft is not None
    assert follower.raft is not None
    epoch = leader.raft.epoch
    row = end.EndQuorumEpochRequestPartitionData(
        0, leader.node_id, epoch, (), [end.ReplicaInfo(follower.node_id, ZERO_UUID)]
    )
    request = end.EndQuorumEpochRequest(CLUSTER_ID, [end.EndQuorumEpochRequestTopicData(TOPIC, [row])])
    answer = call(world, follower, "end_epoch", request).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    assert follower.raft.epoch == epoch + 1


@pytest.mark.parametrize("replica_id", [0, 9])
def test_an_older_follower_names_itself_in_the_request(world: World, replica_id: int) -> None:
    leader = world.a_leader()
    assert leader.raft is not None
    request = fetch(leader.raft.quorum.epoch, 0, 0)
    older = request._replace(replica_id=replica_id, replica_state=fetches.ReplicaState(-1, -1))
    call(world, leader, "fetch", older)
    progress = leader.raft.quorum.progress
    assert progress is not None
    assert replica_id in {number for number, _ in progress.observers}


def test_answers_are_about_partition_zero_of_the_metadata_log(world: World) -> None:
    follower = world.followers()[0]
    assert follower.raft is not None
    quorum_state = follower.raft.quorum
    row = end.EndQuorumEpochRequestPartitionData(0, quorum_state.leader_id, quorum_state.epoch)
    request = end.EndQuorumEpochRequest(CLUSTER_ID, [end.EndQuorumEpochRequestTopicData(TOPIC, [row])])
    response = call(world, follower, "end_epoch", request)
    (topic,) = response.topics
    (answer,) = topic.partitions
    assert (response.error_code, topic.topic_name, answer.partition_index, answer.error_code) == (0, TOPIC, 0, 0)
