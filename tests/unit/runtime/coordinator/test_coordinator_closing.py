"""A coordinator that is closed while members' changes wait to be written together."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.core.contract import Caller
from penstock.runtime.coordinator.groups import Groups
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
