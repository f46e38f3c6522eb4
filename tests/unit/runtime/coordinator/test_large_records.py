"""What the log would refuse for its size is refused alone: the other groups of its partition notice nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.core.contract import Caller, Effects, Record
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.groups import Groups
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.worlds.transaction_shell import TransactionShell, caller, play

CALLER = Caller("client", "/127.0.0.1", 1)
LARGE = 1_100_000


def play_groups(path: Path, story: Callable[[Groups], Awaitable[None]]) -> None:
    """Run a story with a group coordinator, which must not have to load anything again."""

    async def run(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        before = groups.coordinator.hosts()
        await story(groups)
        assert groups.coordinator.hosts() == before, "the shard was loaded again"
        groups.close()

    play(path, run, {"group.initial.rebalance.delay.ms": "0"})


def ask(groups: Groups, method: str, request: Any, api_version: int = 1) -> asyncio.Future[Any]:
    known = CALLER._replace(api_version=api_version)
    target = "consumer.heartbeat" if method == "consumer_heartbeat" else method

    def question(shard: Any, token: Any, now_ms: int) -> Effects:
        owner = shard.consumer if target.startswith("consumer.") else shard
        effects: Effects = getattr(owner, target.rpartition(".")[2])(request, known, token, now_ms)
        return effects

    return groups.ask(request.group_id, question)


def commit(groups: Groups, offset: int, topic: str = "t") -> asyncio.Future[Any]:
    topics = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, offset)])]
    return ask(groups, "offset_commit", OffsetCommitRequest("others", topics=topics))


def committed(groups: Groups) -> int:
    return groups._host("others").shard._offsets.of_group("others")["t"][0].offset


def test_a_member_with_a_large_rack_id_is_refused_alone(tmp_path: Path) -> None:
    async def story(groups: Groups) -> None:
        before = commit(groups, 1)
        joining = ConsumerGroupHeartbeatRequest(
            "readers",
            "m" * 22,
            0,
            rack_id="r" * LARGE,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        refused = ask(groups, "consumer_heartbeat", joining)
        after = commit(groups, 2)
        assert (await refused).error_code == ErrorCode.INVALID_REQUEST
        assert {(await one).topics[0].partitions[0].error_code for one in (before, after)} == {0}
        assert committed(groups) == 2
        assert "readers" not in {row.group_id for row in await groups.read_all(lambda shard: shard.list_groups())}

    play_groups(tmp_path, story)


def test_a_member_with_a_large_classic_subscription_is_refused_alone(tmp_path: Path) -> None:
    async def story(groups: Groups) -> None:
        protocols = [JoinGroupRequestProtocol("range", bytes(LARGE))]
        answer = await ask(
            groups, "join_group", JoinGroupRequest("readers", 30_000, 30_000, "", None, "x", protocols), 3
        )
        assert answer.error_code == ErrorCode.NONE
        mine = [SyncGroupRequestAssignment(answer.member_id, b"mine")]
        sync = SyncGroupRequest("readers", answer.generation_id, answer.member_id, assignments=mine)
        before, refused, after = commit(groups, 1), ask(groups, "sync_group", sync), commit(groups, 2)
        with pytest.raises(ApiError) as error:
            await refused
        assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert {(await one).topics[0].partitions[0].error_code for one in (before, after)} == {0}
        assert committed(groups) == 2

    play_groups(tmp_path, story)


def test_members_whose_assignment_is_too_large_still_have_sessions(tmp_path: Path) -> None:
    """Otherwise a group of them would never lose those that die, nor could it be deleted."""

    async def story(groups: Groups) -> None:
        protocols = [JoinGroupRequestProtocol("range", bytes(LARGE))]
        joining = JoinGroupRequest("readers", 6_000, 6_000, "", None, "x", protocols)
        answer = await ask(groups, "join_group", joining, 3)
        (host,) = groups.coordinator.hosts()
        key = ("session", "readers", answer.member_id)
        assert key in host.timers._deadlines
        # Its session would have ended while its request was waiting for that of the leader.
        host.timers.clear()
        mine = [SyncGroupRequestAssignment(answer.member_id, b"mine")]
        sync = SyncGroupRequest("readers", answer.generation_id, answer.member_id, assignments=mine)
        with pytest.raises(ApiError):
            await ask(groups, "sync_group", sync)
        assert key in host.timers._deadlines
        host.timers._fire(key)
        (group,) = [
            row for row in await groups.read_all(lambda shard: shard.list_groups()) if row.group_id == "readers"
        ]
        assert group.group_state == "Empty"

    play_groups(tmp_path, story)


def test_a_record_that_cannot_be_encoded_is_refused_alone(tmp_path: Path) -> None:
    async def story(groups: Groups) -> None:
        before, refused, after = commit(groups, 1), commit(groups, 1, "t" * 70_000), commit(groups, 2)
        with pytest.raises(ApiError) as error:
            await refused
        assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert {(await one).topics[0].partitions[0].error_code for one in (before, after)} == {0}

    play_groups(tmp_path, story)


@pytest.mark.parametrize("name", ["g" * 2**15, "\u00e9" * 2**14])
def test_a_group_whose_name_no_record_can_have_is_not_remembered(tmp_path: Path, name: str) -> None:
    async def story(groups: Groups) -> None:
        request = JoinGroupRequest(name, 30_000, 30_000, "", None, "x", [JoinGroupRequestProtocol("range", b"")])
        with pytest.raises(ApiError) as error:
            await ask(groups, "join_group", request, 9)
        assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await groups.read_all(lambda shard: shard.list_groups()) == []

    play_groups(tmp_path, story)


def test_records_of_one_turn_are_split_so_that_each_batch_fits(tmp_path: Path) -> None:
    async def story(groups: Groups) -> None:
        host = groups.coordinator.hosts()[0]
        size_max = host.partition.settings.max_message_bytes
        offset = host.partition.log.end_offset
        for number in range(4):
            value = OffsetCommitValue(number, metadata="m" * 32_000)
            records = [Record(OffsetCommitKey("others", "t", one), value, 3) for one in range(20)]
            host.perform(Effects(records=records))
        host.flush()
        assert host.partition.log.end_offset == offset + 80
        assert host.partition.log.size_bytes > 2 * size_max

    play_groups(tmp_path, story)


def test_of_records_that_no_request_waits_for_only_the_large_one_is_left_out(tmp_path: Path) -> None:
    async def story(groups: Groups) -> None:
        host = groups.coordinator.hosts()[0]
        offset = host.partition.log.end_offset
        rows = [Record(OffsetCommitKey(group, "t", 0), OffsetCommitValue(7), 3) for group in ("others", "g" * 70_000)]
        host.perform(Effects(records=rows))
        host.flush()
        assert host.partition.log.end_offset == offset + 1
        assert committed(groups) == 7

    play_groups(tmp_path, story)


def test_a_large_transactional_id_is_refused_alone(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        host = shell.transactions.coordinator.host(0)
        large = InitProducerIdRequest("i" * LARGE, 60_000)
        refused = asyncio.ensure_future(shell.transactions.init_producer_id(large, caller()))
        started = asyncio.ensure_future(shell.started())
        with pytest.raises(ApiError) as error:
            await refused
        assert error.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await started).producer_epoch == 0
        assert shell.transactions.coordinator.host(0) is host, "the shard was loaded again"

    play(tmp_path, story)
