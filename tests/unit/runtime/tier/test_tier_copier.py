"""Copies and removals: the metadata decides, also where an answer of it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.config.node import NodeSettings
from penstock.core.tier.metadata_records import RemotePartitions, TierKey, decode_record, encode_record
from penstock.core.tier.segments import RemotePartition, SegmentState
from penstock.model.ids import TopicPartition
from penstock.runtime.env import SystemEnv
from penstock.runtime.tier.copier import Copier
from penstock.runtime.tier.counters import TierCounters
from penstock.runtime.tier.metadata import RemoteLogMetadata
from penstock.storage.files import OsFilesystem
from penstock.storage.leader_epochs import EpochEntry
from penstock.storage.producers.snapshot import encode_snapshot
from penstock.storage.segment_copy import TierCopy
from penstock.storage.tier.layout import PartitionLocation
from penstock.storage.tier.object_store import Listed, StoreError
from penstock.storage.tier.sealing import Seals
from penstock.wire.records import Record, build_batch

PLACE = PartitionLocation("cluster", "orders", b"t" * 16, 0)
KEY = TierKey(PLACE.topic_id, PLACE.partition)
FINISHED, DELETING = SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED


class Store:
    def __init__(self) -> None:
        self.objects: set[str] = set()
        self.fails_after = 99

    async def put(self, path: str, content: bytes | Path) -> None:  # noqa: ARG002
        self.fails_after -= 1
        if self.fails_after < 0:
            raise StoreError("away")
        self.objects.add(path)

    async def delete(self, paths: Sequence[str]) -> None:
        self.objects -= set(paths)

    async def get(self, path: str) -> bytes:
        raise NotImplementedError

    async def get_range(self, path: str, start: int, size: int) -> bytes:
        raise NotImplementedError

    async def copy(self, source: str, target: str) -> None:
        raise NotImplementedError

    async def list(self, prefix: str) -> AsyncIterator[Listed]:  # noqa: ARG002
        raise NotImplementedError
        yield


class Metadata:
    """Records are applied at once; the answer to those of one state is lost."""

    def __init__(self) -> None:
        self.partitions = RemotePartitions()
        self.loses: SegmentState | None = None
        # Called before a record is applied.
        self.before: Callable[[SegmentState], None] = lambda _: None

    def get(self, key: TierKey) -> RemotePartition | None:
        return self.partitions.get(key)

    async def write(self, _: TierKey, record: Any) -> None:
        state = SegmentState(record.remote_log_segment_state)
        self.before(state)
        self.partitions.replay(decode_record(encode_record(record)))
        if state is self.loses:
            self.loses = None
            raise TimeoutError


class World:
    def __init__(self, tmp_path: Path) -> None:
        path = tmp_path / "00000000000000000000.log"
        batch = build_batch([Record(0, 5, None, b"v", ())])
        path.write_bytes(batch)
        source = TierCopy(
            0,
            1,
            len(batch),
            5,
            (EpochEntry(0, 0),),
            OsFilesystem().open(path),
            b"",
            b"",
            b"",
            encode_snapshot([]),
            b"0",
        )
        log = SimpleNamespace(tier_copy=lambda _: source, is_failed=False)
        self.partition: Any = SimpleNamespace(
            name=TopicPartition("orders", 0), log=log, leading=object(), leader_epoch=3
        )
        self.store, self.metadata = Store(), Metadata()
        settings = cast(
            "Callable[[], NodeSettings]", lambda: SimpleNamespace(remote_log_manager_copy_max_bytes_per_second=2**60)
        )
        self.copier = Copier(
            SystemEnv(),
            1,
            self.store,
            cast("RemoteLogMetadata", self.metadata),
            settings,
            TierCounters(),
            Seals(),
            tmp_path / "outgoing",
        )

    def copy(self) -> None:
        asyncio.run(self.copier.copy(self.partition, PLACE, 0))

    def states(self) -> list[SegmentState]:
        return [one.state for one in self.metadata.partitions[KEY].segments()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_copy_has_all_of_its_objects_before_it_is_finished(world: World) -> None:
    def check(state: SegmentState) -> None:
        assert (state is FINISHED) == any(path.endswith(".manifest.json") for path in world.store.objects)

    world.metadata.before = check
    world.copy()
    assert world.states() == [FINISHED]


def test_a_copy_that_fails_leaves_nothing(world: World) -> None:
    world.store.fails_after = 3
    with pytest.raises(StoreError):
        world.copy()
    assert world.states() == []
    assert not world.store.objects


def test_a_copy_whose_last_answer_was_lost_keeps_its_objects(world: World) -> None:
    world.metadata.loses = FINISHED
    with pytest.raises(TimeoutError):
        world.copy()
    assert world.states() == [FINISHED]
    assert any(path.endswith(".log") for path in world.store.objects)


def test_a_leader_that_was_replaced_gives_up(world: World) -> None:
    def replaced(_: SegmentState) -> None:
        world.partition.leader_epoch = 4

    world.metadata.before = replaced
    with pytest.raises(StoreError, match="no longer led"):
        world.copy()
    assert not world.store.objects


def test_a_leader_that_was_replaced_while_the_segment_was_checked_gives_up(world: World) -> None:
    """It may lead again, after its log was cut: what was to be copied of it is not what is there now."""
    tier_copy = world.partition.log.tier_copy

    def replaced_meanwhile(base_offset: int) -> TierCopy:
        asyncio.get_running_loop().call_soon(setattr, world.partition, "leader_epoch", 4)
        copied: TierCopy = tier_copy(base_offset)
        return copied

    world.partition.log.tier_copy = replaced_meanwhile
    with pytest.raises(StoreError, match="no longer led"):
        world.copy()
    assert not world.store.objects


def test_a_slow_copy_that_the_next_leader_has_removed_leaves_nothing(world: World) -> None:
    put = world.store.put

    async def late_put(path: str, content: bytes | Path) -> None:
        if path.endswith(".manifest.json"):
            # The next leader found an unfinished copy and removed it, before this one wrote the last objects.
            (found,) = world.metadata.partitions[KEY].segments()
            await world.copier.remove(PLACE, found)
            assert (world.states(), world.store.objects) == ([], set())
            world.partition.leader_epoch = 4
        await put(path, content)

    world.store.put = late_put  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="no longer led"):
        world.copy()
    assert (world.states(), world.store.objects) == ([], set())


def test_a_slow_copy_that_was_removed_leaves_nothing_though_its_leader_knows_of_no_other(world: World) -> None:
    put = world.store.put

    async def late_put(path: str, content: bytes | Path) -> None:
        if path.endswith(".manifest.json"):
            (found,) = world.metadata.partitions[KEY].segments()
            await world.copier.remove(PLACE, found)
        await put(path, content)

    world.store.put = late_put  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="another leader"):
        world.copy()
    assert (world.states(), world.store.objects) == ([], set())


def test_a_copy_that_is_finished_while_it_is_given_up_stays(world: World) -> None:
    world.copy()
    (finished,) = world.metadata.partitions[KEY].segments()
    # As another leader saw it a moment ago.
    begun = SimpleNamespace(state=SegmentState.COPY_SEGMENT_STARTED, start_offset=0, segment_id=finished.segment_id)
    before = set(world.store.objects)
    asyncio.run(world.copier.remove(PLACE, cast("Any", begun)))
    assert world.states() == [FINISHED]
    assert world.store.objects == before
    asyncio.run(world.copier.remove(PLACE, finished))
    assert (world.states(), world.store.objects) == ([], set())
