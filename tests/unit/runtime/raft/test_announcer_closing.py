"""A voter that announces its address while it is stopped."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from penstock.core.raft.voters import Voter, VoterEndpoint, VoterSet
from penstock.runtime.env import SystemEnv
from penstock.runtime.raft.address_announcer import Announcer


def test_nothing_is_announced_after_it_was_closed() -> None:
    async def test() -> None:
        env = SystemEnv()
        endpoints = (VoterEndpoint("CONTROLLER", "new", 9093),)
        quorum = SimpleNamespace(
            node_id=1, directory_id=bytes(16), voters=VoterSet([Voter(1)]), is_voter=True, is_leader=False
        )
        raft = SimpleNamespace(quorum=quorum, metadata_log=SimpleNamespace(history=SimpleNamespace(kraft_version=1)))
        addresses = SimpleNamespace(announced_by=lambda _: endpoints)
        announcer = Announcer(env, cast("Any", raft), cast("Any", addresses), cast("Any", None))
        announcer.check()
        task = announcer._task
        assert task is not None
        await asyncio.sleep(0)
        announcer.close()
        await asyncio.wait([task], timeout=1)
        assert task.cancelled()
        await env.close()

    asyncio.run(test())
