"""The cluster's state for placement: brokers, replicas, ongoing reassignments, and sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.cli.failures import CommandFailure
from penstock.cli.wire_client import WireClient, check_error
from penstock.client.failures import NoAnswer
from penstock.client.operations.routing import by_topic
from penstock.client.view import BrokerView, PartitionView, brokers_of, sizes_of
from penstock.model.ids import TopicPartition
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse

PATIENCE_S = 30.0
RETRY_S = 0.5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ongoing:
    """An ongoing reassignment: all current replicas, those being added and those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster's state at one moment."""

    cluster_id: str
    controller: int
    brokers: Mapping[int, BrokerView]
    partitions: Mapping[TopicPartition, PartitionView]
    ongoing: Mapping[TopicPartition, Ongoing] = field(default_factory=dict)

    def assignment(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The replicas of each partition after all ongoing reassignments."""
        return {
            name: self.ongoing[name].target if name in self.ongoing else partition.replicas
            for name, partition in self.partitions.items()
        }

    def alive(self) -> list[BrokerView]:
        """The brokers that can take replicas now."""
        return [broker for broker in self.brokers.values() if not broker.fenced]


def read_brokers(client: WireClient) -> tuple[str, int, dict[int, BrokerView]]:
    """The cluster's id, its active controller, and every registered broker. Raises CommandFailure."""
    cluster: DescribeClusterResponse = client.ask(DescribeClusterRequest(include_fenced_brokers=True))
    check_error(cluster.error_code, cluster.error_message, "cannot describe the cluster")
    return cluster.cluster_id, cluster.controller_id, brokers_of(cluster)


def read_view(client: WireClient) -> ClusterView:
    """Ask the cluster for its brokers, partitions and reassignments. Raises CommandFailure."""
    cluster_id, controller, brokers = read_brokers(client)
    metadata: MetadataResponse = client.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    partitions = {
        TopicPartition(topic.name or "", partition.partition_index): PartitionView(
            partition.leader_id, tuple(partition.replica_nodes), tuple(partition.isr_nodes)
        )
        for topic in sorted(metadata.topics, key=lambda topic: topic.name or "")
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    }
    return ClusterView(cluster_id, controller, brokers, partitions, read_ongoing(client))


def patiently(look: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """The result of `look`, which is retried while the cluster cannot answer, as during an election."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return look()
        except CommandFailure:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


def read_ongoing(client: WireClient) -> dict[TopicPartition, Ongoing]:
    """Every ongoing reassignment. Raises CommandFailure."""
    response: ListPartitionReassignmentsResponse = client.ask(ListPartitionReassignmentsRequest(topics=None))
    check_error(response.error_code, response.error_message, "cannot list the reassignments")
    return {
        TopicPartition(topic.name, partition.partition_index): Ongoing(
            tuple(partition.replicas), tuple(partition.adding_replicas), tuple(partition.removing_replicas)
        )
        for topic in response.topics
        for partition in topic.partitions
    }


def read_sizes(
    client: WireClient, brokers: Iterable[BrokerView], partitions: Sequence[TopicPartition]
) -> dict[tuple[TopicPartition, int], int]:
    """The size in bytes of each partition on each of these brokers; brokers that do not answer are left out."""
    request = DescribeLogDirsRequest([DescribableLogDirTopic(*row) for row in by_topic(partitions).items()])
    sizes: dict[tuple[TopicPartition, int], int] = {}
    for broker in brokers:
        if broker.fenced or not partitions:
            continue
        try:
            response: DescribeLogDirsResponse = client.ask_at(broker.address, request)
        except NoAnswer:
            continue
        sizes |= {(name, broker.node_id): size for name, size in sizes_of(response)}
    return sizes
