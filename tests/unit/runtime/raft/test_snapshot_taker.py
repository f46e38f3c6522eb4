"""When snapshots of the metadata are taken, and what becomes of a last one that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from penstock.core.raft.voters import VoterSet
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.sync import LogSync
from penstock.runtime.raft.applied_image import AppliedImage
from penstock.runtime.raft.metadata_log import MetadataLog
from penstock.runtime.raft.snapshots import SnapshotTaker
from penstock.runtime.raft.turns import Turns
from penstock.storage.files import StorageError
from penstock.storage.settings import LogSettings
from penstock.wire.messages.metadata_records import TopicRecord

INTERVAL_BYTES = 2_000


class World:
    """A metadata log, all of which is committed, and its snapshots."""

    def __init__(self, env: SystemEnv, path: Path) -> None:
        self.log = MetadataLog(env, path / "log", LogSettings(), VoterSet.of_ids([1]))
        self.log.open()
        self.applied = AppliedImage()
        self.failures: list[StorageError] = []
        self.taker = SnapshotTaker(env, self.log, self.applied, Turns(), INTERVAL_BYTES, 0, self.failures.append)
        self.sync = LogSync(env, self.log.log, self.failures.append)
        self.count = 0

    def append(self, size_bytes: int) -> None:
        """Append and apply at least so much."""
        before = self.log.log.size_bytes
        while self.log.log.size_bytes < before + size_bytes:
            self.count += 1
            self.log.append_records([TopicRecord(f"topic-{self.count}", self.count.to_bytes(16, "big"))], 1)
        self.applied.apply(self.log, self.log.log.end_offset, everything=True)

    async def look(self) -> int:
        """Have a snapshot taken if one is due; the end of the last one."""
        self.log.log.flush()
        self.taker.begin_if_due(self.sync)
        for _ in range(5):
            await asyncio.sleep(0)
        if self.taker._work is not None:
            await asyncio.wait([self.taker._work])
            await asyncio.sleep(0)
        return self.log.snapshots[-1].end_offset if self.log.snapshots else 0


def run(path: Path, work: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def inside() -> None:
        env = SystemEnv()
        world = World(env, path)
        try:
            await work(world)
        finally:
            await env.close()
            world.log.log.close(clean=False)

    asyncio.run(inside())


def test_a_snapshot_is_taken_when_enough_was_applied(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.append(INTERVAL_BYTES - 200)
        assert await world.look() == 0
        world.append(200)
        assert await world.look() == world.count
        world.append(200)
        assert await world.look() < world.count

    run(tmp_path, work)


def test_a_snapshot_that_cannot_be_read_is_replaced_at_once_by_one_of_the_live_image(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.append(INTERVAL_BYTES)
        first = await world.look()
        assert first == world.count
        path = world.log.log.directory / world.log.snapshots[-1].file_name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        world.append(INTERVAL_BYTES)
        assert await world.look() == first, "it needs the last one"
        # Nothing more has to be applied before the next try: until then no node could start from the snapshot.
        assert await world.look() == world.count
        assert world.failures == []
        fresh = AppliedImage()
        fresh.load(world.log.newest_snapshot(), world.count)
        assert list(fresh.image.topics) == list(world.applied.image.topics)

    run(tmp_path, work)


def test_a_snapshot_has_the_epoch_of_the_last_record_in_it(tmp_path: Path) -> None:
    async def work(world: World) -> None:
        world.append(INTERVAL_BYTES)
        count = world.count
        # The next leader's epoch begins where the snapshot ends, and is not applied.
        world.log.append_records([TopicRecord("later", b"l" * 16)], 2)
        assert await world.look() == count
        assert tuple(world.log.snapshots[-1]) == (count, 1)

    run(tmp_path, work)
