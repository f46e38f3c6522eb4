"""A move that a crash interrupts anywhere loses nothing: every operation on the disk is tried as the last one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from replication_world import until

from penstock.config.topic import broker_defaults
from penstock.core.metadata.image import Image, PartitionState, partition_record
from penstock.core.replica import directory_move
from penstock.core.replica.throttle import UNLIMITED, Throttle
from penstock.model.ids import TopicPartition
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.directories import LogDirectory, open_directory
from penstock.runtime.replication import directory_moves, future_log
from penstock.runtime.replication.directory_moves import DirectoryMoves, Move
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.files import File, StorageError, storage_error
from penstock.storage.names import future_directory_name
from penstock.wire.messages.metadata_records import RemoveTopicRecord, TopicRecord
from penstock.wire.records import Record, build_batch, read_records, split_batches
from sim.disk import SimDisk, SimFilesystem
from sim.scheduler import SimCrash

TOPIC, TOPIC_ID = "orders", b"orders--orders--"
OTHER_TOPIC_ID = b"another-another-"
NAME = TopicPartition(TOPIC, 0)
FIRST, SECOND = Path("/data/first"), Path("/data/second")
IDS = {FIRST: b"f" * 16, SECOND: b"s" * 16}
SIZE = 1 << 20
BEFORE, MEANWHILE = 12, 12
TURNS_TO_ASSIGN = 5
T = TypeVar("T")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pieces of a few records each are copied before the logs change places."""
    monkeypatch.setattr(directory_move, "REST_BYTES_MAX", 200)
    monkeypatch.setattr(future_log, "CHUNK_BYTES", 400)
    monkeypatch.setattr(directory_moves, "CHUNK_BYTES", 400)
    monkeypatch.setattr(future_log, "UNSYNCED_BYTES_MAX", 700)


class InlineEnv(SystemEnv):
    """Workers work at once, so that a crash can be placed exactly; or syncs that clients wait for take their time."""

    def __init__(self, sync_turns: int) -> None:
        super().__init__()
        self._sync_turns = sync_turns

    def run_blocking(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._sync_turns and "LogSync" in getattr(work, "__qualname__", ""):
            return asyncio.ensure_future(self._later(work))
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(work())
        except (Exception, SimCrash) as error:  # noqa: BLE001
            done.set_exception(error)
        return done

    def sync(self, file: File) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._later(file.sync)) if self._sync_turns else self.run_blocking(file.sync)

    async def _later(self, work: Callable[[], T]) -> T:
        for _ in range(self._sync_turns):
            await asyncio.sleep(0)
        return work()


class Controller:
    """What the controllers know of the replica; it outlives the broker."""

    def __init__(self) -> None:
        self.directory = IDS[FIRST]
        self.kept_records = False
        self.is_told = asyncio.Event()

    def assign(self, _: Partition, directory: LogDirectory, *, kept_records: bool = False) -> asyncio.Future[bool]:
        self.kept_records = kept_records
        return asyncio.ensure_future(self._assign(directory))

    async def _assign(self, directory: LogDirectory) -> bool:
        """Records come meanwhile."""
        for _ in range(TURNS_TO_ASSIGN):
            await asyncio.sleep(0)
        self.directory = directory.directory_id
        self.is_told.set()
        return True


class World:
    """A broker with two directories on a disk that forgets, and what it acknowledged."""

    def __init__(self, sync_turns: int = 0, *, is_compacted: bool = False) -> None:
        self.is_compacted = is_compacted
        self.disk = SimDisk()
        self.controller = Controller()
        self.sync_turns = sync_turns
        # The end of what was appended, and of what a client was told to be on disk.
        self.appended = self.durable = 0

    def open(self, *, lost_power: bool) -> None:
        self.filesystem = SimFilesystem(self.disk, lambda: 0)
        self.env = InlineEnv(self.sync_turns)
        self.env.filesystem = self.filesystem
        self.directories = []
        for path, directory_id in IDS.items():
            self.filesystem.make_directory(path)
            found = open_directory(self.env, path, directory_id)
            found.lost_power = lost_power
            self.directories.append(found)
        self.filesystem.sync_directory(FIRST.parent)
        image = Image()
        state = PartitionState((1,), (1,), 1, 0, 0, (self.controller.directory,))
        for record in (TopicRecord(TOPIC, TOPIC_ID), partition_record(TOPIC_ID, 0, state)):
            image.replay(record)
        self.partitions = Partitions(self.env, 1, image, lambda: broker_defaults({}), self.directories, SIZE)
        assignments: Any = self.controller
        self.moves = DirectoryMoves(self.env, self.partitions, assignments, Throttle(lambda: UNLIMITED))
        self.partitions.open_all()

    @property
    def partition(self) -> Partition:
        found = self.partitions.get(*NAME)
        assert found is not None
        return found

    def append(self) -> None:
        value = b"%04d" % self.partition.log.end_offset + bytes(40)
        self.partition.append(bytearray(build_batch([Record(0, 1_000, None, value)])), 1_000)
        self.appended = self.partition.log.end_offset

    async def acknowledge(self) -> None:
        """Append, and wait as a client does that asks for all replicas."""
        self.append()
        end_offset = self.appended
        await self.partition.committed(end_offset)
        self.durable = max(self.durable, end_offset)

    def values(self) -> list[int]:
        log = self.partition.log
        found, offset = [], log.start_offset
        while data := log.read(offset, SIZE).read():
            for position, header in split_batches(data, SIZE):
                found += [int((record.value or b"")[:4]) for record in read_records(data, SIZE, position)]
                offset = header.next_offset
        return found

    def logs(self) -> list[Path]:
        """Every directory of the replica that is neither being removed nor anything else."""
        return [
            path / name
            for path in (FIRST, SECOND)
            for name in self.filesystem.list_directory(path)
            if name.startswith(TOPIC) and not name.endswith("-delete")
        ]

    async def fill(self) -> None:
        for number in range(BEFORE):
            self.append()
            if number % 5 == 4:
                self.partition.log.roll(1_000)
        await self.acknowledge()

    async def move(self) -> None:
        """Move the replica while records come."""
        self.moves.alter(NAME, str(SECOND))
        task = self.moves._moves[NAME].task
        waiting = []
        for number in range(MEANWHILE):
            if self.sync_turns:
                waiting.append(asyncio.ensure_future(self.acknowledge()))
            elif number % 2:
                await self.acknowledge()
            await asyncio.sleep(0)
            self.append()
        await asyncio.wait([task, *waiting])

    async def run_move(self) -> None:
        await self.move()
        await self.settle()

    async def settle(self) -> None:
        """Let everything end that was begun."""
        for move in [*self.moves._moves.values()]:
            await asyncio.wait([move.task])
        for _ in range(20):
            await asyncio.sleep(0)


async def moved_with_a_crash(world: World, crash_after: int) -> bool:
    """Move with a crash after so many operations; False when it was over before."""
    world.open(lost_power=False)
    await world.fill()
    died = asyncio.Event()

    def die() -> None:
        world.filesystem.dead = True
        died.set()

    world.filesystem.on_crash = die
    world.filesystem.crash_after = crash_after
    # What a dead process was about to do ends with it, and raises.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    run = asyncio.ensure_future(world.run_move())
    await asyncio.wait([run, asyncio.ensure_future(died.wait())], return_when=asyncio.FIRST_COMPLETED)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    await world.env.close()
    if not died.is_set():
        run.result()
    return died.is_set()


async def check_after(world: World, *, lost_power: bool) -> None:
    """Start again: nothing acknowledged is missing, and the move goes on to its end or did not begin."""
    world.open(lost_power=lost_power)
    found = world.values()
    assert found == list(range(len(found)))
    assert len(found) >= (world.durable if lost_power else world.appended)
    await world.acknowledge()
    if world.is_compacted:
        world.partitions.home(world.partition).clean_offsets[NAME] = 0
    is_resumed = any(NAME in directory.found_futures for directory in world.directories)
    world.moves.resume()
    await world.settle()
    assert world.values() == list(range(len(found) + 1))
    if is_resumed and world.is_compacted:
        # Nothing of the copy was used: its source may have been compacted since.
        assert world.moves.moved_bytes == world.partition.log.size_bytes
    assert len(world.logs()) == 1
    await world.env.close()


def crash_everywhere(lost_power: bool, seed: int = 0, sync_turns: int = 0, *, is_compacted: bool = False) -> int:
    """Try every operation as the last one; how many there are."""
    for crash_after in range(10_000):
        world = World(sync_turns, is_compacted=is_compacted)
        random = Random(f"{seed} {crash_after}")

        async def run(world: World = world, crash_after: int = crash_after, random: Random = random) -> bool:
            crashed = await moved_with_a_crash(world, crash_after)
            if crashed:
                if lost_power:
                    world.disk.lose_power(random)
                await check_after(world, lost_power=lost_power)
            return crashed

        if not asyncio.run(run()):
            return crash_after
    raise AssertionError("the move never ends")


def test_a_move_without_a_crash() -> None:
    async def run() -> None:
        world = World()
        assert not await moved_with_a_crash(world, 10_000)
        world.open(lost_power=False)
        assert world.values() == list(range(world.appended))
        assert [path.parent for path in world.logs()] == [SECOND]
        await world.env.close()

    asyncio.run(run())


def test_a_move_that_is_cancelled_while_it_is_announced_is_announced_back() -> None:
    """The controller may have recorded the other directory although it has not answered."""
    world = World()

    class Silent(Controller):
        async def _assign(self, directory: LogDirectory) -> bool:
            self.directory = directory.directory_id
            self.is_told.set()
            return directory.directory_id == IDS[FIRST] or await asyncio.get_running_loop().create_future()

    async def run() -> None:
        world.controller = Silent()
        world.open(lost_power=False)
        await world.fill()
        world.moves.alter(NAME, str(SECOND))
        task = world.moves._moves[NAME].task
        async with asyncio.timeout(10):
            await world.controller.is_told.wait()
            assert world.controller.directory == IDS[SECOND]
            world.moves.alter(NAME, str(FIRST))
            await asyncio.wait([task])
        assert world.controller.directory == IDS[FIRST]
        await world.env.close()

    asyncio.run(run())


def test_a_replica_moves_from_the_request_until_the_end_of_its_move() -> None:
    """Its log is not compacted meanwhile."""
    world = World()

    async def run() -> None:
        world.open(lost_power=False)
        await world.fill()
        world.moves.alter(NAME, str(SECOND))
        assert world.partitions.moving == {NAME}
        # Before it has begun.
        world.moves.alter(NAME, str(FIRST))
        await world.settle()
        assert world.partitions.moving == set()
        world.moves.alter(NAME, str(SECOND))
        await world.controller.is_told.wait()
        assert world.partitions.moving == {NAME}
        await world.settle()
        assert world.partitions.moving == set()
        assert world.partitions.home(world.partition).path == SECOND
        await world.env.close()

    asyncio.run(run())


def test_a_move_continues_when_its_replica_opens_late() -> None:
    world = World()

    async def run() -> None:
        world.open(lost_power=False)
        await world.fill()
        partition = world.partition
        world.directories[1].found_futures[NAME] = future_directory_name(str(NAME), bytes(16))
        del world.partitions._by_name[NAME]
        world.moves.resume()
        assert len(world.moves) == 0
        world.partitions._by_name[NAME] = partition
        for listener in world.partitions._on_change:
            listener(partition)
        assert len(world.moves) == 1
        await world.settle()
        assert world.partitions.home(partition).path == SECOND
        await world.env.close()

    asyncio.run(run())


@pytest.mark.parametrize("failing", [SECOND, FIRST])
def test_a_replica_that_did_not_move_reports_that_it_kept_its_records(failing: Path) -> None:
    """Unless its own directory has failed too."""

    async def run() -> None:
        world = World()
        world.open(lost_power=False)
        await world.fill()
        world.moves.alter(NAME, str(SECOND))
        await world.controller.is_told.wait()
        for directory in world.directories:
            if directory.path in (SECOND, failing):
                world.partitions.fail_directory(directory, StorageError("broken"))
        await world.settle()
        assert world.controller.directory == IDS[FIRST]
        assert world.controller.kept_records == (failing is SECOND)
        await world.env.close()

    asyncio.run(run())


@pytest.mark.parametrize("failing", [FIRST, SECOND])
def test_a_disk_that_a_move_finds_broken_goes_offline(failing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it the one that is read, or the one that is written."""

    def touch(_: SimFilesystem, action: str, path: Path) -> None:
        if path.is_relative_to(failing):
            raise storage_error(action, path, OSError(errno.EIO, "Input/output error"))

    async def run() -> None:
        world = World()
        world.open(lost_power=False)
        await world.fill()
        monkeypatch.setattr(SimFilesystem, "touch", touch)
        world.moves.alter(NAME, str(SECOND))
        await world.settle()
        assert [one.path for one in world.directories if one.failure is not None] == [failing]
        await world.env.close()

    asyncio.run(run())


def test_a_replica_that_moves_back_waits_until_its_former_log_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow disk the former log was removed when the replica had come back: it was the replica itself by then."""
    settle, has_moved = DirectoryMoves._settle, asyncio.Event()

    async def settle_late(moves: DirectoryMoves, move: Move, retire: Callable[[], None]) -> None:
        has_moved.set()
        for _ in range(100 if move.target.path == SECOND else 0):
            await asyncio.sleep(0)
        await settle(moves, move, retire)

    monkeypatch.setattr(DirectoryMoves, "_settle", settle_late)

    async def run() -> None:
        world = World()
        world.open(lost_power=False)
        await world.fill()
        world.moves.alter(NAME, str(SECOND))
        away = world.moves._moves[NAME].task
        await has_moved.wait()
        world.moves.alter(NAME, str(FIRST))
        await asyncio.wait([away, world.moves._moves[NAME].task])
        await world.settle()
        assert [path.parent for path in world.logs()] == [FIRST]
        assert world.values() == list(range(world.appended))
        await world.env.close()

    asyncio.run(run())


def test_a_topic_created_anew_keeps_nothing_of_a_replica_that_had_just_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former log was still in the directory of the new replica, which began with it and was removed with it."""
    settle, has_moved, may_settle = DirectoryMoves._settle, asyncio.Event(), asyncio.Event()

    async def settle_late(moves: DirectoryMoves, move: Move, retire: Callable[[], None]) -> None:
        has_moved.set()
        await may_settle.wait()
        await settle(moves, move, retire)

    monkeypatch.setattr(DirectoryMoves, "_settle", settle_late)

    async def run() -> None:
        world = World()
        world.open(lost_power=False)
        await world.fill()
        world.moves.alter(NAME, str(SECOND))
        moving = world.moves._moves[NAME].task
        await has_moved.wait()
        state = PartitionState((1,), (1,), 1, 0, 0, (IDS[FIRST],))
        created = TopicRecord(TOPIC, OTHER_TOPIC_ID), partition_record(OTHER_TOPIC_ID, 0, state)
        for record in (RemoveTopicRecord(TOPIC_ID), *created):
            world.partitions.image.replay(record)
            world.partitions.follow([record])
        await until(lambda: world.partitions.get(*NAME))
        assert (world.partition.topic_id, world.partition.log.end_offset) == (OTHER_TOPIC_ID, 0)
        await world.acknowledge()
        may_settle.set()
        await asyncio.wait([moving])
        await world.settle()
        assert world.logs() == [FIRST / str(NAME)]
        await world.env.close()

    asyncio.run(run())


async def cancelled_with_a_crash(world: World, crash_after: int) -> bool:
    """Cancel a move that is half done, with a crash after so many operations; False when it was over before."""
    world.open(lost_power=False)
    await world.fill()
    world.moves.alter(NAME, str(SECOND))
    move = world.moves._moves[NAME]
    for _ in range(100):
        if move.future is not None and move.future.copied_bytes >= 1_000:
            break
        await asyncio.sleep(0)
    await world.partitions.checkpoints(move.target).write()
    died = asyncio.Event()

    def die() -> None:
        world.filesystem.dead = True
        died.set()

    world.filesystem.on_crash = die
    world.filesystem.crash_after = crash_after
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    world.moves.cancel(NAME)
    await asyncio.wait([move.task, asyncio.ensure_future(died.wait())], return_when=asyncio.FIRST_COMPLETED)
    await world.env.close()
    return died.is_set()


def test_a_move_that_is_cancelled_leaves_no_part_of_a_log_to_be_filled_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash the segments that were not removed yet were taken for a copy, although others were missing."""
    listed = SimFilesystem.list_directory
    # As a disk may list them: the topic's id is removed last.
    monkeypatch.setattr(SimFilesystem, "list_directory", lambda *arguments: dict(sorted(listed(*arguments).items())))
    for crash_after in range(1_000):
        world = World()

        async def run(world: World = world, crash_after: int = crash_after) -> bool:
            crashed = await cancelled_with_a_crash(world, crash_after)
            if crashed:
                await check_after(world, lost_power=False)
            return crashed

        if not asyncio.run(run()):
            assert crash_after > 5
            return


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_killed_process_loses_nothing_wherever_it_was(*, is_compacted: bool) -> None:
    assert crash_everywhere(lost_power=False, is_compacted=is_compacted) > 50


@pytest.mark.parametrize("sync_turns", [0, 12, 40])
def test_a_power_failure_loses_nothing_that_was_acknowledged(sync_turns: int) -> None:
    assert crash_everywhere(lost_power=True, seed=sync_turns, sync_turns=sync_turns) > 50


def test_a_log_that_is_removed_before_the_other_is_durable_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hasty(_: DirectoryMoves, __: Move, retire: Callable[[], None]) -> None:
        retire()

    monkeypatch.setattr(DirectoryMoves, "_settle", hasty)
    with pytest.raises((AssertionError, IndexError)):
        sum(crash_everywhere(lost_power=True, seed=seed) for seed in range(5))


def test_logs_that_change_places_too_early_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = DirectoryMoves._swap

    def early(self: DirectoryMoves, move: Move) -> Callable[[], None] | None:
        assert move.future is not None
        source, end_offset = move.partition.log, move.partition.log.end_offset
        source.end_offset = move.future.log.end_offset
        try:
            return real(self, move)
        finally:
            source.end_offset = end_offset

    monkeypatch.setattr(DirectoryMoves, "_swap", early)
    with pytest.raises(AssertionError):
        crash_everywhere(lost_power=False)


def test_a_log_whose_last_records_were_compacted_away_keeps_its_end_when_it_moves() -> None:
    async def story() -> None:
        world = World()
        world.open(lost_power=False)
        for _ in range(3):
            world.append()
        log = world.partition.log
        # As if five more records had been appended, rolled and removed.
        log.end_offset = 8
        log.roll(1_000)
        world.moves.alter(NAME, str(SECOND))
        await asyncio.wait_for(world.settle(), 20)
        moved = world.partition.log
        assert moved.directory == SECOND / str(NAME)
        assert (moved.start_offset, moved.end_offset, world.values()) == (0, 8, [0, 1, 2])
        await world.env.close()

    asyncio.run(story())
