"""Moves replicas between the data directories of this broker (KIP-113); `core/replica/directory_move` has the order.

The copying is done by workers, a piece at a time, within replica.alter.log.dirs.io.max.bytes.per.second. Only the last
piece is copied on the loop, in the turn in which the logs change places. A move that a restart interrupts resumes after
it: the directory that was being filled is still there. That of a compacted log is filled anew, since it is unknown
whether its source was compacted meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from penstock.core.replica.directory_move import MoveStep, next_step
from penstock.core.replica.throttle import Throttle
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.env import Env
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.replication.directory_assignments import DirectoryAssignments
from penstock.runtime.replication.future_log import CHUNK_BYTES, FutureLog, open_future
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.files import StorageError
from penstock.storage.metadata_files import sync_partition_metadata
from penstock.storage.names import NAME_BYTES_MAX, PARTITION_METADATA, deletion_directory_name, future_directory_name
from penstock.storage.segment_copy import TierHistory
from penstock.storage.slices import LogSlice
from penstock.wire.record_types import CorruptBatch

PAUSE_S = 1.0
SETTLE_RETRY_S = 0.1

T = TypeVar("T")

logger = logging.getLogger("penstock.replication")


class Move:
    """One replica on its way to another directory."""

    def __init__(
        self, partition: Partition, target: LogDirectory, directory_name: str, *, is_resumed: bool = False
    ) -> None:
        self.is_resumed = is_resumed
        self.partition = partition
        self.target = target
        self.path = target.path / directory_name
        self.future: FutureLog | None = None
        self.is_assigned = False
        # Whether the controller may have recorded the new directory, as it was asked to.
        self.is_announced = False
        # The log start offset that the target's checkpoint has; -1 for none yet.
        self.noted_start = -1
        # Whether the future replica is removed, as it is no longer wanted.
        self.is_cancelled = False
        self.task: asyncio.Task[None]


class DirectoryMoves:
    """The moves of this broker."""

    def __init__(
        self,
        env: Env,
        partitions: Partitions,
        assignments: DirectoryAssignments,
        throttle: Throttle,
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._assignments = assignments
        self._throttle = throttle
        self._slots = asyncio.Semaphore(max(1, len(partitions.directories)))
        self._moves: dict[TopicPartition, Move] = {}
        # Replicas that have moved, while their former logs are still where they were.
        self._settling: dict[TopicPartition, asyncio.Event] = {}
        self._is_stopped = False
        self.moved_count = 0
        self.moved_bytes = 0

    def __len__(self) -> int:
        return len(self._moves)

    def resume(self) -> None:
        """Continue what the last run began."""
        self._partitions.on_removed(lambda partition: self.cancel(partition.name))
        self._partitions.on_change(self._continue)
        for partition in list(self._partitions):
            self._continue(partition)
        for directory in self._partitions.directories:
            for directory_name in directory.found_futures.values():
                logger.warning(
                    "%s is kept: this broker has no replica to fill it from", directory.path / directory_name
                )

    def _continue(self, partition: Partition) -> None:
        """Continue the move that the last run began, if there is one, now that its replica is open."""
        for directory in self._partitions.directories:
            is_found = partition.name in directory.found_futures and directory.failure is None
            if is_found and partition.name not in self._moves:
                found = directory.found_futures.pop(partition.name)
                self._begin(Move(partition, directory, found, is_resumed=True))

    def alter(self, name: TopicPartition, path: str) -> None:
        """Move a replica to the directory at `path`; raises ApiError with Kafka's error if that is not possible.

        The directory that it is in ends a move; another one than before changes it.
        """
        directory = self._directory(path)
        partition = self._partitions.get(*name)
        if partition is None:
            raise self._absence(name, directory)
        if partition.log.is_failed:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is offline: its data directory failed")
        present = self._moves.get(name)
        if present is not None and present.target is directory:
            return
        self.cancel(name)
        if self._partitions.home(partition) is directory:
            return
        unique = self._env.random.randbytes(16)
        directory_name = future_directory_name(str(name), unique)
        if len(directory_name) > NAME_BYTES_MAX:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the name of {name} is too long for a move")
        self._partitions.checkpoints(directory).forget(name)
        self._begin(Move(partition, directory, directory_name))

    def cancel(self, name: TopicPartition) -> None:
        """End a move, if there is one; the replica stays where it is."""
        move = self._moves.pop(name, None)
        if move is not None:
            move.is_cancelled = True
            move.target.futures.pop(name, None)
            # The copy is of no use any more, whatever becomes of its source. The task may not even have begun.
            self._partitions.moving.discard(name)
            move.task.cancel()

    async def stop(self) -> None:
        """End all moves for this run, so that the next one continues them."""
        # Their logs stay as they are: the copies continue where they are now.
        self._is_stopped = True
        moves, self._moves = list(self._moves.values()), {}
        for move in moves:
            move.task.cancel()
        await asyncio.gather(*(move.task for move in moves), return_exceptions=True)
        for move in moves:
            if move.future is not None and not move.future.log.is_failed:
                try:
                    await self._work(partial(move.future.log.close, clean=True))
                except StorageError as error:
                    self._partitions.fail_directory(move.target, error)

    def _directory(self, path: str) -> LogDirectory:
        wanted = path.rstrip("/") or "/"
        for directory in self._partitions.directories:
            if str(directory.path) == wanted:
                if directory.failure is not None:
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory {path} is offline")
                if directory.is_cordoned:
                    raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the data directory {path} is cordoned")
                return directory
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not among the log.dirs of this broker")

    def _absence(self, name: TopicPartition, directory: LogDirectory) -> ApiError:
        state = self._partitions.state_of(name.topic, b"", name.partition, by_id=False)
        if state is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}")
        if self._partitions.node_id in state.replicas:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is offline")
        self._partitions.prefer(name, directory)
        return ApiError(
            ErrorCode.REPLICA_NOT_AVAILABLE,
            f"this broker has no replica of {name}; one that it gets will be in {directory.path}",
        )

    def _begin(self, move: Move) -> None:
        name = move.partition.name
        logger.info("%s moves to %s", name, move.target.path)
        self._moves[name] = move
        self._partitions.moving.add(name)
        move.task = self._env.spawn(self._run(move), f"move {name}")

    async def _run(self, move: Move) -> None:
        try:
            if (settling := self._settling.get(move.partition.name)) is not None:
                # It may be on its way back, to where the former log is still to be removed.
                await settling.wait()
            async with self._slots:
                await self._open(move)
                await self._fill(move)
        except asyncio.CancelledError:
            if not move.is_cancelled:
                raise
        except (ApiError, CorruptBatch) as error:
            self._failed(move, error)
        finally:
            if self._moves.get(move.partition.name) is move:
                del self._moves[move.partition.name]
            try:
                if move.is_cancelled:
                    await self._remove(move)
            finally:
                if move.partition.name not in self._moves and not self._is_stopped:
                    self._partitions.moving.discard(move.partition.name)

    async def _open(self, move: Move) -> None:
        partition, target = move.partition, move.target
        if move.is_resumed and self._is_compacted(partition):
            self._partitions.checkpoints(target).forget(partition.name)
            with contextlib.suppress(FileNotFoundError):
                await self._work(partial(self._remove_directory, move.path))
        # The directory may have had a replica of this name before.
        await self._partitions.checkpoints(target).write()
        opening = partial(
            open_future, self._env, move.path, target, partition.topic_id, partition, partition.log.settings
        )
        move.future = FutureLog(self._env, await self._work(opening))
        target.futures[partition.name] = move.future.log

    def _is_compacted(self, partition: Partition) -> bool:
        return partition.settings.compacts or partition.name in self._partitions.home(partition).clean_offsets

    async def _fill(self, move: Move) -> None:
        future = move.future
        assert future is not None
        while True:
            source = move.partition.log
            if source.is_failed:
                raise StorageError(f"{move.partition.name} is offline")
            if move.target.failure is not None:
                raise move.target.failure
            await self._wait_for_room(move)
            if not await self._is_part(move):
                continue
            if move.partition.is_truncating or source.is_swapping:
                await asyncio.sleep(SETTLE_RETRY_S)
                continue
            missing = future.rest(source)
            if missing is None:
                await self._begin_anew(move)
            elif not len(missing) and future.log.end_offset < source.end_offset:
                await self._work(partial(future.skip_to, source.end_offset))
            elif await self._resume(move, missing):
                return

    async def _resume(self, move: Move, missing: LogSlice) -> bool:
        """Take the next step; whether it was the last one."""
        future = move.future
        assert future is not None
        step = next_step(len(missing), move.is_assigned)
        if step is MoveStep.COPY:
            size = await self._work(partial(future.append, missing))
            self._throttle.spent(size)
            self.moved_bytes += size
            return False
        if step is MoveStep.ASSIGN:
            await self._work(future.sync)
            move.is_announced = True
            move.is_assigned = await self._assignments.assign(move.partition, move.target)
            if not move.is_assigned:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"the controller does not accept {move.target.path}")
            return False
        source = move.partition.log
        if move.noted_start != source.start_offset:
            # A crash after the swap may find the replica in its new directory, where its start must be known.
            start_offset = source.start_offset
            self._note(move, start_offset)
            await self._partitions.checkpoints(move.target).write()
            move.noted_start = start_offset
            return False
        retire = self._swap(move)
        if retire is None:
            return False
        name = move.partition.name
        del self._moves[name]
        self._settling[name] = asyncio.Event()
        try:
            await self._settle(move, retire)
        finally:
            self._settling.pop(name).set()
        return True

    def _swap(self, move: Move) -> Callable[[], None] | None:
        """Copy what is still missing and change places, in one turn; None if too much is missing.

        Returns what removes the former log, once the new one is durable.
        """
        future, partition, target = move.future, move.partition, move.target
        assert future is not None
        source, copied = partition.log, 0
        if source.is_failed or target.failure is not None or future.generation != source.generation:
            return None
        if partition.is_truncating or move.noted_start != source.start_offset:
            return None
        while future.log.end_offset < source.end_offset:
            missing = future.rest(source)
            if missing is None or not len(missing) or copied > CHUNK_BYTES:
                return None
            copied += future.append(missing)
        self._throttle.spent(copied)
        self.moved_bytes += copied
        target.futures.pop(partition.name, None)
        self._note(move, source.start_offset)
        return self._partitions.replace_log(partition, target, future.log)

    def _note(self, move: Move, start_offset: int) -> None:
        assert move.future is not None
        flushed_offset, high_watermark = move.future.log.flushed_offset, move.partition.high_watermark
        self._partitions.checkpoints(move.target).note(
            move.partition.name, flushed_offset, start_offset, high_watermark
        )

    async def _settle(self, move: Move, retire: Callable[[], None]) -> None:
        """Remove the former log when the new one is durable; until then a start decides between the two."""
        partition, target, log = move.partition, move.target, move.partition.log
        self.moved_count += 1
        logger.info("%s has moved to %s", partition.name, target.path)
        end_offset = log.end_offset
        while self._is_here(partition) and log.flushed_offset < min(end_offset, log.end_offset):
            try:
                await partition.sync.durable(min(end_offset, log.end_offset))
            except StorageError:
                # The new directory failed. The former log may be all that is left.
                return
            except ApiError:
                # Another broker leads now, or this one is about to stop.
                await asyncio.sleep(SETTLE_RETRY_S)
        if self._is_here(partition):
            # Its name may be new although nothing was appended under it yet.
            await self._work(partial(sync_partition_metadata, self._env.filesystem, log.directory))
        if self._is_here(partition):
            try:
                await self._partitions.note_progress(partition).write()
            except StorageError as error:
                if not error.is_passing:
                    # The new directory failed. The former log may be all that is left.
                    return
                # A lower recovery point costs the next start time, and nothing else.
        retire()

    def _is_here(self, partition: Partition) -> bool:
        return self._partitions.get(*partition.name) is partition

    async def _is_part(self, move: Move) -> bool:
        """Cut what the source does not have, if it was truncated; whether nothing had to be cut."""
        future, source = move.future, move.partition.log
        assert future is not None
        if future.generation == source.generation:
            return True
        generation = source.generation
        cut = future.divergence(source)
        if cut is None:
            future.generation = generation
            return True
        await self._work(lambda: future.log.truncate_to(cut, self._env.now_ms()))
        await self._lower(move)
        return False

    async def _lower(self, move: Move) -> None:
        """Lower the checkpoints of a truncated future replica before anything is appended to it."""
        assert move.future is not None
        checkpoints = self._partitions.checkpoints(move.target)
        checkpoints.lower(move.partition.name, move.future.log.end_offset)
        await checkpoints.write()

    async def _begin_anew(self, move: Move) -> None:
        future, source = move.future, move.partition.log
        assert future is not None
        first = source.read(source.local_start_offset, CHUNK_BYTES)
        history = TierHistory(source.epochs.entries, ())
        begin = partial(future.begin, source.directory, first, source.start_offset, source.local_start_offset, history)
        await self._work(begin)
        await self._lower(move)

    async def _wait_for_room(self, move: Move) -> None:
        while True:
            wait_s = PAUSE_S if move.target.is_full else self._throttle.wait_s(self._env.monotonic_ms())
            if wait_s <= 0:
                return
            await asyncio.sleep(min(PAUSE_S, wait_s))

    async def _work(self, work: Callable[[], T]) -> T:
        """Run something with the future log off the loop, to its end even if the move is ended meanwhile."""
        running = self._env.run_blocking(work)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    def _failed(self, move: Move, error: ApiError | CorruptBatch) -> None:
        """Give a move up. What was copied stays if the source failed, as it may be all that is left."""
        partition, target = move.partition, move.target
        logger.error("%s cannot move to %s: %s", partition.name, target.path, error)
        if not self._is_here(partition):
            move.is_cancelled = True
            return
        log = move.future.log if move.future is not None else None
        home = self._partitions.home(partition)
        if isinstance(error, StorageError) and not error.is_passing and log is not None and log.is_failed:
            self._partitions.fail_directory(target, error)
        elif isinstance(error, StorageError) and error.is_disk_failure and error.path is not None:
            broken = home if error.path.is_relative_to(home.path) else target
            self._partitions.fail_directory(broken, error)
        target.futures.pop(partition.name, None)
        if home is target:
            return
        if move.is_announced or home.failure is not None:
            self._assign_home(partition)
        move.is_cancelled = home.failure is None and target.failure is None

    def _assign_home(self, partition: Partition) -> asyncio.Future[bool]:
        """Tell the controller that a replica stays where it is, with its records unless that directory failed too."""
        home = self._partitions.home(partition)
        return self._assignments.assign(partition, home, kept_records=home.failure is None)

    async def _remove(self, move: Move) -> None:
        """Remove a future replica that is not wanted, after the controller knows that the replica stays."""
        partition = move.partition
        move.target.futures.pop(partition.name, None)
        if move.is_announced and self._is_here(partition):
            await self._assign_home(partition)
        if move.future is not None:
            move.future.log.close(clean=False)
        try:
            await self._work(partial(self._remove_directory, move.path))
        except FileNotFoundError:
            return
        except StorageError as error:
            logger.warning("cannot remove %s: %s", move.path, error)

    def _remove_directory(self, path: Path) -> None:
        """Remove a future replica. Blocks. What a crash leaves of it must not be taken for one to be filled further."""
        filesystem = self._env.filesystem
        target = path.with_name(deletion_directory_name(path.name, self._env.random.randbytes(16)))
        try:
            filesystem.rename(path, target)
            filesystem.sync_directory(target.parent)
        except StorageError as error:
            if not error.is_passing or not filesystem.exists(path):
                raise
            # The disk is full. It may also have dropped what could not be synced, so nothing here may be used again:
            # without a topic id a start takes none of it.
            filesystem.unlink(path / PARTITION_METADATA)
            target = path
        filesystem.remove_directory(target)
