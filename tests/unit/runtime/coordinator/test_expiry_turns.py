"""What expires is deleted a few groups at a time, so that everybody else gets a turn in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.core.contract import Caller
from penstock.core.group.shard import EXPIRED_PER_TURN
from penstock.runtime.coordinator.groups import Groups
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from support.worlds.transaction_shell import TransactionShell, play

CALLER = Caller("client", "/127.0.0.1", 2)
GROUPS = 4 * EXPIRED_PER_TURN
TOPICS = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 9)])]


def test_groups_expire_a_few_at_a_time(tmp_path: Path) -> None:
    async def story(shell: TransactionShell) -> None:
        groups = Groups(shell.env, shell.image, shell, shell.partitions, shell.settings)
        await groups.leader_of("readers")
        await shell.until(lambda: groups.coordinator.hosts())
        (host,) = groups.coordinator.hosts()

        def commit(name: str) -> asyncio.Future[object]:
            request = OffsetCommitRequest(name, retention_time_ms=0, topics=TOPICS)
            return groups.ask(name, lambda shard, token, now_ms: shard.offset_commit(request, CALLER, token, now_ms))

        await asyncio.gather(*(commit(f"readers-{number}") for number in range(GROUPS)))
        most, left = 0, GROUPS
        async with asyncio.timeout(10):
            while left:
                await asyncio.sleep(0)
                before, left = left, len(host.shard.list_groups())
                most = max(most, before - left)
        assert most <= EXPIRED_PER_TURN
        groups.close()

    play(tmp_path, story, {"offsets.retention.check.interval.ms": "1000"})
