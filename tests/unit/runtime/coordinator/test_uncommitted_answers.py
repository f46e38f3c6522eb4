"""No answer of a coordinator contains what is not committed: after a failover it would never have happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.api.groups.describe_groups import describe_groups
from penstock.api.groups.list_groups import list_groups
from penstock.api.transactions.list_transactions import list_transactions
from penstock.core.contract import Caller, Effects
from penstock.core.group.shard import GroupShard
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.replication.partition import Partition
from penstock.runtime.security.access_control import OPEN
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from support.worlds.transaction_shell import TransactionShell, call, play

CALLER = Caller("client", "/127.0.0.1", 1)


class Replicas:
    """Decide when what is appended from now on is committed, or that it may not be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[asyncio.Future[None]] = []
        monkeypatch.setattr(Partition, "committed", self._committed)

    def _committed(self, *_: Any, **__: Any) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        return future

    def commit(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            future.set_result(None)

    def leave(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            future.set_exception(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "too few replicas"))
            future.exception()


def play_groups(path: Path, story: Callable[[TransactionShell, Groups], Awaitable[None]]) -> None:
    async def run(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        await story(shell, groups)
        groups.close()

    play(path, run)


def commit(groups: Groups) -> asyncio.Future[Any]:
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 5)])]
    request = OffsetCommitRequest("readers", topics=topics)
    return groups.ask("readers", lambda shard, token, now_ms: shard.offset_commit(request, CALLER, token, now_ms))


async def turns() -> None:
    """Let everything happen that waits for nothing but its turn."""
    for _ in range(20):
        await asyncio.sleep(0)


def services_of(shell: TransactionShell, groups: Groups | None = None) -> Any:
    return SimpleNamespace(access=OPEN, groups=groups, transactions=shell.transactions, env=shell.env)


async def outcome_once_committed(replicas: Replicas, answer: Coroutine[Any, Any, Any]) -> Any:
    waiting = asyncio.ensure_future(answer)
    await turns()
    assert not waiting.done(), "answered although it may still be lost"
    replicas.commit()
    return await waiting


def test_a_group_is_listed_once_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell, groups: Groups) -> None:
        replicas = Replicas(monkeypatch)
        commit(groups)
        asking = call(lambda *rest: list_groups(services_of(shell, groups), *rest), ListGroupsRequest(), 5)
        response = await outcome_once_committed(replicas, asking)
        assert [row.group_id for row in response.groups] == ["readers"]

    play_groups(tmp_path, story)


def test_a_transaction_is_listed_once_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell) -> None:
        replicas = Replicas(monkeypatch)
        starting = asyncio.ensure_future(shell.started())
        await turns()
        asking = call(lambda *rest: list_transactions(services_of(shell), *rest), ListTransactionsRequest(), 2)
        response = await outcome_once_committed(replicas, asking)
        producer = await starting
        assert [row.producer_id for row in response.transaction_states] == [producer.producer_id]

    play(tmp_path, story)


def test_a_group_is_missed_once_its_deletion_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(shell: TransactionShell, groups: Groups) -> None:
        await commit(groups)
        replicas = Replicas(monkeypatch)
        groups.ask("readers", lambda shard, token, now_ms: shard.delete_group("readers", token, now_ms))
        asking = call(
            lambda *rest: describe_groups(services_of(shell, groups), *rest), DescribeGroupsRequest(["readers"]), 6
        )
        response = await outcome_once_committed(replicas, asking)
        assert [row.error_code for row in response.groups] == [ErrorCode.GROUP_ID_NOT_FOUND]

    play_groups(tmp_path, story)


@pytest.mark.parametrize("in_time", [True, False], ids=["in time", "too late"])
def test_nothing_is_answered_from_records_that_no_request_waited_for_before_they_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_time: bool
) -> None:
    """As those of timers, and of deleted topics. Too few replicas may be in sync before they are committed."""

    def expire(shard: GroupShard) -> Effects:
        effects = Effects()
        for piece in shard.expire_offsets(1 << 60):
            effects.merge(piece)
        return effects

    async def story(_: TransactionShell, groups: Groups) -> None:
        await commit(groups)
        (host,) = groups.coordinator.hosts()
        replicas = Replicas(monkeypatch)
        effects = expire(host.shard)
        assert effects.records
        host.perform(effects)
        host.flush()
        if not in_time:
            replicas.leave()
        request = HeartbeatRequest("readers", 1, "member")
        answer = groups.ask("readers", lambda shard, *rest: shard.heartbeat(request, CALLER, *rest))
        await turns()
        assert not answer.done(), "answered although the group may still be there"
        replicas.commit()
        assert (await answer).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    play_groups(tmp_path, story)


def test_a_read_is_refused_at_once_while_too_few_replicas_are_in_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Partition) -> None:
        raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas")

    async def story(_: TransactionShell, groups: Groups) -> None:
        replicas = Replicas(monkeypatch)
        answer = commit(groups)
        await turns()
        with monkeypatch.context() as cluster:
            cluster.setattr(Partition, "check_enough_replicas", refuse)
            cluster.setattr(Partition, "high_watermark", 0)
            with pytest.raises(ApiError) as error:
                await groups.read("readers", lambda shard: shard.committed("readers"))
            assert error.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        replicas.commit()
        await answer

    play_groups(tmp_path, story)
