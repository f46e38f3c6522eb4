"""Compaction: finds the log that needs it most and cleans it, one at a time.

The reading, hashing and writing happen in a separate process (`storage/compaction/worker`), so that neither the GIL nor
the event loop is held up; only renames happen here. If no process can be started, a worker thread does it. A log that
cannot be cleaned is skipped with a log message, and the others are still cleaned.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable

from penstock.config.node import NodeSettings
from penstock.core.lifecycle.compaction import (
    INT64_MAX,
    CompactionPlan,
    CompactionSettings,
    first_dirty_offset,
    max_segment_ms,
    plan_compaction,
)
from penstock.model.errors import ApiError
from penstock.model.ids import TopicPartition
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.compaction.clean import Compaction, CompactionError, CompactionJob, CompactionReport
from penstock.storage.compaction.swap import CleanedSegment, SegmentSwap
from penstock.storage.compaction.worker import MODULE, Pacer, decode_answer, encode_job
from penstock.storage.files import CorruptLogError, OsFilesystem, StorageError
from penstock.storage.log import Log

PARTITIONS_PER_TURN = 64
# How long a swap waits that found no descriptors, or no space.
RETRY_S = 0.5

logger = logging.getLogger("penstock.cleaner")


class CleanerCounters:
    """Totals of all cleanings."""

    __slots__ = ("bytes_read", "bytes_written", "runs", "seconds")

    def __init__(self) -> None:
        self.runs = 0
        self.seconds = 0.0
        self.bytes_read = 0
        self.bytes_written = 0

    def cleaned(self, report: CompactionReport, seconds: float) -> None:
        """A log was cleaned."""
        self.runs += 1
        self.seconds += seconds
        self.bytes_read += report.bytes_read
        self.bytes_written += report.bytes_written


class Cleaner:
    """Cleans compacted logs. `uncleanable` has the reasons why partitions are skipped until the next start."""

    def __init__(self, env: Env, partitions: Partitions, settings: Callable[[], NodeSettings]) -> None:
        self._env = env
        self._partitions = partitions
        self._settings = settings
        # By partition, when the last of the tombstones in its clean part may be removed.
        self._horizons: dict[TopicPartition, int] = {}
        self.uncleanable: dict[TopicPartition, str] = {}
        self.counters = CleanerCounters()
        partitions.on_removed(self._forget)
        # What was copied while a log was being cleaned is not all clean.
        partitions.on_moved(self._forget_everywhere)

    def start(self) -> None:
        """Start cleaning, unless log.cleaner.enable is false."""
        if self._settings().log_cleaner_enable:
            keep_running(self._env, self._run, "compaction")

    async def _run(self) -> None:
        while True:
            if not await self.clean_dirtiest():
                await asyncio.sleep(self._settings().log_cleaner_backoff_ms / 1000)

    async def clean_dirtiest(self) -> bool:
        """Clean the log that needs it most; False if there is none or it failed."""
        chosen = await self._choose()
        if chosen is None or not self._may_clean(chosen[0]):
            return False
        partition, plan = chosen
        try:
            return await self._clean(partition, self._job(partition, plan))
        except CompactionError as error:
            if self._is_here(partition):
                self._give_up(partition, error)
            return False

    def _give_up(self, partition: Partition, error: CompactionError) -> None:
        if error.is_passing:
            logger.warning("%s: compaction will be retried: %s", partition.name, error.message)
            return
        if error.is_disk_failure:
            self._partitions.fail_directory(self._partitions.home(partition), StorageError(error.message))
            return
        if error.is_damage:
            partition.on_damage(CorruptLogError(partition.log.directory, 0, error.message))
        self.uncleanable[partition.name] = error.message
        logger.error("%s is not compacted until the next restart: %s", partition.name, error.message)

    async def _choose(self) -> tuple[Partition, CompactionPlan] | None:
        best: tuple[Partition, CompactionPlan] | None = None
        for number, partition in enumerate(list(self._partitions)):
            if partition.settings.compacts and self._may_clean(partition) and partition.name not in self.uncleanable:
                plan = self._plan(partition)
                if plan is not None and plan.is_due and (best is None or plan.urgency > best[1].urgency):
                    best = partition, plan
            if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
        return best

    def _is_here(self, partition: Partition) -> bool:
        return self._partitions.get(*partition.name) is partition and not partition.log.is_failed

    def _may_clean(self, partition: Partition) -> bool:
        return self._is_here(partition) and partition.name not in self._partitions.moving

    def _plan(self, partition: Partition) -> CompactionPlan | None:
        """What can be cleaned in a log; None if nothing."""
        log, topic = partition.log, partition.settings
        now_ms = self._env.now_ms()
        has_deadline = topic.max_compaction_lag_ms < INT64_MAX
        try:
            if has_deadline:
                log.roll_if_due(now_ms, max_segment_ms(topic.segment_ms, topic.max_compaction_lag_ms))
            if log.segment_count == 1:
                return None
            # A truncation lowers it.
            clean_offset = self._partitions.home(partition).clean_offsets.get(partition.name)
            first_dirty = first_dirty_offset(clean_offset, log.start_offset, log.end_offset)
            horizon_ms = self._horizons.get(partition.name)
            return plan_compaction(
                log.segment_facts(),
                CompactionSettings(
                    topic.min_cleanable_dirty_ratio, topic.min_compaction_lag_ms, topic.max_compaction_lag_ms
                ),
                now_ms,
                first_dirty=first_dirty,
                last_stable_offset=partition.last_stable_offset,
                earliest_dirty_timestamp_ms=log.earliest_timestamp(first_dirty) if has_deadline else None,
                tombstones_expired=horizon_ms is not None and horizon_ms <= now_ms,
            )
        except (StorageError, FileNotFoundError) as error:
            self._give_up(partition, CompactionError.of(error))
            return None

    async def _clean(self, partition: Partition, job: CompactionJob) -> bool:
        log, generation = partition.log, partition.log.generation
        if not await self._make_durable(partition, job.segments[-1].end_offset):
            return False
        started_ms = self._env.monotonic_ms()
        report: CompactionReport | None = None
        async with contextlib.aclosing(work(self._env, job)) as answers:
            async for answer in answers:
                if isinstance(answer, CompactionReport):
                    report = answer
                elif partition.log is not log or not await self._swap(partition, answer, generation):
                    return False
        assert report is not None, "the report comes last"
        logger.info(
            "%s: compacted up to offset %d: %d of %d records kept, %d of %d bytes",
            partition.name,
            report.end_offset,
            report.records_kept,
            report.records_read,
            report.bytes_written,
            report.bytes_read,
        )
        if report.batches_oversized:
            logger.warning(
                "%s: %d batches grew past max.message.bytes when their tombstones got a delete horizon",
                partition.name,
                report.batches_oversized,
            )
        self.counters.cleaned(report, (self._env.monotonic_ms() - started_ms) / 1000)
        self._note(partition, log, report, generation)
        return True

    async def _make_durable(self, partition: Partition, end_offset: int) -> bool:
        """Record that everything before an offset is on disk; False if that is not possible.

        Cleaning leaves gaps. After the recovery point, recovery takes a gap for data lost in a power failure.
        """
        try:
            await partition.sync.durable(end_offset)
            if not self._is_here(partition) or partition.is_truncating:
                return False
            await self._partitions.note_progress(partition).write()
        except StorageError as error:
            self._fail_unless_passing(partition, error)
            return False
        except ApiError:
            # The partition was closed, deleted, or became a follower; it will be checked again.
            return False
        return self._is_here(partition)

    def _fail_unless_passing(self, partition: Partition, error: StorageError) -> None:
        if self._is_here(partition) and not error.is_passing:
            self._partitions.fail_directory(self._partitions.home(partition), error)

    def _job(self, partition: Partition, plan: CompactionPlan) -> CompactionJob:
        log, topic, node = partition.log, partition.settings, self._settings()
        try:
            facts = log.segment_facts()
        except (StorageError, FileNotFoundError) as error:
            raise CompactionError.of(error) from error
        return CompactionJob(
            directory=str(log.directory),
            segments=tuple(segment for segment in facts if segment.end_offset <= plan.end_offset),
            later_segments=tuple(segment for segment in facts if segment.end_offset > plan.end_offset),
            first_dirty_offset=plan.first_dirty_offset,
            now_ms=self._env.now_ms(),
            delete_retention_ms=topic.delete_retention_ms,
            segment_bytes=topic.segment_bytes,
            index_interval_bytes=topic.index_interval_bytes,
            max_message_bytes=topic.max_message_bytes,
            map_bytes_max=node.log_cleaner_dedupe_buffer_size,
            seed=self._env.random.randbytes(16),
            producers=tuple(
                (entry.producer_id, entry.last_offset, entry.producer_epoch)
                for entry in log.producers.entries
                if entry.last_offset < plan.end_offset
            ),
            bytes_per_second_max=node.log_cleaner_io_max_bytes_per_second,
        )

    async def _swap(self, partition: Partition, cleaned: CleanedSegment, generation: int) -> bool:
        """Replace segments by a cleaned one; False if the log has changed and the cleaning must start again."""
        log = partition.log
        if not self._may_clean(partition):
            return False
        try:
            swap = log.begin_swap(cleaned, generation)
            return swap is not None and await self._carry_out(log, swap)
        except FileNotFoundError as error:
            raise CompactionError(f"{log.directory} is gone", is_passing=True) from error
        except StorageError as error:
            if partition.log is log:
                self._fail_unless_passing(partition, error)
            return False

    async def _carry_out(self, log: Log, swap: SegmentSwap) -> bool:
        async def sync() -> bool:
            await self._env.run_blocking(swap.sync)
            return True

        async def apply() -> bool:
            return log.apply_swap(swap, self._env.now_ms())

        async def finish() -> bool:
            log.finish_swap(swap)
            return True

        for step in (sync, apply, sync, finish):
            if not await self._taken(log, step):
                return False
        return True

    @staticmethod
    async def _taken(log: Log, step: Callable[[], Awaitable[bool]]) -> bool:
        """Take a step of a swap, on a full disk or without descriptors again and again: none may stay half done."""
        while True:
            try:
                return await step()
            except StorageError as error:
                if not error.is_passing or log.is_failed:
                    raise
                logger.warning("a cleaned segment of %s waits for its name: %s", log.directory, error.message)
                await asyncio.sleep(RETRY_S)

    def _note(self, partition: Partition, log: Log, report: CompactionReport, generation: int) -> None:
        """Record how far a log is clean, and remember when the last of its tombstones may go."""
        if not self._is_here(partition) or partition.log is not log or log.generation != generation:
            return
        name = partition.name
        self._horizons.pop(name, None)
        if report.latest_horizon_ms >= 0:
            self._horizons[name] = report.latest_horizon_ms
        checkpoints = self._partitions.checkpoints(self._partitions.home(partition))
        checkpoints.note_clean(name, report.end_offset)
        # Without it these records are read once more than necessary after a restart.
        checkpoints.write()

    def _forget(self, partition: Partition) -> None:
        """A topic of the same name starts with a dirty log, also after a restart."""
        self._horizons.pop(partition.name, None)
        self.uncleanable.pop(partition.name, None)

    def _forget_everywhere(self, partition: Partition) -> None:
        self._forget(partition)
        for home in self._partitions.directories:
            if home.failure is None and home.clean_offsets.pop(partition.name, None) is not None:
                self._partitions.checkpoints(home).write()


async def work(env: Env, job: CompactionJob) -> AsyncGenerator[CleanedSegment | CompactionReport, None]:
    """Clean in a process, or in a thread if the disk is simulated or no process starts; the report comes last.

    Raises CompactionError.
    """
    process = None
    if isinstance(env.filesystem, OsFilesystem):
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                MODULE,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            logger.warning("cannot start a process for compaction, using a thread: %s", error)
    answers = _work_in_thread(env, job) if process is None else _work_in_process(process, job)
    async with contextlib.aclosing(answers):
        async for answer in answers:
            yield answer


async def _work_in_process(
    process: asyncio.subprocess.Process, job: CompactionJob
) -> AsyncGenerator[CleanedSegment | CompactionReport, None]:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(encode_job(job))
        while True:
            line = await process.stdout.readline()
            if not line:
                raise CompactionError(f"the process ended with code {await process.wait()}")
            answer = decode_answer(line)
            yield answer
            if isinstance(answer, CompactionReport):
                return
            process.stdin.write(b"\n")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.stdin.close()
        await process.wait()


async def _work_in_thread(env: Env, job: CompactionJob) -> AsyncGenerator[CleanedSegment | CompactionReport, None]:
    compaction = Compaction(job, env.filesystem, Pacer(job.bytes_per_second_max))
    cleaned = compaction.run()
    while True:
        answer = await env.run_blocking(lambda: next(cleaned, None))
        if answer is None:
            yield compaction.report
            return
        yield answer
