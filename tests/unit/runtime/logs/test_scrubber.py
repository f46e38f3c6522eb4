"""Scrubbing: how fast, how often, and where it continues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import Image, PartitionState, ResourceType, partition_record
from penstock.model.ids import TopicPartition
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs import damage_search, scrubber
from penstock.runtime.logs.directories import begin_use, open_directory
from penstock.runtime.logs.scrubber import Scrubber
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.checkpoint import SCRUB_OFFSET, read_offsets
from penstock.storage.damage import check_batches
from penstock.storage.files import CorruptLogError, StorageError
from penstock.wire.messages.metadata_records import ConfigRecord, TopicRecord
from penstock.wire.records import Record, build_batch

DIRECTORY = b"d" * 16
COUNT = 12


class World:
    """A broker with two partitions of some closed segments each."""

    def __init__(self, path: Path, rate: float = 1 << 30) -> None:
        self.env = SystemEnv()
        self.path = path
        self.directory = open_directory(self.env, path, DIRECTORY)
        self.image = Image()
        self.partitions = Partitions(self.env, 1, self.image, lambda: broker_defaults({}), [self.directory], 1 << 20)
        begin_use(self.env, self.directory)
        for name in ("a", "b"):
            state = PartitionState((1,), (1,), 1, 0, 0, (DIRECTORY,))
            topic_id = name.encode() * 16
            config = ConfigRecord(ResourceType.TOPIC, name, "internal.segment.bytes", "200")
            for record in (TopicRecord(name, topic_id), config, partition_record(topic_id, 0, state)):
                self.image.replay(record)
        self.partitions.open_all()
        self.settings: Any = SimpleNamespace(
            penstock_log_scrub_bytes_per_second=rate, penstock_log_scrub_interval_ms=3_600_000
        )
        self.scrubber = Scrubber(self.env, self.partitions, lambda: self.settings)
        self.found: list[tuple[str, CorruptLogError]] = []
        self.partitions.on_damage(lambda partition, error: self.found.append((partition.name.topic, error)))
        self.checked: list[tuple[str, int]] = []

    def partition(self, name: str) -> Partition:
        found = self.partitions.get(name, 0)
        assert found is not None
        return found

    async def fill(self) -> None:
        for name in ("a", "b"):
            partition = self.partition(name)
            for _ in range(COUNT):
                partition.append(bytearray(build_batch([Record(0, 1_000, None, b"value" * 5)])), 1_000)
            await partition.sync.durable(COUNT)

    def segments(self, name: str) -> list[Path]:
        return sorted((self.path / f"{name}-0").glob("*.log"))

    @property
    def closed_bytes(self) -> int:
        return sum(path.stat().st_size for name in ("a", "b") for path in self.segments(name)[:-1])


def play(path: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World(path)
        await world.fill()
        await asyncio.wait_for(story(world), 20)
        await world.env.close()

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + 15
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x01
    path.write_bytes(data)


def test_every_closed_segment_is_checked_once_a_round_and_the_newest_never(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        flip(world.segments("b")[-1], -2)
        await world.scrubber.scrub(world.directory)
        assert world.scrubber.bytes_checked == world.closed_bytes
        assert world.found == []

    play(tmp_path, story)


def test_damage_anywhere_in_a_batch_is_found_and_reported_with_its_position(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        second = world.segments("b")[1]
        batch_size = second.stat().st_size // 2
        for number, position in enumerate((batch_size + 8, batch_size + 16, batch_size + 17, 2 * batch_size - 1), 1):
            flip(second, position)
            await world.scrubber.scrub(world.directory)
            flip(second, position)
            ((name, error),) = world.found[number - 1 :]
            assert (name, error.path, error.position) == ("b", second, batch_size)
        assert world.scrubber.damage_found == 4
        await world.scrubber.scrub(world.directory)
        assert world.scrubber.damage_found == 4

    play(tmp_path, story)


def test_a_segment_that_is_removed_or_cut_meanwhile_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        log = world.partition("a").log
        steps = iter(["gone", "cut"])

        def change(*arguments: Any) -> int:
            step = next(steps, None)
            if step == "gone":
                raise FileNotFoundError(arguments[0].path)
            if step == "cut":
                log.truncate_to(3)
            return check_batches(*arguments)

        monkeypatch.setattr(damage_search, "check_batches", change)
        await world.scrubber.scrub(world.directory)
        assert (world.found, world.scrubber.damage_found) == ([], 0)

    play(tmp_path, story)


def test_damage_that_a_second_read_does_not_find_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        misread = []

        def misread_once(*arguments: Any) -> int:
            if not misread:
                misread.append(arguments)
                raise CorruptLogError(arguments[0].path, arguments[1], "its checksum is wrong")
            return check_batches(*arguments)

        monkeypatch.setattr(damage_search, "check_batches", misread_once)
        await world.scrubber.scrub(world.directory)
        assert world.found == []
        assert world.scrubber.bytes_checked == world.closed_bytes

    play(tmp_path, story)
    assert "read again it is whole" in caplog.text


def test_it_is_no_faster_than_its_setting_and_stops_when_that_is_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        pauses.append(delay_s)
        await sleep(0)

    async def story(world: World) -> None:
        monkeypatch.setattr(scrubber.asyncio, "sleep", note)
        world.settings.penstock_log_scrub_bytes_per_second = 1_000
        await world.scrubber.scrub(world.directory)
        assert sum(pauses) == pytest.approx(world.closed_bytes / 1_000)
        world.settings.penstock_log_scrub_bytes_per_second = 0
        before = world.scrubber.bytes_checked
        await world.scrubber.scrub(world.directory)
        assert world.scrubber.bytes_checked == before

    try:
        play(tmp_path, story)
    finally:
        monkeypatch.undo()


def test_it_continues_where_it_was_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubber, "CHECKPOINT_MS", 0)

    async def story(world: World) -> None:
        bases = [int(path.stem) for path in world.segments("b")]
        reached = asyncio.Event()

        async def stop_there(size: int) -> None:  # noqa: ARG001
            if read_offsets(world.env.filesystem, tmp_path / SCRUB_OFFSET) == {TopicPartition("b", 0): bases[2]}:
                reached.set()
                await asyncio.Event().wait()

        world.scrubber._pace = stop_there  # type: ignore[method-assign]
        world.scrubber.start()
        await reached.wait()
        after = Scrubber(world.env, world.partitions, lambda: world.settings)
        after.start()
        left = sum(path.stat().st_size for path in world.segments("b")[2:-1])
        await until(lambda: not read_offsets(world.env.filesystem, tmp_path / SCRUB_OFFSET))
        assert after.bytes_checked == left

    play(tmp_path, story)


@pytest.mark.parametrize("content", [b"rubbish", b"0\n1\nZ 0 7\n"], ids=["damaged", "of a partition that is gone"])
def test_a_lost_position_costs_at_most_a_round(tmp_path: Path, content: bytes) -> None:
    async def story(world: World) -> None:
        position.write_bytes(content)
        world.scrubber.start()
        await until(lambda: world.scrubber.bytes_checked == world.closed_bytes)

    position = tmp_path / SCRUB_OFFSET
    play(tmp_path, story)


def test_an_error_of_the_disk_takes_its_directory_offline_and_ends_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        def fail(*_: object) -> int:
            raise StorageError("Input/output error", 5, path=world.segments("a")[0])

        monkeypatch.setattr(damage_search, "check_batches", fail)
        await world.scrubber.scrub(world.directory)
        assert world.directory.failure is not None
        assert world.found == []

    play(tmp_path, story)
