"""A cluster as a reader needs it: which partitions there are, who leads them, and their offsets.

Every question is asked again, with fresh metadata, while leaders move and brokers restart, until a deadline. What the
cluster answers for good (no such topic, not allowed) comes out as `ApiError` at once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.spark.connection import Connection, name_of
from penstock.spark.security import Access, Address
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.primitives import MalformedMessage

EARLIEST = -2
LATEST = -1
# How long a question is repeated, and the pauses between tries.
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS_FIRST = 0.05
PAUSE_SECONDS_MAX = 1.0
CLIENTS_KEPT_MAX = 8

RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)

Answer = TypeVar("Answer")


class TryAgain(Exception):
    """What was asked cannot be answered right now."""


class ClusterClient:
    """Connections to the brokers of one cluster, opened when they are needed and kept."""

    def __init__(self, access: Access, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._access = access
        self._patience_seconds = patience_seconds
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._request_seconds = float(access.property("request.timeout.ms", "30000")) / 1000

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def topics(self) -> list[str]:
        """The names of all topics that are not Kafka's own."""
        response = self._repeat(lambda: self._ask_anyone(MetadataRequest(None, False)))
        self._learn(response)
        return sorted(topic.name for topic in response.topics if not topic.is_internal and not topic.error_code)

    def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The partitions of each of these topics that exists; those that don't are left out."""
        wanted = [MetadataRequestTopic(name=topic) for topic in sorted(set(topics))]
        response = self._repeat(lambda: self._checked(self._ask_anyone(MetadataRequest(wanted, False))))
        return {
            topic.name: sorted(each.partition_index for each in topic.partitions)
            for topic in response.topics
            if not topic.error_code
        }

    def offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The first offset at or after a time for each partition, -1 where there is none.

        `EARLIEST` and `LATEST` stand for the ends of the log; with `read_committed` its end is the last stable offset.
        """
        found: dict[TopicPartition, int] = {}

        def ask() -> dict[TopicPartition, int]:
            missing = {each: at for each, at in timestamps.items() if each not in found}
            for leader, partitions in self._by_leader(missing).items():
                request = _list_offsets(partitions, missing, read_committed)
                for topic in self._ask(leader, request).topics:
                    for each in topic.partitions:
                        partition = TopicPartition(topic.name, each.partition_index)
                        self._check(each.error_code, str(partition))
                        found[partition] = each.offset
            return found

        return self._repeat(ask)

    def leader(self, partition: TopicPartition) -> Connection:
        """An open connection to the partition's leader; TryAgain or OSError while there is none."""
        leader = self._leader_of(partition)
        return self._connect(self._brokers[leader])

    def forget(self, partition: TopicPartition) -> None:
        """The leader did not answer, or is the leader no more: look for it afresh, on a connection of its own."""
        leader = self._leaders.pop(partition, None)
        if leader in self._brokers:
            self._drop(self._brokers[leader])

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        chosen: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            chosen[self._leader_of(partition)].append(partition)
        return chosen

    def _leader_of(self, partition: TopicPartition) -> int:
        if partition not in self._leaders:
            response = self._ask_anyone(MetadataRequest([MetadataRequestTopic(name=partition.topic)], False))
            for topic in response.topics:
                self._check(topic.error_code, topic.name or partition.topic)
        leader = self._leaders.get(partition)
        if leader is None or leader not in self._brokers:
            raise TryAgain(f"{partition} has no leader now")
        return leader

    def _checked(self, response: Any) -> Any:
        for topic in response.topics:
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._check(topic.error_code, topic.name)
        return response

    def _check(self, code: int, subject: str) -> None:
        """Turn an error code into an exception: one that asks for another try, or one that stays."""
        if not code:
            return
        if code in RETRIABLE:
            self._leaders.clear()
            raise TryAgain(f"{subject}: {name_of(code)}")
        raise ApiError(ErrorCode(code), f"{subject}: {name_of(code)}")

    def _repeat(self, ask: Callable[[], Answer]) -> Answer:
        deadline = time.monotonic() + self._patience_seconds
        pause = PAUSE_SECONDS_FIRST
        while True:
            try:
                return ask()
            except (TryAgain, OSError, MalformedMessage) as problem:
                self._leaders.clear()
                if time.monotonic() + pause > deadline:
                    addresses = ", ".join(map(str, self._access.bootstrap))
                    raise TimeoutError(
                        f"the cluster at {addresses} did not answer within {self._patience_seconds:.0f} s: {problem}"
                    ) from problem
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def _ask(self, node_id: int, request: Any) -> Any:
        connection = self._connect(self._brokers[node_id])
        try:
            return connection.call(request)
        except (OSError, MalformedMessage):
            self._drop(connection.address)
            raise

    def _ask_anyone(self, request: Any) -> Any:
        problem: Exception = TryAgain("there is no address to ask")
        for address in dict.fromkeys((*self._connections, *self._brokers.values(), *self._access.bootstrap)):
            try:
                response = self._connect(address).call(request)
            except (OSError, MalformedMessage) as error:
                self._drop(address)
                problem = error
                continue
            if isinstance(request, MetadataRequest):
                self._learn(response)
            return response
        raise problem

    def _learn(self, response: Any) -> None:
        self._brokers = {each.node_id: Address(each.host, each.port) for each in response.brokers}
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                self._leaders.pop(partition, None)
                if each.leader_id >= 0:
                    self._leaders[partition] = each.leader_id

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(address, self._access, self._request_seconds)
        return connection

    def _drop(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


@lru_cache(maxsize=CLIENTS_KEPT_MAX)
def shared_client(access: Access) -> ClusterClient:
    """The client of this process for a cluster: Spark's Python workers live for many tasks, one at a time."""
    return ClusterClient(access)


def _list_offsets(
    partitions: Iterable[TopicPartition], timestamps: Mapping[TopicPartition, int], read_committed: bool
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for each in partitions:
        by_topic[each.topic].append(ListOffsetsPartition(partition_index=each.partition, timestamp=timestamps[each]))
    topics = [ListOffsetsTopic(name, found) for name, found in by_topic.items()]
    return ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed), topics=topics)
