"""A cluster's state from its responses: brokers, partitions, sizes of replicas, and the controller quorum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.client.address import Address
from penstock.model.errors import ApiError, ErrorCode, error_code, error_name
from penstock.model.ids import TopicPartition, format_uuid
from penstock.wire.messages.describe_cluster import DescribeClusterResponse
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsResponse
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)

METADATA_TOPIC = "__cluster_metadata"
QUORUM_REQUEST = DescribeQuorumRequest(
    [DescribeQuorumRequestTopicData(METADATA_TOPIC, [DescribeQuorumRequestPartitionData(0)])]
)


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A registered broker; a fenced one is down, or not yet up."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False

    @property
    def address(self) -> Address:
        """The address for clients."""
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition's leader (-1 for none) and replicas, the preferred leader first."""

    leader: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is missing or behind."""
        return len(self.in_sync_replicas) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class QuorumNode:
    """A voter or an observer; lag counts records of the metadata log, times are milliseconds since 1970.

    None if the leader does not know, because the node has not fetched since the leader was elected.
    """

    node_id: int
    role: str
    address: str | None
    directory_id: str
    log_end_offset: int
    lag: int | None
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The quorum as its leader sees it, the voters first."""

    leader: int
    epoch: int
    high_watermark: int
    nodes: tuple[QuorumNode, ...]

    @property
    def voters(self) -> tuple[QuorumNode, ...]:
        """Those that vote."""
        return tuple(node for node in self.nodes if node.role != "observer")


def brokers_of(response: DescribeClusterResponse) -> dict[int, BrokerView]:
    """Every registered broker, ordered by id."""
    return {
        broker.broker_id: BrokerView(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
        for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
    }


def sizes_of(response: DescribeLogDirsResponse) -> Iterator[tuple[TopicPartition, int]]:
    """The sizes in bytes of a broker's replicas."""
    for directory in response.results:
        for topic in directory.topics:
            for partition in topic.partitions:
                if not partition.is_future_key:
                    yield TopicPartition(topic.name, partition.partition_index), partition.partition_size


def quorum_of(response: DescribeQuorumResponse) -> QuorumView:
    """The quorum in the response to QUORUM_REQUEST. Raises ApiError if the response is an error."""
    _check(response.error_code, response.error_message)
    found = next((partition for topic in response.topics for partition in topic.partitions), None)
    if found is None:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response contains no partition of the metadata log")
    _check(found.error_code, found.error_message)
    end = max((state.log_end_offset for state in found.current_voters), default=found.high_watermark)
    addresses = {
        node.node_id: str(Address(node.listeners[0].host, node.listeners[0].port))
        for node in response.nodes
        if node.listeners
    }

    def view(state: ReplicaState, role: str) -> QuorumNode:
        return QuorumNode(
            state.replica_id,
            "leader" if state.replica_id == found.leader_id else role,
            addresses.get(state.replica_id),
            format_uuid(state.replica_directory_id),
            state.log_end_offset,
            max(0, end - state.log_end_offset) if state.log_end_offset >= 0 else None,
            state.last_fetch_timestamp if state.last_fetch_timestamp > 0 else None,
            state.last_caught_up_timestamp if state.last_caught_up_timestamp > 0 else None,
        )

    voters = [view(state, "voter") for state in sorted(found.current_voters)]
    observers = [view(state, "observer") for state in sorted(found.observers)]
    return QuorumView(found.leader_id, found.leader_epoch, found.high_watermark, (*voters, *observers))


def _check(code: int, message: str | None) -> None:
    if code:
        raise ApiError(error_code(code), message or error_name(code))
