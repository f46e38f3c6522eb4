"""A blocking client of a cluster: requests to any broker, to a given one, or to a partition's leader.

Operations (`penstock.client.operations`) are retried, with fresh metadata, while leaders move and brokers restart,
until a deadline. Permanent errors (no such topic, not authorized) raise ApiError at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Concatenate, ParamSpec, TypeVar

from penstock.client.address import Address
from penstock.client.closing import Closing
from penstock.client.connection import Connection
from penstock.client.failures import NoAnswer, NotServed, all_failed
from penstock.client.operations import configs, offsets
from penstock.client.operations import topics as topic_operations
from penstock.client.operations.offsets import Position
from penstock.client.operations.routing import (
    Cluster,
    Operation,
    Pause,
    Refused,
    Step,
    ToAny,
    ToBroker,
    at_coordinator,
    find_leaders,
    patience_over,
)
from penstock.client.settings import ConnectionSettings
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition, Uuid
from penstock.wire.apis import Request

# How long an operation is retried.
PATIENCE_S = 60.0

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class ClusterClient(Closing):
    """Connections to the brokers of one cluster, opened on demand and kept. It belongs to one thread.

    A response may take `timeout_s`, or what the settings say; an operation is retried for `patience_s`.
    """

    def __init__(
        self, settings: ConnectionSettings, *, timeout_s: float | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self.cluster = Cluster()
        self._settings = settings
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._connections: dict[Address, Connection] = {}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Requests that are sent once.

    def ask(self, request: Request[R]) -> R:
        """Ask any broker that answers. Raises NoAnswer with all reasons, or at once with a permanent one."""
        reasons: list[NoAnswer] = []
        for address in dict.fromkeys((*self._connections, *self.cluster.brokers.values(), *self._settings.bootstrap)):
            try:
                response = self.ask_at(address, request)
            except NoAnswer as error:
                reasons.append(error)
            else:
                self.cluster.learn(response)
                return response
        raise all_failed(reasons)

    def ask_coordinator(self, group: str, request: Request[R]) -> R:
        """Ask the broker that coordinates a group. Raises TryAgain while there is none, NoAnswer, or ApiError."""
        return self.run(at_coordinator, group, request)

    def ask_at(self, address: Address, request: Request[R]) -> R:
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

    # Operations.

    def run(
        self,
        operation: Callable[Concatenate[Cluster, P], Operation[T]],
        /,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Perform an operation. Raises what it raises, and TimeoutError when it was retried for too long."""
        deadline = time.monotonic() + self._patience_s
        steps = operation(self.cluster, *arguments, **named)
        try:
            step = next(steps)
            while True:
                try:
                    result = self._perform(step, deadline)
                except NoAnswer as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as done:
            found: T = done.value
            return found

    def _perform(self, step: Step, deadline: float) -> object:
        if isinstance(step, ToAny):
            return ClusterClient.ask(self, step.request)
        if isinstance(step, ToBroker):
            return self.ask_at(step.address, step.request)
        if isinstance(step, Pause):
            self._pause(step, deadline)
            return None
        found: dict[Address, object] = {}
        for address, request in step.requests.items():
            try:
                found[address] = self.ask_at(address, request)
            except NoAnswer as error:
                found[address] = error
        return found

    def _pause(self, step: Pause, deadline: float) -> None:
        if time.monotonic() + step.seconds > deadline:
            raise patience_over(self._settings.bootstrap, self._patience_s, step) from step.problem
        time.sleep(step.seconds)

    def topics(self) -> list[str]:
        """The names of all topics that are not internal."""
        return [topic.name for topic in self.run(topic_operations.list_topics) if not topic.internal]

    def partitions(self, names: Iterable[str]) -> dict[str, list[int]]:
        """The partitions of these topics; topics that do not exist are left out."""
        found: dict[str, list[int]] = {}
        for name, topic in self.run(topic_operations.describe_topics, names).items():
            if not isinstance(topic, Refused):
                found[name] = [each.partition for each in topic.partitions]
            elif topic.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise topic
        return found

    def topic_ids(self, names: Iterable[str]) -> tuple[str, dict[str, Uuid]]:
        """The cluster's id, and those of the topics that exist."""
        return self.run(topic_operations.topic_ids, names)

    def ensure_topic(
        self,
        topic: str,
        partitions: int = topic_operations.DEFAULT,
        replication_factor: int = topic_operations.DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a topic unless it exists; True if it was created. -1 stands for the cluster's default."""
        return self.run(topic_operations.ensure_topic, topic, partitions, replication_factor, configs)

    def topic_config(self, topic: str, name: str) -> str | None:
        """The effective value of a topic's setting."""
        found = self.run(configs.read_configs, configs.TOPIC, topic, [name])
        return found[0].value if found else None

    def offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The first offset at or after a timestamp for each partition, -1 if there is none."""
        found = self.positions(timestamps, read_committed=read_committed)
        return {partition: each.offset for partition, each in found.items()}

    def positions(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, Position]:
        """The same as `offsets`, with the leader epochs."""
        return self.run(offsets.positions, timestamps, read_committed=read_committed)

    # Connections to leaders, for callers that pipeline requests.

    def leader(self, partition: TopicPartition) -> Connection:
        """An open connection to the partition's leader; raises TryAgain or NoAnswer while there is none."""
        led, refused = self.run(find_leaders, [partition])
        for error in refused.values():
            raise error
        (address,) = led
        return self._connect(address)

    def forget(self, partition: TopicPartition) -> None:
        """The leader did not answer, or has changed: look it up again, on a new connection."""
        leader = self.cluster.leaders.pop(partition, None)
        if leader in self.cluster.brokers:
            self._drop(self.cluster.brokers[leader])

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(address, self._settings, self._timeout_s)
        return connection

    def _drop(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()
