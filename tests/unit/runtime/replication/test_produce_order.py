"""Produce requests of one connection are appended in the order in which they came, whatever one of them waits for."""

from __future__ import annotations

import asyncio
import gc
import weakref
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock.api.context import Client, RequestContext
from penstock.api.dispatch import Dispatcher
from penstock.api.records.produce_append import ROWS_AT_ONCE_MAX
from penstock.core.metadata.topics import NewTopic
from penstock.core.schema_ids import Registered, Rules
from penstock.core.security.authorizer import Authorizer
from penstock.model.access import Operation, Permission
from penstock.model.errors import ApiError, ErrorCode, ProtocolError
from penstock.runtime.coordinator.transaction_guard import TransactionGuard
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.schemas.guard import SchemaGuard
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.codec import decode, encode
from penstock.wire.frame import RequestHeader, encode_request
from penstock.wire.messages.metadata_records import AccessControlEntryRecord, RemoveTopicRecord
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.wire.records import Record, build_batch, read_records
from support.record_handlers import produce_handler
from support.worlds.transaction_shell import DATA, ID, TransactionShell, play

CHECKED = "checked"
STRATEGY = "io.confluent.kafka.serializers.subject.TopicNameStrategy"
VERSION = 9
HEADER_BYTES = 9
GOOD, BAD = Registered(frozenset({f"{CHECKED}-value"}), frozenset()), Registered(frozenset(), frozenset())


class Registry:
    """Knows nothing by heart, and answers when the test decides."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Registered] = asyncio.get_running_loop().create_future()
        self.questions = 0

    def remembered(self, schema_id: int) -> None:  # noqa: ARG002
        return None

    async def look_up(self, topic: str, schema_id: int) -> Registered:  # noqa: ARG002
        self.questions += 1
        return await asyncio.shield(self.answer)


class Held(bytearray):
    """A buffer of which a test can find out whether it is still in use."""


class Heard:
    """Whether this broker has heard of late that it leads."""

    def __init__(self, leads: bool) -> None:
        self._leads = leads

    def is_sure(self, _: Partition) -> bool:
        return self._leads


class World:
    """A broker with one topic whose schema ids are checked and one that transactions write to."""

    def __init__(self, shell: TransactionShell) -> None:
        self.shell = shell
        self.registry = Registry()
        self.verified: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        schemas = SchemaGuard(shell.env, self.registry)  # type: ignore[arg-type]
        schemas.watched[CHECKED] = Rules(None, STRATEGY)
        guard = TransactionGuard(shell.env, self._verify, lambda: True)
        produce = self.produce = produce_handler(shell.env, shell.partitions, guard, schemas, sync_on_ack=False)
        self.dispatcher = Dispatcher({ApiKey.PRODUCE: produce}, {ApiKey.PRODUCE: (3, 13)})

    async def _verify(self, *_: object) -> ErrorCode:
        return await asyncio.shield(self.verified)

    def send(self, client: Client, topic: str, value: bytes, *, acks: int = -1, **batch: Any) -> Any:
        records = build_batch([Record(0, self.shell.env.now_ms(), None, b"\0\0\0\0\1" + value)], **batch)
        data = PartitionProduceData(0, records)
        name = ID if batch.get("transactional") else None
        request = ProduceRequest(name, acks, 30_000, [TopicProduceData(topic, partition_data=[data])])
        header = RequestHeader(ApiKey.PRODUCE, VERSION, 1, "test")
        frame = b"".join(encode_request(header, [encode(request, VERSION)]))
        return self.dispatcher.answer(bytearray(frame[4:]), client)

    def values(self, topic: str) -> list[bytes]:
        partition = self.shell.partitions.get(topic, 0)
        assert partition is not None
        found: list[bytes] = []
        offset = 0
        while offset < partition.log.end_offset:
            data = partition.log.read(offset, 1 << 20, minimum_one_batch=True).read()
            found += [(record.value or b"")[5:] for record in read_records(data, 1 << 20)]
            offset = len(found)
        return found


def error_of(reply: Any) -> ErrorCode:
    response = decode(ProduceResponse, VERSION, b"".join(reply)[HEADER_BYTES:])
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def connection(port: int = 1) -> Client:
    return Client(("127.0.0.1", port), "")


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def world_of(shell: TransactionShell) -> World:
    await shell.create_topics([NewTopic(CHECKED, 1, 1)])
    return World(shell)


def test_what_need_not_wait_waits_behind_what_does(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        client = connection()
        first = world.send(client, CHECKED, b"first")
        # It is to be appended second though the first one's coroutine has not begun to run.
        second = world.send(client, DATA.topic, b"second")
        other = world.send(connection(2), DATA.topic, b"other")
        await settled()
        assert world.values(DATA.topic) == [b"other"]
        assert error_of(await other if isinstance(other, asyncio.Future) else other) is ErrorCode.NONE
        world.registry.answer.set_result(GOOD)
        assert [error_of(await reply) for reply in (first, second)] == [ErrorCode.NONE] * 2
        assert world.values(CHECKED) == [b"first"]
        assert world.values(DATA.topic) == [b"other", b"second"]
        assert client.last_write is None
        third = world.send(client, DATA.topic, b"third", acks=1)
        assert isinstance(third, list), "nothing is in its way any more"

    play(tmp_path, story)


def test_a_leader_that_may_be_replaced_refuses_no_sequence_for_good(tmp_path: Path) -> None:
    """Its successor may have what it misses; producers give up on the one answer, and repeat on the other."""

    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        producer = {"producer_id": 7, "producer_epoch": 0}
        world.send(connection(), DATA.topic, b"first", acks=1, base_sequence=0, **producer)
        for leads, told in ((True, "OUT_OF_ORDER_SEQUENCE_NUMBER"), (False, "NOT_LEADER_OR_FOLLOWER")):
            shell.partitions.leadership = Heard(leads)  # type: ignore[assignment]
            reply = world.send(connection(), DATA.topic, b"third", acks=1, base_sequence=2, **producer)
            assert error_of(reply).name == told
        assert world.values(DATA.topic) == [b"first"]

    play(tmp_path, story)


def test_what_is_sent_behind_a_batch_that_was_refused_for_now_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas are missing, and are back before the next batch arrives: it must be neither a gap nor the first."""
    is_alone = False
    check_enough_replicas = Partition.check_enough_replicas

    def check(partition: Partition) -> None:
        if is_alone:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "alone")
        check_enough_replicas(partition)

    monkeypatch.setattr(Partition, "check_enough_replicas", check)

    async def story(shell: TransactionShell) -> None:
        nonlocal is_alone
        world = await world_of(shell)

        async def told(value: bytes, sequence: int, producer_id: int) -> str:
            batch = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            reply = world.send(connection(), DATA.topic, value, **batch)
            return error_of(await reply if isinstance(reply, asyncio.Future) else reply).name

        assert await told(b"first", 0, 7) == "NONE"
        is_alone = True
        assert await told(b"second", 1, 7) == "NOT_ENOUGH_REPLICAS"
        assert await told(b"new", 0, 8) == "NOT_ENOUGH_REPLICAS"
        assert await told(b"first", 0, 7) == "NONE", "it is stored already"
        is_alone = False
        assert await told(b"third", 2, 7) == "NOT_ENOUGH_REPLICAS"
        assert await told(b"newer", 1, 8) == "NOT_ENOUGH_REPLICAS"
        for value, sequence, producer_id in ((b"second", 1, 7), (b"third", 2, 7), (b"new", 0, 8), (b"newer", 1, 8)):
            assert await told(value, sequence, producer_id) == "NONE"
        assert world.values(DATA.topic) == [b"first", b"second", b"third", b"new", b"newer"]
        assert await told(b"fifth", 4, 7) == "OUT_OF_ORDER_SEQUENCE_NUMBER", "nothing was refused before it"

    play(tmp_path, story)


def test_a_batch_that_was_stored_before_it_was_refused_hides_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that restarts refuses what is stored before it leads again, and what is not before replicas are back."""

    def refuse(code: ErrorCode) -> Any:
        def check(*_: object, **__: object) -> None:
            raise ApiError(code, "for now")

        return check

    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)

        async def told(value: bytes, sequence: int) -> str:
            batch = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            reply = world.send(connection(), DATA.topic, value, **batch)
            return error_of(await reply if isinstance(reply, asyncio.Future) else reply).name

        assert await told(b"first", 0) == "NONE"
        with monkeypatch.context() as patched:
            patched.setattr(Partitions, "lookup", refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            assert await told(b"first", 0) == "NOT_LEADER_OR_FOLLOWER"
        with monkeypatch.context() as patched:
            patched.setattr(Partition, "check_enough_replicas", refuse(ErrorCode.NOT_ENOUGH_REPLICAS))
            assert await told(b"first", 0) == "NONE"
            assert await told(b"second", 1) == "NOT_ENOUGH_REPLICAS"
        assert await told(b"third", 2) == "NOT_ENOUGH_REPLICAS"
        assert [await told(b"second", 1), await told(b"third", 2)] == ["NONE", "NONE"]

    play(tmp_path, story)


def test_a_repeated_batch_further_back_than_memory_is_looked_for_before_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        client = connection()

        async def told(sequence: int, acks: int = -1) -> tuple[ErrorCode, int]:
            options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            reply = world.send(client, DATA.topic, b"x", acks=acks, **options)
            reply = await reply if isinstance(reply, asyncio.Future) else reply
            response = decode(ProduceResponse, VERSION, b"".join(reply)[HEADER_BYTES:])
            row = response.responses[0].partition_responses[0]
            return ErrorCode(row.error_code), row.base_offset

        for sequence in range(12):
            assert await told(sequence) == (ErrorCode.NONE, sequence)
        for acks in (-1, 1):
            assert [await told(sequence, acks) for sequence in (0, 3, 11)] == [
                (ErrorCode.NONE, one) for one in (0, 3, 11)
            ]
        partition = shell.partitions.get(*DATA)
        assert partition is not None
        assert partition.log.end_offset == 12
        partition.log.advance_start_offset(2)
        assert await told(0) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        # What is stored needs no replicas; what is not is refused for the reason that passes.
        partition.forget_recalled()
        monkeypatch.setattr(Partition, "check_enough_replicas", refuse_for_replicas)
        assert await told(4) == (ErrorCode.NONE, 4)
        assert await told(0) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)

    play(tmp_path, story)


def test_a_partition_refuses_a_producer_too_many_and_keeps_those_it_knows(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        partition = shell.partitions.get(*DATA)
        assert partition is not None
        partition.producer_ids_max = 2

        async def told(producer_id: int, sequence: int) -> ErrorCode:
            batch = {"producer_id": producer_id, "producer_epoch": 0 if producer_id >= 0 else -1}
            reply = world.send(connection(), DATA.topic, b"x", base_sequence=sequence, **batch)
            return error_of(await reply if isinstance(reply, asyncio.Future) else reply)

        assert [await told(producer_id, 0) for producer_id in (1, 2)] == [ErrorCode.NONE] * 2
        assert await told(3, 0) is ErrorCode.POLICY_VIOLATION
        assert [await told(producer_id, 1) for producer_id in (1, 2)] == [ErrorCode.NONE] * 2
        assert await told(1, 0) is ErrorCode.NONE, "it is stored already"
        assert await told(-1, -1) is ErrorCode.NONE
        # Those that have been idle for long enough make room.
        partition.log.producers.expire(shell.env.now_ms() + 1_000, 1_000)
        assert await told(3, 0) is ErrorCode.NONE
        assert partition.log.end_offset == 6

    play(tmp_path, story)


def refuse_for_replicas(_: Partition) -> None:
    raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)


def test_a_refused_write_lets_the_next_one_pass(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        client = connection()
        first, second = world.send(client, CHECKED, b"first"), world.send(client, DATA.topic, b"second")
        world.registry.answer.set_result(BAD)
        assert [error_of(await reply) for reply in (first, second)] == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]
        assert (world.values(CHECKED), world.values(DATA.topic)) == ([], [b"second"])

    play(tmp_path, story)


def test_a_write_that_fails_while_it_waits_lets_none_overtake_those_before_it(tmp_path: Path) -> None:
    """As by a bug, or a task that is cancelled."""

    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        client = connection()
        in_transaction = {"producer_id": 100, "producer_epoch": 0, "transactional": True}
        first = world.send(client, CHECKED, b"first")
        second = world.send(client, DATA.topic, b"second", base_sequence=0, **in_transaction)
        third = world.send(client, DATA.topic, b"third")
        world.verified.set_exception(RuntimeError("a bug"))
        await settled()
        assert world.values(DATA.topic) == [], "the first is not appended yet"
        world.registry.answer.set_result(GOOD)
        assert error_of(await first) is ErrorCode.NONE
        await asyncio.gather(second, return_exceptions=True)
        assert error_of(await third) is ErrorCode.NONE
        assert (world.values(CHECKED), world.values(DATA.topic)) == ([b"first"], [b"third"])
        assert (client.last_write, client.waiting_bytes) == (None, 0)

    play(tmp_path, story)


def test_a_write_that_waited_is_not_appended_to_a_new_topic_of_the_same_name(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        waiting = world.send(connection(), CHECKED, b"for the former topic")
        await settled()
        shell.commit(RemoveTopicRecord(shell.image.topics[CHECKED].topic_id))
        await shell.create_topics([NewTopic(CHECKED, 1, 1)])
        world.registry.answer.set_result(GOOD)
        assert error_of(await waiting) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert world.values(CHECKED) == []

    play(tmp_path, story)


def test_a_write_to_a_topic_that_appears_while_it_waits_needs_the_right(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        access = AccessControl(Authorizer())
        entry = AccessControlEntryRecord(
            bytes(16), 2, CHECKED, 3, connection().principal, "*", Operation.WRITE, Permission.ALLOW
        )
        access.committed([entry])
        guard = TransactionGuard(shell.env, world._verify, lambda: True)
        produce = produce_handler(shell.env, shell.partitions, guard, SchemaGuard(shell.env, None), access=access)
        known = shell.image.topics[CHECKED].topic_id
        # A restored topic has the id that it had before.
        restored = bytes(15) + b"\77"
        records = build_batch([Record(0, 0, None, b"x")])
        batches = [PartitionProduceData(0, records) for _ in range(ROWS_AT_ONCE_MAX)]
        topics = [
            TopicProduceData("", known, batches),
            TopicProduceData("", restored, [PartitionProduceData(0, records)]),
        ]
        data = bytearray(encode(ProduceRequest(None, 1, 30_000, topics), 13))
        waiting: Any = produce(decode(ProduceRequest, 13, data), RequestContext(13, None, connection()))
        shell.topic_ids = count(int.from_bytes(restored, "big"))
        await shell.create_topics([NewTopic("restored", 1, 1)])
        response = await waiting
        assert response is not None
        assert response.responses[1].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert world.values("restored") == []

    play(tmp_path, story)


def test_a_write_that_is_checked_and_in_a_transaction_waits_for_both(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        client = connection()
        in_transaction = {"producer_id": 100, "producer_epoch": 0, "transactional": True}
        first = world.send(client, CHECKED, b"first", base_sequence=0, **in_transaction)
        second = world.send(client, CHECKED, b"second", base_sequence=1, **in_transaction)
        world.registry.answer.set_result(GOOD)
        await settled()
        assert world.values(CHECKED) == []
        world.verified.set_result(ErrorCode.NONE)
        assert [error_of(await reply) for reply in (first, second)] == [ErrorCode.NONE] * 2
        assert world.values(CHECKED) == [b"first", b"second"]

    play(tmp_path, story)


def test_acks_0_that_had_to_wait_gets_no_reply_and_delays_no_other_request(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        client = connection()
        quiet = world.send(client, CHECKED, b"quiet", acks=0)
        world.registry.answer.set_result(GOOD)
        assert await quiet is None
        assert world.values(CHECKED) == [b"quiet"]

    play(tmp_path, story)


def test_acks_0_that_is_refused_late_closes_the_connection(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        refused = world.send(connection(), CHECKED, b"bad", acks=0)
        world.registry.answer.set_result(BAD)
        with pytest.raises(ProtocolError, match="acks=0"):
            await refused

    play(tmp_path, story)


def test_what_waits_is_stored_though_its_connection_closes(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)
        client = connection()
        first, second = world.send(client, CHECKED, b"first"), world.send(client, DATA.topic, b"second", acks=0)
        await settled()
        for reply in (first, second):
            reply.cancel()
        world.registry.answer.set_result(GOOD)
        await settled()
        assert (world.values(CHECKED), world.values(DATA.topic)) == ([b"first"], [b"second"])

    play(tmp_path, story)


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])
def test_a_refused_batch_is_not_kept_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """Thousands of producers may be refused while replicas are missing, each with a request of a megabyte."""

    def check(_: Partition) -> None:
        if code is ErrorCode.NOT_ENOUGH_REPLICAS:
            raise ApiError(code, "alone")

    monkeypatch.setattr(Partition, "check_enough_replicas", check)

    async def story(shell: TransactionShell) -> None:
        world = await world_of(shell)

        def refused(sequence: int) -> weakref.ref[Held]:
            rows = [Record(0, shell.env.now_ms(), None, b"value")]
            records = Held(build_batch(rows, producer_id=7, producer_epoch=0, base_sequence=sequence))
            data = PartitionProduceData(0, memoryview(records))
            request = ProduceRequest(None, -1, 30_000, [TopicProduceData(DATA.topic, partition_data=[data])])
            response: Any = world.produce(request, RequestContext(VERSION, None, connection()))
            assert response.responses[0].partition_responses[0].error_code in (code, ErrorCode.NONE)
            return weakref.ref(records)

        gc.disable()
        try:
            kept = [refused(sequence) for sequence in (0, 2, 5)]
        finally:
            gc.enable()
        assert [found() for found in kept] == [None] * 3

    play(tmp_path, story)
