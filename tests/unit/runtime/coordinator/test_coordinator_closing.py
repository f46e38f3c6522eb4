"""A coordinator that is closed while members' changes wait to be written together."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from penstock.core.contract import Caller
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import StorageError
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from support.worlds.transaction_shell import TransactionShell, play

LINGER = {"group.coordinator.append.linger.ms": "86400000"}
REQUEST = ConsumerGroupHeartbeatRequest(
    "readers", "member", 0, rebalance_timeout_ms=10_000, subscribed_topic_names=["t"], topic_partitions=[]
)


def test_what_waits_to_be_written_is_written_when_the_coordinator_closes(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        log = next(iter(groups.coordinator.hosts())).partition.log
        caller = Caller("client", "/127.0.0.1", 1)
        joining = groups.ask(
            "readers",
            lambda shard, token, now_ms: shard.consumer.heartbeat(REQUEST, caller, token, now_ms),
            gather=True,
        )
        for _ in range(5):
            await asyncio.sleep(0)
        assert log.end_offset == 0
        groups.close()
        assert log.end_offset > 0
        await asyncio.wait([joining], timeout=20)

    play(tmp_path, story, LINGER)


def test_every_shard_is_left_though_one_cannot_be_written_and_none_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full when a broker stops must not leave the members of other groups waiting."""

    def refuse(*_: object) -> None:
        raise StorageError("no space left", errno.ENOSPC)

    async def story(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: len(groups.coordinator.hosts()) == 2)
        partitions = [host.partition for host in groups.coordinator.hosts()]
        caller = Caller("client", "/127.0.0.1", 1)

        def join(name: str) -> asyncio.Future[object]:
            request = REQUEST._replace(group_id=name)
            return groups.ask(name, lambda shard, *rest: shard.consumer.heartbeat(request, caller, *rest), gather=True)

        waiting = [join(name) for name in ("a", "b", "c", "d")]
        monkeypatch.setattr(Partition, "append", refuse)
        groups.close()
        assert not groups.coordinator.hosts()
        assert not groups.coordinator.is_loading
        for answer in waiting:
            with pytest.raises(ApiError) as error:
                async with asyncio.timeout(1):
                    await answer
            assert error.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        for partition in partitions:
            groups.coordinator.take(partition)
        assert not groups.coordinator.hosts()

    play(tmp_path, story, {**LINGER, "offsets.topic.num.partitions": "2"})
