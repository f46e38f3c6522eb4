"""A cluster that exists only as answers: one socket, and the state that commands read and change.

Replicas that are added fill up by `STEP_BYTES` at each look at log directories, and a partition has moved when they are
as large as its leader's. So a whole decommissioning takes milliseconds.
"""

# ruff: noqa: ARG002

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.apis import APIS, request_class, response_header_version
from penstock.wire.codec import decode, encode
from penstock.wire.frame import decode_request_header, encode_response
from penstock.wire.messages import (
    add_raft_voter,
    alter_partition_reassignments,
    api_versions,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    metadata,
    remove_raft_voter,
    unregister_broker,
)
from penstock.wire.primitives import Buffer

STEP_BYTES = 400
SIZE_BYTES = 1000


@dataclass(frozen=True, slots=True)
class FakePartition:
    """Leader, replicas, and what moves."""

    replicas: tuple[int, ...]
    leader: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    copied: int = 0


@dataclass
class FakeCluster:
    """Brokers by number (rack, fenced), partitions, voters, settings; and every request that came."""

    brokers: dict[int, tuple[str | None, bool]]
    partitions: dict[TopicPartition, FakePartition]
    voters: dict[int, bytes] = field(default_factory=lambda: {1: bytes([1]) * 16})
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    requests: list[Any] = field(default_factory=list)
    frozen: bool = False
    on_request: Callable[[Any], None] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> FakeCluster:
        # Some for brokers that join later.
        numbers = range(1, len(self.brokers) + 3)
        self._servers = {number: socket.create_server(("127.0.0.1", 0)) for number in numbers}
        self.ports = {number: server.getsockname()[1] for number, server in self._servers.items()}
        self.bootstrap = f"127.0.0.1:{next(iter(self.ports.values()))}"
        self._connections: list[socket.socket] = []
        self._threads = [
            threading.Thread(target=self._accept, args=(number, server), daemon=True)
            for number, server in self._servers.items()
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for opened in (*self._servers.values(), *self._connections):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()
        for thread in self._threads:
            thread.join(5)

    def asked(self, name: str) -> list[Any]:
        """The requests of one API, in order."""
        return [request for request in self.requests if type(request).__name__ == name + "Request"]

    def holders(self) -> dict[int, int]:
        """How many replicas each broker has."""
        return {
            broker: sum(broker in partition.replicas for partition in self.partitions.values())
            for broker in self.brokers
        }

    def _accept(self, broker: int, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(broker, connection), daemon=True).start()

    def _serve(self, broker: int, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        try:
            while size := stream.read(4):
                frame = stream.read(struct.unpack(">i", size)[0])
                header, position = decode_request_header(frame)
                request = decode(request_class(header.api_key), header.api_version, frame[position:])
                with self._lock:
                    self.requests.append(request)
                    if self.on_request is not None:
                        self.on_request(request)
                    response = getattr(self, "_" + APIS[header.api_key].module)(request, broker)
                version = response_header_version(header.api_key, header.api_version)
                body: list[Buffer] = [encode(response, header.api_version)]
                connection.sendall(b"".join(encode_response(header.correlation_id, version, body)))
        except (OSError, ValueError):
            return
        finally:
            stream.close()

    def _api_versions(self, request: Any, broker: int) -> Any:
        served = [key for key in APIS if hasattr(self, "_" + APIS[key].module)]
        return api_versions.ApiVersionsResponse(
            api_keys=[
                api_versions.ApiVersion(key, APIS[key].first_version, APIS[key].last_stable_version) for key in served
            ]
        )

    def _describe_cluster(self, request: Any, broker: int) -> Any:
        return describe_cluster.DescribeClusterResponse(
            cluster_id="fake-cluster",
            controller_id=1,
            brokers=[
                describe_cluster.DescribeClusterBroker(number, "127.0.0.1", self.ports[number], rack, fenced)
                for number, (rack, fenced) in self.brokers.items()
            ],
        )

    def _metadata(self, request: Any, broker: int) -> Any:
        topics: dict[str, list[Any]] = {}
        for name, state in self.partitions.items():
            row = metadata.MetadataResponsePartition(
                partition_index=name.partition,
                leader_id=state.leader,
                replica_nodes=state.replicas,
                isr_nodes=state.replicas,
            )
            topics.setdefault(name.topic, []).append(row)
        return metadata.MetadataResponse(
            cluster_id="fake-cluster",
            controller_id=1,
            topics=[metadata.MetadataResponseTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )

    def _list_partition_reassignments(self, request: Any, broker: int) -> Any:
        topics: dict[str, list[Any]] = {}
        for name, state in self.partitions.items():
            if state.adding or state.removing:
                row = list_partition_reassignments.OngoingPartitionReassignment(
                    name.partition, state.replicas, state.adding, state.removing
                )
                topics.setdefault(name.topic, []).append(row)
        return list_partition_reassignments.ListPartitionReassignmentsResponse(
            topics=[list_partition_reassignments.OngoingTopicReassignment(name, rows) for name, rows in topics.items()]
        )

    def _alter_partition_reassignments(self, request: Any, broker: int) -> Any:
        module = alter_partition_reassignments
        responses = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                code = self._reassign(TopicPartition(topic.name, row.partition_index), row.replicas)
                rows.append(module.ReassignablePartitionResponse(row.partition_index, code, None))
            responses.append(module.ReassignableTopicResponse(topic.name, rows))
        return module.AlterPartitionReassignmentsResponse(responses=responses, error_message=None)

    def _reassign(self, name: TopicPartition, target: Any) -> int:
        state = self.partitions.get(name)
        if state is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        settled = tuple(replica for replica in state.replicas if replica not in state.adding)
        if target is None:
            if not state.adding and not state.removing:
                return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            self.partitions[name] = FakePartition(settled, state.leader)
            return ErrorCode.NONE
        if any(replica not in self.brokers for replica in target):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        adding = tuple(replica for replica in target if replica not in settled)
        removing = tuple(replica for replica in settled if replica not in target)
        self.partitions[name] = FakePartition((*target, *removing), state.leader, adding, removing)
        return ErrorCode.NONE

    def _describe_log_dirs(self, request: Any, broker: int) -> Any:
        module = describe_log_dirs
        topics = []
        for topic in request.topics or ():
            rows = []
            for number in topic.partitions:
                name = TopicPartition(topic.topic, number)
                state = self.partitions[name]
                if broker in state.adding and not self.frozen:
                    self._copy(name, state)
                    state = self.partitions[name]
                size = state.copied if broker in state.adding else SIZE_BYTES
                rows.append(module.DescribeLogDirsPartition(number, size))
            topics.append(module.DescribeLogDirsTopic(topic.topic, rows))
        return module.DescribeLogDirsResponse(results=[module.DescribeLogDirsResult(topics=topics)])

    def _copy(self, name: TopicPartition, state: FakePartition) -> None:
        copied = state.copied + STEP_BYTES
        if copied < SIZE_BYTES:
            self.partitions[name] = replace(state, copied=copied)
            return
        replicas = tuple(replica for replica in state.replicas if replica not in state.removing)
        leader = state.leader if state.leader in replicas else replicas[0]
        self.partitions[name] = FakePartition(replicas, leader)

    def _elect_leaders(self, request: Any, broker: int) -> Any:
        module = elect_leaders
        results = []
        for topic in request.topic_partitions:
            rows = []
            for number in topic.partitions:
                name = TopicPartition(topic.topic, number)
                state = self.partitions[name]
                self.partitions[name] = replace(state, leader=state.replicas[0])
                rows.append(module.PartitionResult(number, ErrorCode.NONE, None))
            results.append(module.ReplicaElectionResult(topic.topic, rows))
        return module.ElectLeadersResponse(replica_election_results=results)

    def _incremental_alter_configs(self, request: Any, broker: int) -> Any:
        module = incremental_alter_configs
        for resource in request.resources:
            settings = self.configs.setdefault((resource.resource_type, resource.resource_name), {})
            for config in resource.configs:
                if config.config_operation == 1:
                    settings.pop(config.name, None)
                else:
                    settings[config.name] = config.value
        return module.IncrementalAlterConfigsResponse(
            responses=[
                module.AlterConfigsResourceResponse(0, None, resource.resource_type, resource.resource_name)
                for resource in request.resources
            ]
        )

    def _describe_configs(self, request: Any, broker: int) -> Any:
        module = describe_configs
        results = []
        for resource in request.resources:
            settings = self.configs.get((resource.resource_type, resource.resource_name), {})
            rows = [
                module.DescribeConfigsResourceResult(
                    key, settings.get(key, ""), config_source=2 if key in settings else 5
                )
                for key in resource.configuration_keys
            ]
            results.append(
                module.DescribeConfigsResult(
                    resource_type=resource.resource_type, resource_name=resource.resource_name, configs=rows
                )
            )
        return module.DescribeConfigsResponse(results=results)

    def _describe_quorum(self, request: Any, broker: int) -> Any:
        module = describe_quorum
        voters = [module.ReplicaState(number, directory, 100 - number) for number, directory in self.voters.items()]
        observers = [module.ReplicaState(number, bytes(16), 90) for number in self.brokers if number not in self.voters]
        partition = module.DescribeQuorumResponsePartitionData(
            leader_id=1, leader_epoch=7, high_watermark=98, current_voters=voters, observers=observers
        )
        nodes = [module.Node(number, [module.Listener("CONTROLLER", "ctl", 9093)]) for number in self.voters]
        return module.DescribeQuorumResponse(
            topics=[module.DescribeQuorumResponseTopicData("__cluster_metadata", [partition])], nodes=nodes
        )

    def _unregister_broker(self, request: Any, broker: int) -> Any:
        known = self.brokers.pop(request.broker_id, None)
        code = ErrorCode.NONE if known is not None else ErrorCode.BROKER_ID_NOT_REGISTERED
        return unregister_broker.UnregisterBrokerResponse(error_code=code, error_message=None)

    def _add_raft_voter(self, request: Any, broker: int) -> Any:
        self.voters[request.voter_id] = request.voter_directory_id
        return add_raft_voter.AddRaftVoterResponse(error_message=None)

    def _remove_raft_voter(self, request: Any, broker: int) -> Any:
        if self.voters.get(request.voter_id) != request.voter_directory_id:
            return remove_raft_voter.RemoveRaftVoterResponse(
                error_code=ErrorCode.VOTER_NOT_FOUND, error_message="no such voter"
            )
        del self.voters[request.voter_id]
        return remove_raft_voter.RemoveRaftVoterResponse(error_message=None)


def spread(topic: str, count: int, brokers: list[int], copies: int = 3) -> dict[TopicPartition, FakePartition]:
    """Partitions dealt over brokers."""
    found = {}
    for number in range(count):
        replicas = tuple(brokers[(number + step) % len(brokers)] for step in range(copies))
        found[TopicPartition(topic, number)] = FakePartition(replicas, replicas[0])
    return found
