"""Background work on logs: retention, flush deadlines, checkpoints, disk space, expired producers.

Each job is one function over all partitions, run at its own interval. Between partitions it yields to the event loop,
so that ten thousand of them do not hold up a single produce. A log that is being truncated is left alone until that is
done: its next step counts on the segments that the last one left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from penstock.config.node import NodeSettings
from penstock.config.tiering import local_limit
from penstock.core.lifecycle.retention import RetentionSettings, plan_local_retention, plan_retention
from penstock.core.tier.segments import NOTHING_COPIED
from penstock.model.ids import TopicPartition
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.logs.directories import LogDirectory, mark_clean, measure_space, set_full
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.tier.remote_logs import RemoteLogs
from penstock.storage.files import StorageError
from penstock.storage.settings import INT64_MAX

FLUSH_CHECK_MS = 250
DISK_CHECK_MS = 5_000
# Bounds the bytes after the recovery point, and so the work of recovery after a crash.
UNFLUSHED_BYTES_MAX = 64 * 1024 * 1024
UNNOTED_BYTES_MAX = 256 * 1024 * 1024
PARTITIONS_PER_TURN = 64

logger = logging.getLogger("penstock.housekeeping")


class Housekeeping:
    """Keeps logs within their limits."""

    def __init__(
        self,
        env: Env,
        partitions: Partitions,
        settings: Callable[[], NodeSettings],
        tier: RemoteLogs | None = None,
    ) -> None:
        self._env = env
        self._partitions = partitions
        self._settings = settings
        self._tier = tier
        # By partition, the bytes appended when its last sync was requested.
        self._flushed_bytes: dict[TopicPartition, int] = {}
        self._unnoted_bytes = 0
        partitions.on_removed(lambda partition: self._flushed_bytes.pop(partition.name, None))

    def start(self) -> None:
        """Begin all jobs."""
        settings = self._settings()
        self._every(settings.log_retention_check_interval_ms, self.retain_all, "retention")
        self._every(FLUSH_CHECK_MS, self.flush_due, "flush")
        self._every(DISK_CHECK_MS, self.watch_disks, "disk space")
        self._every(settings.log_flush_offset_checkpoint_interval_ms, self.request_checkpoints, "checkpoints")
        self._every(settings.producer_id_expiration_check_interval_ms, self.expire_producers, "producer expiry")
        # A changed retention takes effect at once.
        self._partitions.on_change(self.retain)

    def _every(self, interval_ms: int, job: Callable[[], Awaitable[None]], name: str) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                try:
                    await job()
                except StorageError as error:
                    logger.error("%s: %s", name, error)
                    self._partitions.check_disk(error)

        keep_running(self._env, repeat, name)

    async def _each(self, job: Callable[[Partition], object]) -> None:
        for number, partition in enumerate(list(self._partitions)):
            if self._can_work_on(partition):
                try:
                    job(partition)
                except (StorageError, FileNotFoundError) as error:
                    # The others still get their turn; on a full disk they make room.
                    self._failed(partition, error)
            if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)

    def _is_here(self, partition: Partition) -> bool:
        return self._partitions.get(*partition.name) is partition

    def _can_work_on(self, partition: Partition) -> bool:
        return self._is_here(partition) and not partition.log.is_failed and not partition.is_truncating

    def _failed(self, partition: Partition, error: StorageError | FileNotFoundError) -> None:
        """A full disk, a damaged segment or a lost file is seen to at the next interval, a broken disk at once."""
        logger.error("%s: %s", partition.name, error)
        if isinstance(error, StorageError):
            self._partitions.check_disk(error)

    async def retain_all(self) -> None:
        """Apply retention everywhere, and roll segments that have reached their maximum age."""
        now_ms = self._env.now_ms()
        await self._each(lambda partition: partition.log.roll_if_due(now_ms))
        await self._each(self.retain)

    def retain(self, partition: Partition) -> None:
        """Apply retention to one partition."""
        if partition.is_truncating:
            return
        log, settings = partition.log, partition.settings
        now_ms = self._env.now_ms()
        if settings.remote_storage_enable:
            self._trim(partition, now_ms)
            return
        wanted = RetentionSettings(settings.retention_ms, settings.retention_bytes, settings.deletes)
        is_empty = log.end_offset == log.start_offset
        if log.segment_count == 1 and (not log.size_bytes if is_empty else not settings.deletes):
            return
        try:
            plan = plan_retention(
                log.segment_facts(),
                wanted,
                now_ms,
                # Records of an open transaction are kept until it ends.
                high_watermark=partition.last_stable_offset,
                log_start_offset=log.start_offset,
            )
            if plan.delete:
                freed = log.delete_segments(plan, now_ms)
                logger.info("%s: retention freed %d bytes up to offset %d", partition.name, freed, log.start_offset)
            log.reap(now_ms)
        except (StorageError, FileNotFoundError) as error:
            self._failed(partition, error)

    def _trim(self, partition: Partition, now_ms: int, *, is_urgent: bool = False) -> None:
        """Apply local retention to a tiered partition: what was copied, and is old enough, leaves the disk.

        If it is urgent, whatever was copied does.
        """
        log, settings = partition.log, partition.settings
        copied = self._tier.copied_offset(partition) if self._tier is not None else NOTHING_COPIED
        local_ms = local_limit(settings.local_retention_ms, settings.retention_ms)
        local_bytes = local_limit(settings.local_retention_bytes, settings.retention_bytes)
        try:
            if local_ms >= 0 and not is_urgent:
                # Only what is rolled can be copied.
                log.roll_if_due(now_ms, local_ms)
            plan = plan_local_retention(
                log.segment_facts(),
                RetentionSettings(local_ms, 0 if is_urgent else local_bytes, settings.deletes),
                now_ms,
                high_watermark=partition.last_stable_offset,
                log_start_offset=log.start_offset,
                # What is no longer copied need not be.
                copied_offset=log.end_offset if settings.remote_log_copy_disable and not is_urgent else copied,
            )
            if plan.delete:
                if plan.start_offset > max(copied + 1, log.start_offset) and settings.remote_log_copy_disable:
                    # Between the tier and the disk will be a gap: the log begins after it.
                    log.advance_start_offset(plan.start_offset)
                freed = log.delete_segments(replace(plan, copied_offset=copied), now_ms)
                if freed:
                    logger.info("%s: %d bytes left the disk up to %d", partition.name, freed, log.local_start_offset)
                if log.start_offset > log.durable_start_offset:
                    # What is left of the plan can go once the start is durable.
                    self._partitions.note_progress(partition).write()
            log.reap(now_ms)
        except (StorageError, FileNotFoundError) as error:
            self._failed(partition, error)

    async def flush_due(self) -> None:
        """Sync the logs whose flush.ms has passed or that have too many unsynced bytes; sometimes write checkpoints."""

        def flush(partition: Partition) -> None:
            log = partition.log
            if log.end_offset == log.flushed_offset and not log.has_unsynced_segment:
                return
            unflushed = partition.appended_bytes - self._flushed_bytes.get(partition.name, 0)
            is_due = log.is_flush_due or partition.sync.is_older_than(log.settings.flush_ms)
            if is_due or unflushed > UNFLUSHED_BYTES_MAX or log.has_unsynced_segment:
                partition.sync.request()
                self._flushed_bytes[partition.name] = partition.appended_bytes
                self._unnoted_bytes += unflushed

        await self._each(flush)
        if self._unnoted_bytes > UNNOTED_BYTES_MAX:
            await self.request_checkpoints()

    async def watch_disks(self) -> None:
        """Check the disks' free space, make room on full ones, and remove deleted segments."""
        full_percent = self._settings().penstock_disk_full_percent
        for directory in self._partitions.directories:
            if directory.failure is not None:
                continue
            try:
                is_full = measure_space(self._env, directory, full_percent)
                if is_full:
                    await self._make_room(directory)
                    is_full = measure_space(self._env, directory, full_percent)
                set_full(self._env, directory, is_full)
            except StorageError as error:
                # Found here before a write would find it: other brokers can lead its partitions.
                self._partitions.fail_directory(directory, error)
        self._partitions.open_missing()
        now_ms = self._env.now_ms()
        await self._each(lambda partition: partition.log.reap(now_ms))

    async def _make_room(self, directory: LogDirectory) -> None:
        """On a full disk: drop what object storage has, then what retention would delete soon, without delay.

        What cannot be dropped is left to those who set the limits: writes are refused.
        """
        here = [partition for partition in self._partitions if partition.name in directory.partitions]
        before = sum(partition.log.size_bytes for partition in here)
        for job in (self._drop_tiered, self.retain):
            for number, partition in enumerate(here):
                if self._can_work_on(partition):
                    job(partition)
                    partition.log.reap(INT64_MAX)
                if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                    await asyncio.sleep(0)
        freed = before - sum(partition.log.size_bytes for partition in here)
        if freed > 0:
            logger.warning("the disk under %s is full: %d bytes were dropped", directory.path, freed)

    def _drop_tiered(self, partition: Partition) -> None:
        """Drop the local segments of which object storage has a finished copy."""
        if partition.settings.remote_storage_enable and self._tier is not None:
            self._trim(partition, self._env.now_ms(), is_urgent=True)

    async def request_checkpoints(self) -> None:
        """Have the checkpoints of every directory written, each at the speed of its disk."""
        await self._note_progress()
        for directory in self._working():
            # It fails the directory, or repeats what failed.
            self._partitions.checkpoints(directory).write()

    async def checkpoint_all(self) -> None:
        """Write the checkpoints of every directory. One that fails, and goes offline, does not affect the others."""
        await self._note_progress()
        writes = [self._partitions.checkpoints(directory).write() for directory in self._working()]
        for error in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(error, BaseException) and not isinstance(error, StorageError):
                raise error

    async def _note_progress(self) -> None:
        """Gather how far every log is. What could not be opened keeps the entries that it has."""
        self._unnoted_bytes = 0
        for number, partition in enumerate(list(self._partitions)):
            # Also of closed logs: at a shutdown these are the last checkpoints.
            if self._is_here(partition):
                self._partitions.note_progress(partition)
            if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
        for directory in self._working():
            writer = self._partitions.checkpoints(directory)
            for name, future in directory.futures.items():
                # Its start and high watermark are those of the replica from just before it takes its place.
                start_offset = max(future.start_offset, directory.start_offsets.get(name, 0))
                writer.note(name, future.flushed_offset, start_offset, directory.high_watermarks.get(name, 0))

    def _working(self) -> list[LogDirectory]:
        return [directory for directory in self._partitions.directories if directory.failure is None]

    async def settle_deletions(self, partitions: list[Partition]) -> None:
        """Make moved log start offsets durable, and delete the segments before them. Raises StorageError.

        Partitions that were removed meanwhile have nothing to settle.
        """
        here = [partition for partition in partitions if self._is_here(partition)]
        writers = {id(writer): writer for writer in map(self._partitions.note_progress, here)}
        await asyncio.gather(*(writer.write() for writer in writers.values()))
        for partition in here:
            if self._can_work_on(partition):
                self.retain(partition)

    async def expire_producers(self) -> None:
        """Remove producers that have been idle for producer.id.expiration.ms."""
        now_ms = self._env.now_ms()
        age_ms = self._settings().producer_id_expiration_ms
        for number, partition in enumerate(list(self._partitions)):
            if self._can_work_on(partition):
                for _ in partition.log.producers.expire_in_turns(now_ms, age_ms):
                    await asyncio.sleep(0)
                    if not self._can_work_on(partition):
                        break
            if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)

    async def finish(self, broker_epoch: int) -> None:
        """The last step of a clean shutdown: checkpoints, then the clean-shutdown marker.

        Without the marker the next start checks every log, as it must if one was not opened or not closed.
        """
        await self._note_progress()
        for directory in self._working():
            try:
                await self._partitions.checkpoints(directory).write()
                if self._partitions.are_all_open:
                    await self._env.run_blocking(partial(mark_clean, self._env, directory, broker_epoch))
            except StorageError as error:
                logger.error("%s could not be marked clean, the next start checks it: %s", directory.path, error)
                self._partitions.check_disk(error)
