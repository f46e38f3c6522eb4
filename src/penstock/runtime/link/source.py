"""The source cluster of a link: its brokers, topics and leaders, over connections of this broker.

What a source returns is not trusted with memory or time: no answer is larger than what may have been requested, or has
more elements than are decoded in about a second. Connections to brokers that the source no longer lists are closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from penstock.client.address import Address
from penstock.client.failures import NoAnswer, NotServed, all_failed
from penstock.client.operations.routing import Cluster, Operation, Pause, Step, ToAny, ToBroker
from penstock.client.peer import Peer
from penstock.client.peers import carried_out
from penstock.client.settings import ConnectionSettings, read_settings
from penstock.client.tls import tls_context
from penstock.config.link import FETCH_MAX_BYTES, number
from penstock.model.errors import ApiError, ErrorCode, error_name
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import Env
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse

# A batch may be larger than what was requested: it comes whole if it is the first.
BATCH_BYTES_MAX = 128 * 1024 * 1024
# Answers about topics, settings and groups.
ANSWER_BYTES_MAX = 16 * 1024 * 1024
# Elements of all arrays of an answer. Metadata has about ten for each partition.
ANSWER_ENTRIES_MAX = 1_000_000
BROKERS_MAX = 1_000
# The connection for requests that may return records.
FETCH_LANE = "fetch"
LATEST, EARLIEST = -1, -2
# Later versions have ids of topics, which groups' offsets are not asked for by.
VERSIONS_MAX: Mapping[int, int] = {ApiKey.OFFSET_FETCH: 9}
TOPIC_RESOURCE = 2
DYNAMIC_TOPIC_CONFIG = 1
DESCRIBED_AT_ONCE = 100

P = ParamSpec("P")
T = TypeVar("T")


class SourceTopicState(NamedTuple):
    """A topic as the source's metadata describes it: the leader and its epoch for each partition."""

    topic_id: Uuid
    leaders: Mapping[int, tuple[int, int]]
    is_internal: bool


class Source:
    """One link's connections. Every method may raise NoAnswer, or ApiError for a refusal."""

    def __init__(self, env: Env, configs: Mapping[str, str]) -> None:
        self._env = env
        self._settings: ConnectionSettings = read_settings(configs)
        self._fetch_bytes_max = number(configs, FETCH_MAX_BYTES) + BATCH_BYTES_MAX
        self.timeout_ms = int(self._settings.request_timeout_s * 1000)
        self._peers: dict[tuple[Address, str], Peer] = {}
        self._tls: ssl.SSLContext | None = None
        self.cluster_id = ""
        self.brokers: dict[int, Address] = {}
        self.topics: dict[str, SourceTopicState] = {}

    async def open(self) -> None:
        """Read the certificates, off the loop; before anything else."""
        if self._settings.tls:
            self._tls = await self._env.run_blocking(lambda: tls_context(self._settings))

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            peer.close(flush=False)
        self._peers.clear()

    async def ask(self, request: Any, timeout_ms: int | None = None) -> Any:
        """Any broker's answer."""
        reasons: list[NoAnswer] = []
        for address in dict.fromkeys((*self.brokers.values(), *self._settings.bootstrap)):
            try:
                return await self.ask_at(address, request, timeout_ms)
            except NotServed:
                raise
            except NoAnswer as error:
                reasons.append(error)
        raise all_failed(reasons)

    async def ask_at(self, address: Address, request: Any, timeout_ms: int | None = None, lane: str = "") -> Any:
        """One broker's answer; a `lane` has a connection of its own."""
        peer = self._peers.get((address, lane))
        if peer is None:
            peer = self._peers[address, lane] = self._peer(address, lane)
        return await peer.send(request, timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms)

    async def run(
        self, operation: Callable[Concatenate[Cluster, P], Operation[T]], /, *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Perform an operation once: where it would be retried its problem is raised, as TryAgain or NoAnswer."""
        cluster = Cluster()
        cluster.brokers = dict(self.brokers)
        return await carried_out(operation(cluster, *arguments, **named), lambda step: self._perform(cluster, step))

    async def _perform(self, cluster: Cluster, step: Step) -> Any:
        if isinstance(step, Pause):
            raise NoAnswer(str(step.problem))
        if isinstance(step, ToAny):
            response = await self.ask(step.request)
            cluster.learn(response)
            check_brokers(len(cluster.brokers))
            return response
        if isinstance(step, ToBroker):
            return await self.ask_at(step.address, step.request)
        return {address: await self._answer_of(address, request) for address, request in step.requests.items()}

    async def _answer_of(self, address: Address, request: Any) -> Any:
        try:
            return await self.ask_at(address, request)
        except NoAnswer as error:
            return error

    async def refresh(self) -> None:
        """Learn the brokers, the topics and their leaders anew."""
        response: MetadataResponse = await self.ask(MetadataRequest(None, allow_auto_topic_creation=False))
        check_brokers(len(response.brokers))
        cluster_id = response.cluster_id or ""
        if self.cluster_id and cluster_id != self.cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"cluster {cluster_id} answers at the source's address, where {self.cluster_id} is mirrored",
            )
        self.cluster_id = cluster_id
        self.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self.topics = {
            topic.name or "": SourceTopicState(
                topic.topic_id,
                {row.partition_index: (row.leader_id, row.leader_epoch) for row in topic.partitions},
                topic.is_internal,
            )
            for topic in response.topics
            if not topic.error_code
        }
        known = {*self.brokers.values(), *self._settings.bootstrap}
        for key in [key for key in self._peers if key[0] not in known]:
            self._peers.pop(key).close(flush=False)

    def leader(self, partition: TopicPartition) -> tuple[int, int] | None:
        """The id and epoch of a partition's leader, if it has one whose address is known."""
        topic = self.topics.get(partition.topic)
        found = topic.leaders.get(partition.partition) if topic is not None else None
        return found if found is not None and found[0] in self.brokers else None

    async def topic_configs(
        self, topics: Sequence[str], wanted: frozenset[str]
    ) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
        """The settings that were made for these topics themselves, and why those of others may not be described."""
        found: dict[str, dict[str, str]] = {}
        refused: dict[str, str] = {}
        for first in range(0, len(topics), DESCRIBED_AT_ONCE):
            rows = [
                DescribeConfigsResource(TOPIC_RESOURCE, topic, sorted(wanted))
                for topic in topics[first : first + DESCRIBED_AT_ONCE]
            ]
            response = await self.ask(DescribeConfigsRequest(rows))
            for row in response.results:
                try:
                    check(row.error_code, f"the settings of topic {row.resource_name}")
                except ApiError as error:
                    refused[row.resource_name] = error.message
                    continue
                found[row.resource_name] = {
                    config.name: config.value
                    for config in row.configs
                    if config.config_source == DYNAMIC_TOPIC_CONFIG
                    and config.value is not None
                    and config.name in wanted
                }
        return found, refused

    async def list_offset(self, partition: TopicPartition, timestamp: int, lane: str) -> int:
        """The first (EARLIEST) or next (LATEST) offset of a partition at its leader."""
        leader = self.leader(partition)
        if leader is None:
            raise NoAnswer(f"{partition} has no leader at the source")
        row = ListOffsetsPartition(partition.partition, leader[1], timestamp)
        request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(partition.topic, [row])])
        response = await self.ask_at(self.brokers[leader[0]], request, lane=lane)
        for topic in response.topics:
            for found in topic.partitions:
                check(found.error_code, f"the offsets of {partition}")
                return int(found.offset)
        raise NoAnswer(f"the source returned no offset of {partition}")

    def _peer(self, address: Address, lane: str) -> Peer:
        return Peer(
            lambda: address,
            self._settings.client_id,
            self.timeout_ms,
            self._connect,
            self._env.spawn,
            self._settings.credentials,
            VERSIONS_MAX,
            self._fetch_bytes_max if lane == FETCH_LANE else ANSWER_BYTES_MAX,
            ANSWER_ENTRIES_MAX,
        )

    async def _connect(self, host: str, port: int, make_protocol: Callable[[], asyncio.BaseProtocol]) -> Any:
        context = self._tls
        tls: Callable[[], ssl.SSLContext] | None = None if context is None else lambda: context
        try:
            return await self._env.network.connect(host, port, make_protocol, tls)
        except ValueError as error:
            # The name comes from the source, and may be none at all.
            raise OSError(f"{host!r} is no host: {error}") from None


def check_brokers(count: int) -> None:
    """Raises NoAnswer for a source with more brokers than this broker connects to."""
    if count > BROKERS_MAX:
        raise NoAnswer(f"the source lists {count} brokers, and no more than {BROKERS_MAX} are accepted")


def check(code: int, subject: str) -> None:
    """Raises ApiError for an error that the source returned."""
    if code:
        known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
        raise ApiError(known, f"the source refused {subject}: {error_name(code)}")
