"""Producers may know of a leader before it has opened its partitions, or before its checks have seen them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from replication_world import TOPIC, TOPIC_ID, Broker, Cluster, in_cluster, until

from penstock.api.context import Client, RequestContext
from penstock.api.records import produce as produce_api
from penstock.core.metadata.image import PartitionState, partition_record
from penstock.core.schema_ids import Registered, Rules
from penstock.model.errors import ErrorCode
from penstock.runtime.coordinator.transaction_guard import TransactionGuard
from penstock.runtime.replication.partitions import OPENED_AT_ONCE
from penstock.runtime.schemas.guard import SchemaGuard
from penstock.storage.files import StorageError
from penstock.wire.messages.metadata_records import PartitionChangeRecord, TopicRecord
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.records import Record, build_batch, read_records, split_batches
from support.record_handlers import produce_handler

# So many are opened off the loop.
PARTITIONS = 2 * OPENED_AT_ONCE
LAST = PARTITIONS - 1
STRATEGY = "io.confluent.kafka.serializers.subject.TopicNameStrategy"


def create(cluster: Cluster, leaders: list[int]) -> None:
    """Make the topic, with one partition for each leader."""
    states = [PartitionState((leader,), (leader,), leader, 0, 0, (bytes(16),)) for leader in leaders]
    rows = [partition_record(TOPIC_ID, index, state) for index, state in enumerate(states)]
    cluster.commit(TopicRecord(TOPIC, TOPIC_ID), *rows)


class Producer:
    """A connection to one broker."""

    def __init__(
        self,
        broker: Broker,
        answer: Callable[[], Awaitable[ErrorCode]] | None = None,
        registry: Any = None,
        transactional_id: str | None = None,
    ) -> None:
        async def verify(*_: Any) -> ErrorCode:
            return await answer() if answer is not None else ErrorCode.NONE

        self.broker = broker
        self.schemas = SchemaGuard(broker.env, registry)
        guard = TransactionGuard(broker.env, verify, lambda: True)
        self.produce = produce_handler(broker.env, broker.partitions, guard, self.schemas)
        self.name = transactional_id
        self.client = Client(("127.0.0.1", 1), "PLAINTEXT")

    def send(self, *rows: tuple[int, bytes], acks: int = -1, timeout_ms: int = 5_000) -> asyncio.Task[list[int]]:
        """Start to send a record each to some partitions; returns their errors."""
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        batches = [
            bytearray(build_batch([Record(0, self.broker.env.now_ms(), None, value)], **producer if self.name else {}))
            for _, value in rows
        ]
        data = [PartitionProduceData(index, memoryview(batch)) for (index, _), batch in zip(rows, batches, strict=True)]
        request = ProduceRequest(self.name, acks, timeout_ms, [TopicProduceData(TOPIC, TOPIC_ID, data)])
        reply: Any = self.produce(request, RequestContext(11, "test", self.client))

        async def codes() -> list[int]:
            response = await reply if isinstance(reply, Awaitable) else reply
            return [] if response is None else [row.error_code for row in response.responses[0].partition_responses]

        return asyncio.ensure_future(codes())


def end_of(broker: Broker, index: int) -> int:
    partition = broker.partitions.get(TOPIC, index)
    return -1 if partition is None else partition.log.end_offset


@pytest.mark.parametrize("acks", [-1, 1, 0])
@pytest.mark.parametrize("transactional_id", [None, "payments"])
def test_records_for_partitions_that_are_being_opened_are_appended_in_order(
    tmp_path: Path, acks: int, transactional_id: str | None
) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        create(cluster, [1] * PARTITIONS)
        producer = Producer(one, transactional_id=transactional_id)
        assert end_of(one, 0) == end_of(one, LAST) == -1, "nothing is open yet"
        first = producer.send((LAST, b"first"), (0, b"first"), acks=acks)
        # Both wait: the second one must not overtake the first, whichever partition is opened first.
        second = Producer(one).send((1, b"other connection"), acks=acks)
        assert await first == ([] if acks == 0 else [0, 0])
        assert await second == ([] if acks == 0 else [0])
        assert (end_of(one, 0), end_of(one, 1), end_of(one, LAST)) == (1, 1, 1)

    in_cluster(tmp_path, story)


def test_the_later_requests_of_a_connection_wait_behind_one_for_a_new_partition(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        create(cluster, [1] * PARTITIONS)
        producer = Producer(one)
        sent = [producer.send((LAST, b"%d" % number), acks=0) for number in range(5)]
        await asyncio.gather(*sent)
        partition = one.partitions.get(TOPIC, LAST)
        assert partition is not None
        data = partition.log.read(0, 10_000).read()
        records = [
            record for position, _ in split_batches(data, 10_000) for record in read_records(data, 10_000, position)
        ]
        assert [record.value for record in records] == [b"0", b"1", b"2", b"3", b"4"]

    in_cluster(tmp_path, story)


def test_a_request_waits_no_longer_than_its_client_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        run_blocking, never = one.env.run_blocking, asyncio.Event()

        async def open_later(work: Callable[[], Any]) -> Any:
            await never.wait()
            return await run_blocking(work)

        monkeypatch.setattr(one.env, "run_blocking", lambda work: asyncio.ensure_future(open_later(work)))
        create(cluster, [1] * PARTITIONS)
        producer = Producer(one)
        assert await producer.send((LAST, b"late"), timeout_ms=20) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        monkeypatch.setattr(produce_api, "OPENING_MS_MAX", 20)
        assert await producer.send((LAST, b"late"), timeout_ms=60_000) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        never.set()
        await until(lambda: not one.partitions.is_behind)

    in_cluster(tmp_path, story)


def test_a_partition_that_cannot_be_opened_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        one = await cluster.start(1)
        place = one.partitions._place

        def fail_one(topic: Any, index: int) -> Any:
            if index == LAST:
                raise StorageError("this one is damaged")
            return place(topic, index)

        monkeypatch.setattr(one.partitions, "_place", fail_one)
        create(cluster, [1] * PARTITIONS)
        assert await Producer(one).send((LAST, b"lost"), timeout_ms=60_000) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert await Producer(one).send((LAST, b"lost"), timeout_ms=60_000) == [ErrorCode.KAFKA_STORAGE_ERROR]

    in_cluster(tmp_path, story)


def test_a_batch_that_was_not_verified_is_not_appended_when_its_partition_is_led_by_then(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, _ = await cluster.start(1), await cluster.start(2)
        create(cluster, [1, 2])
        cluster.commit(PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1, 2]))
        await until(lambda: one.partitions.get(TOPIC, 1) is not None)
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        asked = asyncio.Event()

        async def coordinator() -> ErrorCode:
            asked.set()
            return await asyncio.shield(answer)

        producer = Producer(one, coordinator, transactional_id="payments")
        sent = producer.send((0, b"verified"), (1, b"not verified"))
        await asked.wait()
        cluster.commit(PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=1))
        end = end_of(one, 1)
        answer.set_result(ErrorCode.NONE)
        # The producer tries again after this error; INVALID_TXN_STATE would end its transaction.
        assert await sent == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert end_of(one, 1) == end
        assert await producer.send((1, b"not verified"), acks=1) == [0]

    in_cluster(tmp_path, story)


def test_a_batch_whose_schema_was_not_checked_is_not_appended_when_its_partition_is_led_by_then(
    tmp_path: Path,
) -> None:
    class Registry:
        """Knows of schema 1 only, and answers when the test does."""

        def __init__(self) -> None:
            self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.asked = asyncio.Event()

        def remembered(self, schema_id: int) -> None:  # noqa: ARG002
            return None

        async def look_up(self, topic: str, schema_id: int) -> Registered:  # noqa: ARG002
            self.asked.set()
            await asyncio.shield(self.answer)
            return Registered(frozenset({f"{TOPIC}-value"} if schema_id == 1 else ()), frozenset())

    async def story(cluster: Cluster) -> None:
        one, _ = await cluster.start(1), await cluster.start(2)
        create(cluster, [1, 2])
        cluster.commit(PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1, 2]))
        await until(lambda: one.partitions.get(TOPIC, 1) is not None)
        registry = Registry()
        producer = Producer(one, registry=registry)
        producer.schemas.watched[TOPIC] = Rules(None, STRATEGY)
        good, bad = b"\0\0\0\0\1good", b"\0\0\0\0\2bad"
        sent = producer.send((0, good), (1, bad), acks=1)
        await registry.asked.wait()
        cluster.commit(PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=1))
        end = end_of(one, 1)
        registry.answer.set_result(None)
        assert await sent == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert end_of(one, 1) == end

    in_cluster(tmp_path, story)
