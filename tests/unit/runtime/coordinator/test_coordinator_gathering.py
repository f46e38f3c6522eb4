"""What members of consumer groups change is gathered before it is written; nothing else waits for that."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.core.contract import Caller, Effects, Reply
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.groups import Groups
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from support.worlds.transaction_shell import TransactionShell, play

CALLER = Caller("client", "/127.0.0.1", 1)
# Longer than any test lasts.
FOR_EVER = {"group.coordinator.append.linger.ms": "86400000"}


async def groups_of(shell: TransactionShell) -> Groups:
    groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
    await groups.leader_of("readers")
    await shell.until(lambda: groups.coordinator.hosts())
    return groups


def join(groups: Groups, member: str) -> asyncio.Future[Any]:
    request = ConsumerGroupHeartbeatRequest(
        "readers", member, 0, rebalance_timeout_ms=10_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    return groups.ask(
        "readers",
        lambda shard, token, now_ms: shard.consumer.heartbeat(request, CALLER, token, now_ms),
        gather=True,
    )


def commit(groups: Groups) -> asyncio.Future[Any]:
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 5)])]
    request = OffsetCommitRequest("others", topics=topics)
    return groups.ask("others", lambda shard, token, now_ms: shard.offset_commit(request, CALLER, token, now_ms))


def test_members_that_join_are_answered_together(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = await groups_of(shell)
        joins = [join(groups, f"member-{number}") for number in range(3)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(answer.done() for answer in joins)
        groups.coordinator.hosts()[0].flush()
        assert [(await answer).member_epoch for answer in joins] == [1, 2, 3]
        groups.close()

    play(tmp_path, story, FOR_EVER)


def test_a_record_that_must_not_wait_flushes_the_gathered_ones(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = await groups_of(shell)
        joined = join(groups, "member-1")
        committed = await commit(groups)
        assert committed.topics[0].partitions[0].error_code == 0
        assert (await joined).member_epoch == 1
        groups.close()

    play(tmp_path, story, FOR_EVER)


def test_what_was_gathered_is_written_when_its_time_has_come(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = await groups_of(shell)
        for number in range(1, 4):
            answer = await join(groups, f"member-{number}")
            assert answer.member_epoch == number
        groups.close()

    play(tmp_path, story, {"group.coordinator.append.linger.ms": "10"})


def test_a_request_to_a_shard_that_was_just_left_is_refused(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = await groups_of(shell)
        (host,) = groups.coordinator.hosts()
        joined, later = join(groups, "member-1"), asyncio.get_running_loop().create_future()
        host.leave()
        host.perform(Effects(replies=[Reply(later, "an answer")]))
        for answer in (joined, later):
            with pytest.raises(ApiError) as refused:
                await answer
            assert refused.value.code is ErrorCode.NOT_COORDINATOR
        groups.close()

    play(tmp_path, story, FOR_EVER)
