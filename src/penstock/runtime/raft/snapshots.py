"""Taking snapshots of the metadata log.

A snapshot is not written from the live image, which would have to stay unchanged meanwhile, but from the last snapshot
and the log since: a worker replays both into an image of its own and writes that. The event loop only reads the log's
bytes for it; besides time it costs the memory of a second image until it is written.

A last snapshot that has become unreadable is replaced by one of the live image: until then no node could start from it,
and followers that are far behind could not catch up. A disk that fails meanwhile fails the metadata log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.core.metadata.image import Image
from penstock.core.raft.voters import VoterSet
from penstock.runtime.env import Env
from penstock.runtime.logs.sync import LogSync
from penstock.runtime.raft.applied_image import AppliedImage, replay_all
from penstock.runtime.raft.metadata_files import (
    DamagedMetadata,
    SnapshotId,
    decode_batches,
    read_snapshot,
    write_snapshot,
)
from penstock.runtime.raft.metadata_log import BATCH_BYTES_MAX, READ_BYTES, MetadataLog
from penstock.runtime.raft.turns import Turns
from penstock.storage.files import Filesystem, StorageError
from penstock.wire.records import split_batches

logger = logging.getLogger("penstock.metadata")


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """Everything needed to write a snapshot."""

    directory: Path
    base: SnapshotId | None
    entries: tuple[bytes, ...]
    snapshot: SnapshotId
    kraft_version: int
    voters: VoterSet | None
    now_ms: int
    # The records of the snapshot themselves, where the base cannot be read.
    records: tuple[object, ...] | None = None

    def write(self, filesystem: Filesystem) -> None:
        """Write the snapshot; blocking."""
        write_snapshot(
            filesystem,
            self.directory,
            self.snapshot,
            self._replayed(filesystem) if self.records is None else self.records,
            self.now_ms,
            kraft_version=self.kraft_version,
            voters=self.voters,
        )

    def _replayed(self, filesystem: Filesystem) -> Iterator[object]:
        image = Image()
        if self.base is not None:
            replay_all(image, read_snapshot(filesystem, self.directory, self.base))
        base_offset = self.base.end_offset if self.base is not None else 0
        for data in self.entries:
            batches = decode_batches(data, self.directory)
            replay_all(image, (batch for batch in batches if batch.next_offset > base_offset))
        return image.snapshot()


class SnapshotTaker:
    """Writes one snapshot at a time, after a number of applied bytes or an interval (0 for never)."""

    def __init__(
        self,
        env: Env,
        log: MetadataLog,
        applied: AppliedImage,
        turns: Turns,
        interval_bytes: int,
        interval_ms: int,
        failed: Callable[[StorageError], object],
    ) -> None:
        self._env = env
        self._log = log
        self._applied = applied
        self._turns = turns
        self._interval_bytes = interval_bytes
        self._interval_ms = interval_ms
        self._failed = failed
        self._is_base_damaged = False
        self._last_ms = env.monotonic_ms()
        self._work: asyncio.Future[None] | None = None
        self._stopped = False

    def take(self) -> None:
        """Write a snapshot of everything applied now, and delete what it makes superfluous."""
        self._applied.bytes_since_snapshot = 0
        self._log.log.flush()
        plan = self._plan(self._applied.applied_offset)
        if plan is not None:
            plan.write(self._env.filesystem)
            self._finish(plan)

    def begin_if_due(self, sync: LogSync) -> None:
        """Have a worker write one if it is due, as soon as what is applied is durable here.

        A snapshot must not outlive the entries it replaces: those may be on other voters' disks only.
        """
        if self._is_due():
            self._applied.bytes_since_snapshot = 0
            self._last_ms = self._env.monotonic_ms()
            sync.durable(self._applied.applied_offset).add_done_callback(
                lambda durable: self._turns.run(partial(self._begin, durable))
            )

    def _is_due(self) -> bool:
        applied_bytes = self._applied.bytes_since_snapshot
        is_old = 0 < self._interval_ms <= self._env.monotonic_ms() - self._last_ms
        return applied_bytes >= self._interval_bytes or (is_old and applied_bytes > 0)

    def _begin(self, durable: asyncio.Future[None]) -> None:
        if durable.cancelled() or durable.exception() is not None or self._stopped or self._work is not None:
            return
        try:
            plan = self._plan(min(self._applied.applied_offset, self._log.log.flushed_offset))
        except StorageError as error:
            self._unwritten(error)
            return
        if plan is not None:
            self._work = self._env.run_blocking(lambda: plan.write(self._env.filesystem))
            self._work.add_done_callback(lambda done: self._turns.run(partial(self._written, plan, done)))

    async def stop(self) -> None:
        """Start no more, and wait for the one being written."""
        self._stopped = True
        if self._work is not None:
            await asyncio.wait([self._work])
        async with self._turns.hold():
            # What was written has been noted by now.
            return

    def _plan(self, applied_offset: int) -> SnapshotPlan | None:
        log = self._log
        base = log.snapshots[-1] if log.snapshots else None
        offset = base.end_offset if base is not None else 0
        if applied_offset <= offset:
            return None
        epoch = max(0, log.start().epoch, log.log.epochs.epoch_for_offset(applied_offset - 1))
        version, voters = log.history.at(applied_offset)
        snapshot, now_ms = SnapshotId(applied_offset, epoch), self._env.now_ms()
        if self._is_base_damaged:
            if applied_offset != self._applied.applied_offset:
                # The live image has more than is durable here; the next call may find them equal.
                self._applied.bytes_since_snapshot = self._interval_bytes
                return None
            records = tuple(self._applied.image.snapshot())
            return SnapshotPlan(log.directory, None, (), snapshot, version, voters, now_ms, records)
        entries = []
        while offset < applied_offset:
            entries.append(log.read(offset, READ_BYTES, offset_max=applied_offset))
            offset = max(offset, split_batches(entries[-1], BATCH_BYTES_MAX)[-1][1].next_offset)
        return SnapshotPlan(log.directory, base, tuple(entries), snapshot, version, voters, now_ms)

    def _written(self, plan: SnapshotPlan, done: asyncio.Future[None]) -> None:
        self._work = None
        if done.cancelled():
            return
        error = done.exception()
        try:
            if error is not None:
                raise error
            if plan.snapshot.end_offset > self._log.snapshot().offset:
                self._finish(plan)
        except DamagedMetadata as damage:
            logger.error("the last metadata snapshot is damaged and will be replaced by a new one: %s", damage)
            self._is_base_damaged = True
            self._applied.bytes_since_snapshot = self._interval_bytes
        except StorageError as problem:
            self._unwritten(problem)

    def _unwritten(self, error: StorageError) -> None:
        """Try again later if the disk is only full, or too many files are open; a failing disk fails the log."""
        if not error.is_passing:
            self._failed(error)
            return
        logger.error("cannot write a metadata snapshot, the log is kept until it can be written: %s", error)
        self._applied.bytes_since_snapshot = self._interval_bytes // 2

    def _finish(self, plan: SnapshotPlan) -> None:
        logger.info("wrote metadata snapshot %s", plan.snapshot.file_name)
        self._is_base_damaged = False
        self._log.snapshot_taken(plan.snapshot)
