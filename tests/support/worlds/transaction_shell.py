"""The transaction coordinator's shell on one broker: real partitions on disk, a controller in ten lines, and leaders
that note the markers they get."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from penstock.api.context import Client, Handler, RequestContext
from penstock.api.transactions.write_txn_markers import answer_markers
from penstock.config.broker import node_settings
from penstock.config.topic import broker_defaults
from penstock.core.contract import Caller, ProducerIdentity
from penstock.core.metadata.image import Image, PartitionState, partition_record
from penstock.core.metadata.topics import NewTopic, TopicOutcome
from penstock.core.replica.producer_state import EndMarker
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.brokers import Brokers
from penstock.runtime.coordinator.markers import TransactionMarkers
from penstock.runtime.coordinator.transactions import TRANSACTION_TOPIC, Transactions
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.directories import begin_use, open_directory
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.metadata_records import FeatureLevelRecord, PartitionChangeRecord, TopicRecord

BROKER = 1
ID = "copy"
DATA = TopicPartition("t", 0)


class TransactionShell:
    """One broker with a coordinator of transactions."""

    def __init__(self, path: Path, properties: dict[str, str] | None = None) -> None:
        self.env = SystemEnv()
        self.image = Image()
        self.image.replay(FeatureLevelRecord("transaction.version", 2))
        self.topic_ids = count(1)
        self.producer_ids = count(100)
        self.created: list[NewTopic] = []
        # What leaders do with markers: an error for each that they are to refuse, before they take one.
        self.marker_errors: list[ErrorCode] = []
        self.written: list[tuple[TopicPartition, int, int, EndMarker]] = []
        combined = {
            "process.roles": "broker,controller",
            "node.id": str(BROKER),
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
        }
        self.settings, _ = node_settings({**combined, **(properties or {})})
        path.mkdir(exist_ok=True)
        self.directory = open_directory(self.env, path, bytes([BROKER]) * 16)
        self.partitions = Partitions(
            self.env, BROKER, self.image, lambda: broker_defaults({}), [self.directory], 1 << 20
        )
        begin_use(self.env, self.directory)
        self.transactions = self._new_transactions()

    def _new_transactions(self) -> Transactions:
        def leader_of(topic: str, partition: int) -> int | None:
            state = self.image.partition(topic, partition)
            return None if state is None else state.leader

        brokers = Brokers(BROKER, self._no_peer, lambda request: answer_markers(self.write_marker, request))
        markers = TransactionMarkers(self.env, brokers, leader_of)
        return Transactions(self.env, self.image, self, self.partitions, self.take_producer_id, markers, self.settings)

    def _no_peer(self, broker_id: int) -> Any:
        raise AssertionError(f"there is no broker {broker_id}")

    async def take_producer_id(self) -> int:
        await asyncio.sleep(0)
        return next(self.producer_ids)

    async def write_marker(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, marker: EndMarker
    ) -> None:
        await asyncio.sleep(0)
        if self.marker_errors:
            raise ApiError(self.marker_errors.pop(0))
        self.written.append((partition, producer_id, producer_epoch, marker))

    def create_topics(self, wanted: Sequence[NewTopic]) -> asyncio.Future[list[TopicOutcome]]:
        """Everything is created as asked, with its only replica here."""
        outcomes = []
        for topic in wanted:
            self.created.append(topic)
            topic_id = next(self.topic_ids).to_bytes(16, "big")
            state = PartitionState((BROKER,), (BROKER,), BROKER, 0, 0, (bytes(16),))
            rows = [partition_record(topic_id, index, state) for index in range(topic.partitions)]
            self.commit(TopicRecord(topic.name, topic_id), *rows)
            outcomes.append(TopicOutcome(topic.name, topic_id))
        answer: asyncio.Future[list[TopicOutcome]] = asyncio.get_running_loop().create_future()
        answer.set_result(outcomes)
        return answer

    def commit(self, *records: Any) -> None:
        for record in records:
            self.image.replay(record)
        self.partitions.follow(records)

    def elect_again(self) -> None:
        """The coordinator's partition loses its leader and gets it back, in a new epoch."""
        topic = self.image.topics[TRANSACTION_TOPIC]
        for leader in (2, BROKER):
            self.commit(PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, leader=leader))

    @property
    def partition(self) -> Partition:
        found = self.partitions.get(TRANSACTION_TOPIC, 0)
        assert found is not None
        return found

    async def ready(self) -> None:
        """The topics are there, and the coordinator is loaded."""
        if DATA.topic not in self.image.topics:
            await self.create_topics([NewTopic(DATA.topic, 1, 1)])
        await self.transactions.leader_of(ID)
        await self.until(self.is_loaded)

    def is_loaded(self) -> bool:
        try:
            self.transactions.coordinator.host(0)
        except ApiError:
            return False
        return True

    async def started(self) -> ProducerIdentity:
        response = await self.transactions.init_producer_id(InitProducerIdRequest(ID, 60_000), caller())
        assert response.error_code == ErrorCode.NONE
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    async def begun(self) -> ProducerIdentity:
        producer = await self.started()
        error = await self.transactions.ask(
            ID, lambda shard, token, now_ms: shard.add_partitions(ID, producer, [DATA], 2, token, now_ms)
        )
        assert error is ErrorCode.NONE
        return producer

    async def end(self, producer: ProducerIdentity, commit: bool = True) -> EndTxnResponse:
        return await self.transactions.end_txn(EndTxnRequest(ID, *producer, commit), caller())

    def state(self) -> str:
        return self.transactions.coordinator.host(0).shard.describe(ID).transaction_state

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = asyncio.get_running_loop().time() + 5
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, "it did not come to pass in time"
            await asyncio.sleep(0.002)

    async def close(self) -> None:
        self.transactions.close()
        await self.env.close()


def caller(version: int = 5) -> Caller:
    return Caller("client", "/127.0.0.1", version)


async def call(handler: Handler, request: Any, version: int) -> Any:
    answer = handler(request, RequestContext(version, "client", Client(("127.0.0.1", 1), "PLAINTEXT")))
    return await answer if isinstance(answer, Awaitable) else answer


def play(
    path: Path, story: Callable[[TransactionShell], Awaitable[None]], properties: dict[str, str] | None = None
) -> None:
    """Run a test's story, then put everything away."""

    async def run() -> None:
        shell = TransactionShell(path, properties)
        try:
            async with asyncio.timeout(20):
                await shell.ready()
                await story(shell)
        finally:
            await shell.close()

    asyncio.run(run())
