"""The first write of a transaction: its coordinator is asked, and what happens meanwhile decides as well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from penstock.api.context import Client, RequestContext
from penstock.core.contract import ProducerIdentity
from penstock.core.metadata.topics import NewTopic
from penstock.core.replica.producer_state import EndMarker
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.coordinator.groups import OFFSETS_TOPIC, Groups
from penstock.runtime.coordinator.transaction_guard import TransactionGuard
from penstock.runtime.replication.partition import Partition
from penstock.runtime.schemas.guard import SchemaGuard
from penstock.wire.messages.metadata_records import PartitionChangeRecord, RemoveTopicRecord
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.records import Record, build_batch
from support.record_handlers import produce_handler, txn_offset_commit_handler
from support.worlds.transaction_shell import DATA, ID, TransactionShell, play

PRODUCER = ProducerIdentity(100, 0)
COMMIT, ABORT = EndMarker(False, 0, transaction_version=0), EndMarker(True, 0, transaction_version=0)
FIRST_VERSION, SECOND_VERSION = 11, 12


class Coordinator:
    """Answers when the test decides."""

    def __init__(self) -> None:
        self.questions: list[tuple[TopicPartition, bool]] = []
        self.answers: list[asyncio.Future[ErrorCode]] = []

    async def verify(self, name: str, producer: ProducerIdentity, partition: TopicPartition, adds: bool) -> ErrorCode:
        assert (name, producer.producer_id) == (ID, PRODUCER.producer_id)
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.questions.append((partition, adds))
        self.answers.append(answer)
        return await answer


class World:
    """A partition that transactions write to."""

    def __init__(self, shell: TransactionShell, *, must_verify: bool = True) -> None:
        self.shell = shell
        self.coordinator = Coordinator()
        guard = TransactionGuard(shell.env, self.coordinator.verify, lambda: must_verify)
        self.produce = produce_handler(
            shell.env, shell.partitions, guard, SchemaGuard(shell.env, None), sync_on_ack=False
        )
        self.client = Client(("127.0.0.1", 1), "")

    def write(
        self, sequence: int, version: int = FIRST_VERSION, name: str | None = ID, epoch: int = PRODUCER.producer_epoch
    ) -> asyncio.Task[ErrorCode]:
        return asyncio.ensure_future(self._write(sequence, version, name, epoch))

    async def _write(self, sequence: int, version: int, name: str | None, epoch: int) -> ErrorCode:
        batch = build_batch(
            [Record(0, self.shell.env.now_ms(), b"k", b"v")],
            producer_id=PRODUCER.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = PartitionProduceData(DATA.partition, memoryview(bytearray(batch)))
        request = ProduceRequest(name, -1, 1_000, [TopicProduceData(DATA.topic, partition_data=[data])])
        reply: Any = self.produce(request, RequestContext(version, None, self.client))
        response = await reply if isinstance(reply, Awaitable) else reply
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def asked(self, count: int) -> None:
        await self.shell.until(lambda: len(self.coordinator.questions) == count)

    @property
    def partition(self) -> Partition:
        found = self.shell.partitions.get(*DATA)
        assert found is not None
        return found

    def abort(self) -> None:
        self.partition.append_marker(*PRODUCER, ABORT, self.shell.env.now_ms())


def test_a_write_that_was_verified_before_the_abort_and_comes_after_it_is_refused(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.ready()
        world = World(shell)
        late = world.write(0)
        await world.asked(1)
        world.abort()
        end = world.partition.log.end_offset
        world.coordinator.answers[0].set_result(ErrorCode.NONE)
        assert await late is ErrorCode.INVALID_TXN_STATE
        assert world.partition.log.end_offset == end
        assert world.partition.last_stable_offset == end

    play(tmp_path, story)


def test_nor_does_it_join_the_next_transaction_whose_own_write_is_being_verified(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.ready()
        world = World(shell)
        late = world.write(0)
        await world.asked(1)
        world.abort()
        following = world.write(0)
        await world.asked(2)
        world.coordinator.answers[0].set_result(ErrorCode.NONE)
        assert await late is ErrorCode.INVALID_TXN_STATE
        world.coordinator.answers[1].set_result(ErrorCode.NONE)
        assert await following is ErrorCode.NONE

    play(tmp_path, story)


def test_an_open_transaction_is_not_asked_about_again_until_its_marker(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.ready()
        world = World(shell)
        first = world.write(0)
        await world.asked(1)
        world.coordinator.answers[0].set_result(ErrorCode.NONE)
        assert await first is ErrorCode.NONE
        assert await world.write(1) is ErrorCode.NONE
        assert len(world.coordinator.questions) == 1
        world.abort()
        again = world.write(2)
        await world.asked(2)
        world.coordinator.answers[1].set_result(ErrorCode.TRANSACTION_ABORTABLE)
        assert await again is ErrorCode.TRANSACTION_ABORTABLE

    play(tmp_path, story)


def test_the_next_epoch_does_not_write_into_a_transaction_that_only_waits_for_its_marker(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.ready()
        world = World(shell)
        first = world.write(0, SECOND_VERSION)
        await world.asked(1)
        world.coordinator.answers[0].set_result(ErrorCode.NONE)
        assert await first is ErrorCode.NONE
        following = world.write(0, SECOND_VERSION, epoch=PRODUCER.producer_epoch + 1)
        await world.asked(2)
        assert world.partition.log.end_offset == 1
        world.partition.append_marker(PRODUCER.producer_id, PRODUCER.producer_epoch + 1, COMMIT, shell.env.now_ms())
        world.coordinator.answers[1].set_result(ErrorCode.NONE)
        assert await following is ErrorCode.NONE
        assert world.partition.log.producers.first_undecided_offset == 2

    play(tmp_path, story)


def test_batches_are_appended_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.ready()
        world = World(shell)
        first, second = world.write(0), world.write(1)
        await world.asked(2)
        world.coordinator.answers[1].set_result(ErrorCode.NONE)
        await asyncio.sleep(0.01)
        assert not second.done()
        world.coordinator.answers[0].set_result(ErrorCode.NONE)
        assert [await first, await second] == [ErrorCode.NONE, ErrorCode.NONE]

    play(tmp_path, story)


def test_a_later_batch_does_not_go_ahead_of_one_that_must_come_again(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.ready()
        world = World(shell)
        first, second = world.write(0), world.write(1)
        await world.asked(2)
        world.coordinator.answers[0].set_result(ErrorCode.CONCURRENT_TRANSACTIONS)
        world.coordinator.answers[1].set_result(ErrorCode.NONE)
        assert await first is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await second is ErrorCode.NOT_ENOUGH_REPLICAS

    play(tmp_path, story)


@pytest.mark.parametrize(("version", "questions"), [(FIRST_VERSION, 0), (SECOND_VERSION, 1)])
def test_verification_can_be_switched_off_but_not_the_joining_of_version_2(
    tmp_path: Path, version: int, questions: int
) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.ready()
        world = World(shell, must_verify=False)
        written = world.write(0, version)
        if questions:
            await world.asked(questions)
            world.coordinator.answers[0].set_result(ErrorCode.NONE)
        assert await written is ErrorCode.NONE
        assert world.coordinator.questions == [(DATA, True)] * questions

    play(tmp_path, story)


def test_who_names_no_transactional_id_writes_in_no_transaction(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.ready()
        world = World(shell)
        assert await world.write(0, name=None) is ErrorCode.INVALID_TXN_STATE

    play(tmp_path, story)


def test_offsets_that_were_verified_before_the_abort_are_refused_after_it(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.ready()
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        coordinator = Coordinator()
        handler = txn_offset_commit_handler(shell, groups, coordinator.verify)
        rows = [TxnOffsetCommitRequestTopic(DATA.topic, [TxnOffsetCommitRequestPartition(0, 5)])]
        request = TxnOffsetCommitRequest(ID, "readers", *PRODUCER, topics=rows)
        late = asyncio.ensure_future(handler(request, RequestContext(3, None, Client(("127.0.0.1", 1), ""))))
        await shell.until(lambda: bool(coordinator.answers))
        await groups.end_transaction(0, PRODUCER, ABORT)
        coordinator.answers[0].set_result(ErrorCode.NONE)
        response = await late
        assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_TXN_STATE
        offsets = shell.partitions.get(OFFSETS_TOPIC, 0)
        assert offsets is not None
        assert offsets.log.producers.first_undecided_offset is None
        groups.close()

    play(tmp_path, story)


def test_a_coordinator_that_has_moved_on_takes_no_marker(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        await shell.ready()
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        (host,) = groups.coordinator.hosts()
        topic = shell.image.topics[OFFSETS_TOPIC]
        end = host._partition.log.end_offset
        shell.commit(PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, leader=2))
        shell.commit(PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, leader=1))
        with pytest.raises(ApiError) as refused:
            host.end_transaction(PRODUCER, ABORT)
        assert refused.value.code == ErrorCode.NOT_COORDINATOR
        assert host._partition.log.end_offset == end
        groups.close()

    play(tmp_path, story)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_offsets_of_a_topic_that_is_deleted_while_they_are_verified_are_not_committed(
    tmp_path: Path, is_made_again: bool
) -> None:
    """The offsets of the deleted topic are gone; these would stay, for its successor of the same name."""

    async def story(shell: TransactionShell) -> None:
        await shell.ready()
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        coordinator = Coordinator()
        handler = txn_offset_commit_handler(shell, groups, coordinator.verify)
        shell.create_topics([NewTopic("kept", 1, 1)])
        rows = [TxnOffsetCommitRequestTopic(name, [TxnOffsetCommitRequestPartition(0, 5)]) for name in ("t", "kept")]
        request = TxnOffsetCommitRequest(ID, "readers", *PRODUCER, topics=rows)
        committing = asyncio.ensure_future(handler(request, RequestContext(3, None, Client(("127.0.0.1", 1), ""))))
        await shell.until(lambda: bool(coordinator.answers))
        deletion = RemoveTopicRecord(shell.image.topics["t"].topic_id)
        shell.commit(deletion)
        groups.follow([deletion])
        if is_made_again:
            shell.create_topics([NewTopic("t", 1, 1)])
        coordinator.answers[0].set_result(ErrorCode.NONE)
        response = await committing
        errors = {topic.name: topic.partitions[0].error_code for topic in response.topics}
        assert errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "kept": ErrorCode.NONE}
        await groups.end_transaction(0, PRODUCER, COMMIT)
        progress = await groups.read("readers", lambda shard: shard.committed("readers"))
        assert [*progress] == [TopicPartition("kept", 0)]
        groups.close()

    play(tmp_path, story)
