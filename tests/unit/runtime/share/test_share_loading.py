"""A share-partition is loaded for the leader epoch in which it was requested, whatever comes before its task runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.share.sessions import TopicIdPartition
from penstock.model.ids import TopicPartition
from penstock.runtime.share.partitions import SharePartitions

TOPIC_ID = b"t" * 16


class Led:
    """Stands for a share-partition that was loaded in an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = self.leader_epoch = epoch
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_load_belongs_to_the_epoch_in_which_it_was_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        partition = SimpleNamespace(name=TopicPartition("t", 0), topic_id=TOPIC_ID, leader_epoch=1, is_leader=True)
        spawned: list[Coroutine[Any, Any, None]] = []
        env: Any = SimpleNamespace(spawn=lambda work, _: spawned.append(work))
        partitions: Any = SimpleNamespace(
            lookup=lambda *_, **__: partition,
            on_resigned=lambda _: None,
            on_removed=lambda _: None,
            on_leader=lambda _: None,
            leadership=None,
        )
        read: list[int] = []

        async def reading(_: Any, __: Any, ___: Any, epoch: int, ____: Any) -> Led:
            read.append(epoch)
            await asyncio.sleep(0)
            return Led(epoch)

        monkeypatch.setattr(SharePartitions, "_read", reading)
        settings: Any = SimpleNamespace(group_share_max_share_sessions=10)
        unused: Any = None
        shares = SharePartitions(env, unused, partitions, unused, unused, lambda: settings)
        first = shares.get("group", TopicIdPartition(TOPIC_ID, 0))
        partition.leader_epoch = 2
        second = shares.get("group", TopicIdPartition(TOPIC_ID, 0))
        assert first is not second
        await asyncio.gather(*spawned)
        assert read == [1, 2]
        stale, current = await asyncio.gather(first, second)  # type: ignore[arg-type]
        assert (stale.epoch, stale.is_closed) == (1, True)
        assert shares.get("group", TopicIdPartition(TOPIC_ID, 0)) is current

    asyncio.run(story())
