"""Offsets inside transactions in the offsets topic itself: batches of producers, markers, and loading them again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.core.contract import Caller, ProducerIdentity
from penstock.core.replica.producer_state import EndMarker
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.coordinator.groups import OFFSETS_TOPIC, Groups
from penstock.runtime.coordinator.marker_writer import MarkerWriter
from penstock.runtime.replication.partition import Partition
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.worlds.transaction_shell import TransactionShell, play

GROUP = "readers"
CALLER = Caller("client", "/127.0.0.1", 5)
PRODUCER = ProducerIdentity(7, 1)
COMMIT, ABORT = EndMarker(False, 0, transaction_version=0), EndMarker(True, 0, transaction_version=0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


async def groups_of(shell: TransactionShell) -> Groups:
    groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
    await groups.leader_of(GROUP)
    await shell.until(lambda: groups.coordinator.hosts())
    return groups


async def commit(groups: Groups, offset: int, producer: ProducerIdentity = PRODUCER) -> int:
    topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, offset)])]
    request = TxnOffsetCommitRequest("id", GROUP, *producer, topics=topics)
    response = await groups.ask(GROUP, lambda shard, token, now: shard.txn_offset_commit(request, CALLER, token, now))
    error: int = response.topics[0].partitions[0].error_code
    return error


async def seen(groups: Groups) -> int | ErrorCode:
    request = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])
    found = await groups.read(GROUP, lambda shard: shard.offset_fetch_group(request, True, CALLER))
    [row] = found.topics[0].partitions
    return ErrorCode(row.error_code) if row.error_code else row.committed_offset


def offsets_log(shell: TransactionShell) -> Partition:
    found = shell.partitions.get(*OFFSETS)
    assert found is not None
    return found


@pytest.mark.parametrize(("marker", "after"), [(COMMIT, 5), (ABORT, -1)])
def test_offsets_take_effect_with_their_marker_also_after_loading_the_log(
    tmp_path: Path, marker: EndMarker, after: int
) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = await groups_of(shell)
        assert await commit(groups, 5) == ErrorCode.NONE
        assert await seen(groups) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert offsets_log(shell).log.producers.is_verified(*PRODUCER, None)
        groups.close()
        groups = await groups_of(shell)
        assert await seen(groups) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        await MarkerWriter(shell.env, shell.partitions, groups).write(OFFSETS, *PRODUCER, marker)
        assert not offsets_log(shell).log.producers.is_verified(*PRODUCER, None)
        assert await seen(groups) == after
        groups.close()
        groups = await groups_of(shell)
        assert await seen(groups) == after
        groups.close()

    play(tmp_path, story)


def test_a_producer_that_was_fenced_commits_nothing(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = await groups_of(shell)
        writer = MarkerWriter(shell.env, shell.partitions, groups)
        await commit(groups, 5)
        await writer.write(OFFSETS, 7, 2, ABORT)
        end_offset = offsets_log(shell).log.end_offset
        with pytest.raises(ApiError) as raised:
            await commit(groups, 6)
        assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(ApiError) as raised:
            await writer.write(OFFSETS, *PRODUCER, COMMIT)
        assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert offsets_log(shell).log.end_offset == end_offset
        assert await seen(groups) == -1
        groups.close()

    play(tmp_path, story)


def test_an_old_coordinator_ends_nothing(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = await groups_of(shell)
        writer = MarkerWriter(shell.env, shell.partitions, groups)
        await writer.write(TopicPartition("t", 0), *PRODUCER, EndMarker(False, 4, transaction_version=0))
        with pytest.raises(ApiError) as raised:
            await writer.write(TopicPartition("t", 0), *PRODUCER, EndMarker(True, 3, transaction_version=0))
        assert raised.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        with pytest.raises(ApiError) as raised:
            await writer.write(TopicPartition("gone", 0), *PRODUCER, COMMIT)
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        groups.close()

    play(tmp_path, story)


def test_the_later_commit_holds_whichever_transaction_ended_first(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = await groups_of(shell)
        first, second = ProducerIdentity(7, 1), ProducerIdentity(8, 1)
        await commit(groups, 5, first)
        await commit(groups, 9, second)
        writer = MarkerWriter(shell.env, shell.partitions, groups)
        await writer.write(OFFSETS, *second, COMMIT)
        await writer.write(OFFSETS, *first, COMMIT)
        assert await seen(groups) == 9
        groups.close()
        groups = await groups_of(shell)
        assert await seen(groups) == 9, "loading the log gives the same"
        groups.close()

    play(tmp_path, story)


def test_nothing_is_shown_that_could_still_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = await groups_of(shell)
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(Partition, "committed", lambda *_, **__: committed)
        reading = asyncio.ensure_future(groups.read(GROUP, lambda _: "an offset"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not reading.done()
        committed.set_result(None)
        assert await reading == "an offset"
        groups.close()

    play(tmp_path, story)
