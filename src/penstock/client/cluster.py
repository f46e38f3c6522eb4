"""A blocking client of a cluster: requests to any broker, to a given one, or to a partition's leader.

Requests about topics are retried, with fresh metadata, while leaders move and brokers restart, until a deadline.
Permanent errors (no such topic, not authorized) raise ApiError at once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from penstock.client.address import Address
from penstock.client.closing import Closing
from penstock.client.connection import Connection
from penstock.client.failures import AuthenticationFailed, NoAnswer, NotServed
from penstock.client.settings import ConnectionSettings
from penstock.model.errors import ApiError, ErrorCode, error_code, error_name
from penstock.model.ids import TopicPartition, Uuid
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.describe_cluster import DescribeClusterResponse
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

EARLIEST = -2
LATEST = -1
LATEST_TIERED = -5
# How long a request is retried, and the pauses between attempts.
PATIENCE_S = 60.0
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 1.0
TOPIC_RESOURCE = 2
# What FindCoordinator calls a group's name.
GROUP_KEY = 0

RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)

Answer = TypeVar("Answer")


class TryAgain(Exception):
    """The request cannot be answered right now, but may be later."""


class Position(NamedTuple):
    """An offset and the leader epoch that wrote it; both are -1 where there is none."""

    offset: int
    leader_epoch: int


class ClusterClient(Closing):
    """Connections to the brokers of one cluster, opened on demand and kept.

    A response may take `timeout_s`, or what the settings say; a request about topics is retried for `patience_s`.
    """

    def __init__(
        self, settings: ConnectionSettings, *, timeout_s: float | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, int] = {}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Requests that are sent once.

    def ask(self, request: Any) -> Any:
        """Ask any broker that answers. Raises NoAnswer with all reasons, or at once with a permanent one."""
        reasons: dict[str, None] = {}
        refused: NoAnswer | None = None
        for address in dict.fromkeys((*self._connections, *self._brokers.values(), *self._settings.bootstrap)):
            try:
                response = self.ask_at(address, request)
            except NoAnswer as error:
                refused = error if isinstance(error, NotServed | AuthenticationFailed) else refused
                reasons[str(error)] = None
            else:
                self._learn(response)
                return response
        raise refused or NoAnswer("; ".join(reasons))

    def ask_coordinator(self, group: str, request: Any) -> Any:
        """Ask the broker that coordinates a group. Raises TryAgain while there is none, NoAnswer, or ApiError."""
        (coordinator,) = self.ask(FindCoordinatorRequest("", GROUP_KEY, [group])).coordinators
        self._check(coordinator.error_code, group, coordinator.error_message)
        return self.ask_at(Address(coordinator.host, coordinator.port), request)

    def ask_at(self, address: Address, request: Any) -> Any:
        """Ask one broker, over its open connection if that still works. Raises NoAnswer."""
        was_kept = address in self._connections
        try:
            return self._connect(address).call(request)
        except NotServed:
            raise
        except NoAnswer:
            self._drop(address)
            if not was_kept:
                raise
        return self.ask_at(address, request)

    # Requests about topics, which are retried.

    def topics(self) -> list[str]:
        """The names of all topics that are not internal."""
        response = self._repeat(lambda: self.ask(MetadataRequest(None, False)))
        return sorted(topic.name for topic in response.topics if not topic.is_internal and not topic.error_code)

    def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The partitions of these topics; topics that do not exist are left out."""
        wanted = [MetadataRequestTopic(name=topic) for topic in sorted(set(topics))]

        def ask() -> MetadataResponse:
            response: MetadataResponse = self.ask(MetadataRequest(wanted, False))
            for topic in response.topics:
                if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._check(topic.error_code, topic.name or "")
            return response

        return {
            topic.name or "": sorted(each.partition_index for each in topic.partitions)
            for topic in self._repeat(ask).topics
            if not topic.error_code
        }

    def topic_ids(self, topics: Iterable[str]) -> tuple[str, dict[str, Uuid]]:
        """The cluster's id, and those of the topics that exist."""
        wanted = [MetadataRequestTopic(name=topic) for topic in sorted(set(topics))]
        response = self._repeat(lambda: self.ask(MetadataRequest(wanted, False)))
        found = {topic.name: topic.topic_id for topic in response.topics if not topic.error_code}
        return response.cluster_id or "", found

    def ensure_topic(
        self,
        topic: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a topic unless it exists; True if it was created. -1 stands for the cluster's default."""
        wanted = [CreatableTopicConfig(*each) for each in (configs or {}).items()]
        request = CreateTopicsRequest([CreatableTopic(topic, partitions, replication_factor, (), wanted)])

        def ask() -> bool:
            (result,) = self.ask(request).topics
            if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                self._check(result.error_code, topic, result.error_message)
            return not result.error_code

        return self._repeat(ask)

    def topic_config(self, topic: str, name: str) -> str | None:
        """The effective value of a topic's setting."""

        def ask() -> str | None:
            resource = DescribeConfigsResource(TOPIC_RESOURCE, topic, [name])
            (result,) = self.ask(DescribeConfigsRequest([resource])).results
            self._check(result.error_code, topic, result.error_message)
            return next((config.value for config in result.configs), None)

        return self._repeat(ask)

    def offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The first offset at or after a timestamp for each partition, -1 if there is none.

        `EARLIEST` and `LATEST` stand for the ends of the log; with `read_committed` its end is the last stable offset.
        """
        found = self.positions(timestamps, read_committed=read_committed)
        return {partition: each.offset for partition, each in found.items()}

    def positions(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, Position]:
        """The same as `offsets`, with the leader epochs; `LATEST_TIERED` is the last offset in object storage."""
        found: dict[TopicPartition, Position] = {}

        def ask() -> dict[TopicPartition, Position]:
            missing = {each: at for each, at in timestamps.items() if each not in found}
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for partition in missing:
                by_leader[self._leader_of(partition)].append(partition)
            for leader, partitions in by_leader.items():
                request = _list_offsets(partitions, missing, read_committed)
                for topic in self.ask_at(self._brokers[leader], request).topics:
                    for each in topic.partitions:
                        partition = TopicPartition(topic.name, each.partition_index)
                        if each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                            raise TryAgain(f"{partition}: its leader has not heard of it yet, or it was just deleted")
                        self._check(each.error_code, str(partition))
                        found[partition] = Position(each.offset, each.leader_epoch)
            return found

        return self._repeat(ask)

    # Connections to leaders, for callers that pipeline requests.

    def leader(self, partition: TopicPartition) -> Connection:
        """An open connection to the partition's leader; raises TryAgain or NoAnswer while there is none."""
        leader = self._leader_of(partition)
        return self._connect(self._brokers[leader])

    def forget(self, partition: TopicPartition) -> None:
        """The leader did not answer, or has changed: look it up again, on a new connection."""
        leader = self._leaders.pop(partition, None)
        if leader in self._brokers:
            self._drop(self._brokers[leader])

    def _leader_of(self, partition: TopicPartition) -> int:
        if partition not in self._leaders:
            response = self.ask(MetadataRequest([MetadataRequestTopic(name=partition.topic)], False))
            for topic in response.topics:
                self._check(topic.error_code, topic.name or partition.topic)
        leader = self._leaders.get(partition)
        if leader is None or leader not in self._brokers:
            raise TryAgain(f"{partition} has no leader now")
        return leader

    def _check(self, code: int, subject: str, message: str | None = None) -> None:
        """Turn an error code into an exception: TryAgain, or ApiError for a permanent one."""
        if not code:
            return
        said = f"{subject}: {message} ({error_name(code)})" if message else f"{subject}: {error_name(code)}"
        if code in RETRIABLE:
            raise TryAgain(said)
        raise ApiError(error_code(code), said)

    def _repeat(self, ask: Callable[[], Answer]) -> Answer:
        deadline = time.monotonic() + self._patience_s
        pause = PAUSE_FIRST_S
        while True:
            try:
                return ask()
            except (NotServed, AuthenticationFailed):
                raise
            except (TryAgain, NoAnswer) as problem:
                self._leaders.clear()
                if time.monotonic() + pause > deadline:
                    addresses = ", ".join(map(str, self._settings.bootstrap))
                    raise TimeoutError(
                        f"the cluster at {addresses} did not answer within {self._patience_s:.0f} s: {problem}"
                    ) from problem
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX_S)

    def _learn(self, response: Any) -> None:
        """Remember the brokers and leaders in a metadata response."""
        if isinstance(response, DescribeClusterResponse):
            alive = (each for each in response.brokers if not each.is_fenced)
            self._brokers |= {each.broker_id: Address(each.host, each.port) for each in alive}
        elif isinstance(response, MetadataResponse):
            self._brokers = {each.node_id: Address(each.host, each.port) for each in response.brokers}
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name or "", each.partition_index)
                    self._leaders.pop(partition, None)
                    if each.leader_id >= 0:
                        self._leaders[partition] = each.leader_id

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(address, self._settings, self._timeout_s)
        return connection

    def _drop(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


def _list_offsets(
    partitions: Iterable[TopicPartition], timestamps: Mapping[TopicPartition, int], read_committed: bool
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for each in partitions:
        by_topic[each.topic].append(ListOffsetsPartition(partition_index=each.partition, timestamp=timestamps[each]))
    topics = [ListOffsetsTopic(name, found) for name, found in by_topic.items()]
    return ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed), topics=topics)
