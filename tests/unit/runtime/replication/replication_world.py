"""A few brokers in one process: real partitions, handlers, peers and sockets; a controller in ten lines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.api.context import Client, RequestContext
from penstock.api.dispatch import Dispatcher
from penstock.api.records.list_offsets import list_offsets
from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import Image, PartitionState, ResourceType, partition_record
from penstock.core.replica.fetch_session import SessionCache
from penstock.core.replica.throttle import Throttle
from penstock.model.errors import ErrorCode
from penstock.runtime.coordinator.transaction_guard import TransactionGuard
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.directories import begin_use, open_directory
from penstock.runtime.peer import Peer
from penstock.runtime.replication.fetcher import FetcherSettings
from penstock.runtime.replication.fetchers import FOLLOWER_RATE, LEADER_RATE, ReplicaFetchers, throttled_rate
from penstock.runtime.replication.follower_fetch import FollowerFetch
from penstock.runtime.replication.isr import IsrManager
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.schemas.guard import SchemaGuard
from penstock.runtime.security.access_control import OPEN
from penstock.server.limits import ConnectionLimits
from penstock.server.listener import Listener
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.wire.messages.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from penstock.wire.records import Record, build_batch, read_records, split_batches
from support.record_handlers import fetch_handler, produce_handler

TOPIC, TOPIC_ID = "orders", b"orders--orders--"
LISTENER = "PLAINTEXT"
VERSIONS = {0: (3, 13), 1: (4, 18), 2: (1, 10), 18: (0, 4)}
LAG_MS = 1_000
SIZE = 1 << 20


class Broker:
    """One broker without its controller half."""

    def __init__(self, cluster: Cluster, node_id: int, path: Path) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.path = path
        self.env = SystemEnv()
        self.image = Image()
        self.epoch = cluster.next_epoch()
        self.listener = Listener(LISTENER, "127.0.0.1", 0, ConnectionLimits())
        self.hears = True
        path.mkdir(exist_ok=True)
        self.directory = open_directory(self.env, path, bytes([node_id]) * 16)
        self.partitions = Partitions(
            self.env, node_id, self.image, lambda: broker_defaults({}), [self.directory], SIZE, lag_ms_max=LAG_MS
        )
        self.keeper = IsrManager(self.env, self.partitions, self._ask, lambda: self.epoch, LAG_MS)
        self.fetchers = self._new_fetchers()
        guard = TransactionGuard(self.env, self._no_coordinator, lambda: True)
        self.produce = produce_handler(self.env, self.partitions, guard, SchemaGuard(self.env, None))

    async def start(self) -> None:
        await self.listener.bind()
        sessions = SessionCache(10, self.env.random)
        throttle = Throttle(throttled_rate(self.image, self.node_id, LEADER_RATE))
        followers = FollowerFetch(self.env, self.partitions, sessions, SIZE, self.keeper.propose, throttle)
        sessions.on_closed = followers.end_session
        self.partitions.on_leader(followers.invite)
        handlers = {
            0: self.produce,
            1: fetch_handler(self.env, self.partitions, sessions, followers, SIZE, self.cluster.access),
            2: partial(list_offsets, SimpleNamespace(partitions=self.partitions, access=OPEN, tier=None)),  # type: ignore[arg-type]
            18: lambda *_: ApiVersionsResponse(api_keys=[ApiVersion(key, *rest) for key, rest in VERSIONS.items()]),
        }
        self.fetch = handlers[1]
        self.listener.start(partial(Dispatcher(handlers, VERSIONS).session, LISTENER))
        begin_use(self.env, self.directory)
        self.fetchers.start()
        self.keeper.start()

    async def _no_coordinator(self, *_: object) -> ErrorCode:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _new_fetchers(self) -> ReplicaFetchers:
        settings = FetcherSettings(wait_max_ms=100, backoff_ms=100, max_bytes=self.cluster.fetch_max_bytes)
        throttle = Throttle(throttled_rate(self.image, self.node_id, FOLLOWER_RATE))
        return ReplicaFetchers(self.env, self.partitions, self._peer, settings, lambda: self.epoch, throttle)

    def follow_again(self) -> None:
        """Fetch again after the fetchers were stopped."""
        self.fetchers = self._new_fetchers()
        self.fetchers.start()

    async def crash(self) -> None:
        """Gone without a word; what was written stays, unless the test cuts it."""
        self.fetchers.stop()
        await self.listener.stop(0)
        await self.env.close()

    def _peer(self, broker_id: int) -> Peer:
        return Peer(self.env, lambda: self.cluster.address(self.node_id, broker_id), f"replica-{self.node_id}", 5_000)

    async def _ask(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return self.cluster.alter(request)

    @property
    def partition(self) -> Partition:
        found = self.partitions.get(TOPIC, 0)
        assert found is not None
        return found

    def values(self) -> list[bytes]:
        """What is in the log, committed or not."""
        log = self.partition.log
        found, offset = [], log.start_offset
        while data := log.read(offset, SIZE).read():
            for position, header in split_batches(data, SIZE):
                found += [record.value or b"" for record in read_records(data, SIZE, position)]
                offset = header.next_offset
        return found

    async def send(self, value: bytes, *, acks: int = -1, timeout_ms: int = 3_000) -> PartitionProduceResponse:
        """Produce one record to this broker."""
        batch = bytearray(build_batch([Record(0, self.env.now_ms(), None, value)]))
        topic = TopicProduceData(TOPIC, TOPIC_ID, [PartitionProduceData(0, memoryview(batch))])
        context = RequestContext(13, "test", Client(("127.0.0.1", 1), LISTENER))
        reply = self.produce(ProduceRequest(None, acks, timeout_ms, [topic]), context)
        response: Any = await reply if isinstance(reply, Awaitable) else reply
        row: PartitionProduceResponse = response.responses[0].partition_responses[0]
        self.last_response = response
        return row


class Cluster:
    """Brokers, and the metadata that they all hear of unless a test makes them deaf."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.image = Image()
        self.brokers: dict[int, Broker] = {}
        self.cut: set[tuple[int, int]] = set()
        self.unheard: dict[int, list[Any]] = {}
        self.proposals: list[AlterPartitionRequest] = []
        self.refuse_proposals = False
        self.fetch_max_bytes = SIZE
        self.access = OPEN
        self._epoch = 10
        self._log: list[Any] = []

    def next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    def address(self, source: int, target: int) -> tuple[str, int] | None:
        broker = self.brokers.get(target)
        if broker is None or (source, target) in self.cut:
            return None
        return "127.0.0.1", broker.listener.port

    async def start(self, node_id: int, rack: str | None = None) -> Broker:
        """Start a broker, for the first time or again."""
        broker = Broker(self, node_id, self.path / str(node_id))
        for record in self._log:
            broker.image.replay(record)
        self.brokers[node_id] = broker
        await broker.start()
        broker.partitions.open_all()
        endpoint = BrokerEndpoint(LISTENER, "127.0.0.1", broker.listener.port, 0)
        self.commit(
            RegisterBrokerRecord(
                broker_id=node_id, broker_epoch=broker.epoch, end_points=[endpoint], rack=rack, fenced=False
            )
        )
        return broker

    def commit(self, *records: Any) -> None:
        """Decide something; every broker that hears acts on it."""
        self._log += records
        for record in records:
            self.image.replay(record)
        for broker in list(self.brokers.values()):
            if broker.hears:
                self._deliver(broker, records)
            else:
                self.unheard.setdefault(broker.node_id, []).extend(records)

    def _deliver(self, broker: Broker, records: Any) -> None:
        for record in records:
            broker.image.replay(record)
        broker.partitions.follow(records)

    def listen(self, broker: Broker) -> None:
        """Let a deaf broker hear again."""
        broker.hears = True
        self._deliver(broker, self.unheard.pop(broker.node_id, []))

    @property
    def state(self) -> PartitionState:
        state = self.image.partition(TOPIC, 0)
        assert state is not None
        return state

    def create(self, replicas: tuple[int, ...], *, min_in_sync: int = 1, isr: tuple[int, ...] | None = None) -> None:
        """Make the topic, with one partition that its first replica leads."""
        state = PartitionState(replicas, isr or replicas, replicas[0], 0, 0, (bytes(16),) * len(replicas))
        self.commit(
            TopicRecord(TOPIC, TOPIC_ID),
            ConfigRecord(ResourceType.TOPIC, TOPIC, "min.insync.replicas", str(min_in_sync)),
            partition_record(TOPIC_ID, 0, state),
        )

    def change(self, **changes: Any) -> None:
        """Change the partition."""
        self.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **changes))

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """The controller's response to a proposal."""
        self.proposals.append(request)
        row = request.topics[0].partitions[0]
        state = self.state
        isr = tuple(broker.broker_id for broker in row.new_isr_with_epochs)
        if self.refuse_proposals:
            error = ErrorCode.OPERATION_NOT_ATTEMPTED
        elif row.leader_epoch != state.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif row.partition_epoch != state.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        else:
            error = ErrorCode.NONE
            self.change(isr=isr, eligible_leader_replicas=())
            state = self.state
        answer = AlterPartitionResponsePartitionData(
            0, error, state.leader, state.leader_epoch, state.in_sync_replicas, 0, state.partition_epoch
        )
        return AlterPartitionResponse(topics=[AlterPartitionResponseTopicData(TOPIC_ID, [answer])])


def in_cluster(
    path: Path, story: Callable[[Cluster], Awaitable[None]], kind: Callable[[Path], Cluster] = Cluster
) -> None:
    """Run a test's story, then put everything away."""

    async def run() -> None:
        cluster = kind(path)
        try:
            await asyncio.wait_for(story(cluster), 20)
        finally:
            for broker in list(cluster.brokers.values()):
                await broker.crash()

    asyncio.run(run())


async def until(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    """Wait for something to become true."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not come to pass in time"
        await asyncio.sleep(0.005)


async def three(cluster: Cluster, *, min_in_sync: int = 1) -> tuple[Broker, Broker, Broker]:
    """Three brokers with one replica each of a new partition."""
    brokers = [await cluster.start(number) for number in (1, 2, 3)]
    cluster.create((1, 2, 3), min_in_sync=min_in_sync)
    return brokers[0], brokers[1], brokers[2]
