"""DescribeQuorum: the leader, the voters and observers, and how far each has come."""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.raft.progress import ReplicaProgress
from penstock.core.raft.quorum import Quorum
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.runtime.env import Env
from penstock.runtime.raft.transport import AddressBook
from penstock.runtime.raft.wire import TOPIC
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)

DIRECTORIES_FROM_VERSION = 2


class QuorumDescription:
    """Answers DescribeQuorum."""

    def __init__(self, env: Env, quorum: Quorum, addresses: AddressBook, log_end: Callable[[], int]) -> None:
        self._env = env
        self._quorum = quorum
        self._addresses = addresses
        self._log_end = log_end

    def describe(self, request: DescribeQuorumRequest, version: int) -> DescribeQuorumResponse:
        """The response in one version."""
        quorum = self._quorum
        asked = [(topic.topic_name, row.partition_index) for topic in request.topics for row in topic.partitions]
        if asked != [(TOPIC, 0)]:
            return self._failure(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "only the metadata log has a quorum")
        progress = quorum.progress
        if progress is None:
            return self._failure(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads the quorum")
        now_ms = self._env.monotonic_ms()
        voters = [self._state(one, now_ms, version) for one in progress.replicas.values()]
        observers = [self._state(one, now_ms, version) for one in progress.live_observers(now_ms)]
        row = DescribeQuorumResponsePartitionData(
            error_message=None,
            leader_id=quorum.node_id,
            leader_epoch=quorum.epoch,
            high_watermark=quorum.high_watermark,
            current_voters=voters,
            observers=observers,
        )
        return DescribeQuorumResponse(
            error_message=None,
            topics=[DescribeQuorumResponseTopicData(TOPIC, [row])],
            nodes=[self._node(voter) for voter in quorum.voters.ids] if version >= DIRECTORIES_FROM_VERSION else (),
        )

    def _failure(self, asked: list[tuple[str, int]], code: ErrorCode, message: str) -> DescribeQuorumResponse:
        topics = [
            DescribeQuorumResponseTopicData(
                name, [DescribeQuorumResponsePartitionData(index, code, message, leader_id=self._quorum.leader_id)]
            )
            for name, index in asked
        ]
        return DescribeQuorumResponse(error_message=None, topics=topics)

    def _state(self, replica: ReplicaProgress, now_ms: int, version: int) -> ReplicaState:
        is_local = replica.replica_id == self._quorum.node_id and replica.directory_id == self._quorum.directory_id
        directory_id = replica.directory_id
        if version < DIRECTORIES_FROM_VERSION or self._is_static(replica):
            directory_id = ZERO_UUID
        wall_ms = self._env.now_ms()

        def wall(at_ms: int) -> int:
            return wall_ms - (now_ms - at_ms) if at_ms >= 0 else -1

        return ReplicaState(
            replica.replica_id,
            directory_id,
            self._log_end() if is_local else replica.end_offset,
            wall_ms if is_local else wall(replica.fetched_at_ms),
            wall_ms if is_local else wall(replica.caught_up_at_ms),
        )

    def _is_static(self, replica: ReplicaProgress) -> bool:
        """Whether it is a voter by its id alone, whatever directory it has."""
        voter = self._quorum.voters.get(replica.replica_id)
        return voter is not None and voter.directory_id == ZERO_UUID

    def _node(self, voter_id: int) -> Node:
        return Node(voter_id, [Listener(*endpoint) for endpoint in self._addresses.endpoints_of(voter_id)])
