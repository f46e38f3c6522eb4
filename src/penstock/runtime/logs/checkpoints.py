"""Writes the checkpoint files of a data directory, off the event loop.

A directory's `LogDirectory` has what the files are to contain: for each replica in it, also one that could not be
opened, the recovery point, the log start offset, the high watermark, and how far it is compacted. An entry is changed
at once; `write` makes all of them durable. Requests that come during a write share the next one, and a file that has
not changed is not written. What depends on a checkpoint waits for it:

* Before anything is appended to a truncated log, its entries must be no larger than where it was cut. Otherwise a crash
  could tear what is appended where the checkpoint has it as durable and clean.
* Before the segments of a tiered log that were deleted leave the disk, its start offset must be past them.
* Before a replica is created, no entry of a former one of the same name may be left.

An error that passes, such as a full disk, is reported to those who wait, and the write is repeated until it succeeds.
Any other fails the directory: what it holds is in doubt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial

from penstock.core.backoff import pause_after
from penstock.model.ids import TopicPartition
from penstock.runtime.env import Env
from penstock.runtime.logs.directories import LogDirectory
from penstock.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    write_offsets,
)
from penstock.storage.files import StorageError

BACKOFF_FIRST_MS = 100
BACKOFF_MAX_MS = 10_000
STALLED_MS = 500

logger = logging.getLogger("penstock.runtime")

Offsets = dict[TopicPartition, int]


class CheckpointWriter:
    """The checkpoint files of one directory; nothing else writes them."""

    def __init__(
        self,
        env: Env,
        directory: LogDirectory,
        fail: Callable[[LogDirectory, StorageError], None],
        on_starts_durable: Callable[[LogDirectory, Mapping[TopicPartition, int]], None],
    ) -> None:
        """`fail` takes a directory offline; `on_starts_durable` learns the log start offsets that became durable."""
        self._env = env
        self._directory = directory
        self._fail = fail
        self._on_starts_durable = on_starts_durable
        # The content of each file: what it has, and what it may have while it is being written.
        self._written: dict[str, Offsets] = {name: dict(offsets) for name, offsets in self._wanted().items()}
        self._writing: dict[str, Offsets] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._is_running = False
        self._writing_since_ms: int | None = None
        # What was being deleted when the last run stopped has entries and no directory.
        known = directory.found | directory.found_futures.keys() | directory.partitions
        for offsets in self._wanted().values():
            for name in offsets.keys() - known:
                del offsets[name]

    def _wanted(self) -> dict[str, Offsets]:
        directory = self._directory
        return {
            RECOVERY_POINTS: directory.recovery_points,
            LOG_START_OFFSETS: directory.start_offsets,
            HIGH_WATERMARKS: directory.high_watermarks,
            CLEANER_OFFSETS: directory.clean_offsets,
        }

    def note(self, name: TopicPartition, recovery_point: int, start_offset: int, high_watermark: int) -> None:
        """Change a replica's entries, which the next write has."""
        directory = self._directory
        directory.recovery_points[name] = recovery_point
        directory.high_watermarks[name] = high_watermark
        if start_offset:
            directory.start_offsets[name] = start_offset
        else:
            directory.start_offsets.pop(name, None)

    def note_clean(self, name: TopicPartition, offset: int | None) -> None:
        """Change how far a log is compacted; None for not at all."""
        if offset is None:
            self._directory.clean_offsets.pop(name, None)
        else:
            self._directory.clean_offsets[name] = offset

    def lower(self, name: TopicPartition, offset: int) -> bool:
        """A log was truncated: what it has from `offset` on is neither durable nor committed nor compacted.

        Returns whether that changes an entry.
        """
        directory = self._directory
        changed = False
        for offsets in (directory.recovery_points, directory.high_watermarks, directory.clean_offsets):
            if offsets.get(name, 0) > offset:
                offsets[name] = offset
                changed = True
        return changed

    def forget(self, name: TopicPartition) -> None:
        """A replica is gone: its entries mean nothing to a new one of the same name."""
        for offsets in self._wanted().values():
            offsets.pop(name, None)

    def has_stale(self, name: TopicPartition) -> bool:
        """Whether the files still have, or may have, an entry that was forgotten."""
        return any(
            name not in offsets and (name in self._written[file] or name in self._writing.get(file, ()))
            for file, offsets in self._wanted().items()
        )

    @property
    def is_stalled(self) -> bool:
        """Whether a file is being written for longer than a disk takes that works."""
        return self._writing_since_ms is not None and self._env.monotonic_ms() - self._writing_since_ms > STALLED_MS

    def write(self) -> asyncio.Future[None]:
        """A future that completes when all entries are durable as they are now, or fails with a StorageError.

        It need not be awaited: the entries are written all the same.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        self._wake.set()
        if not self._is_running:
            self._is_running = True
            self._env.spawn(self._run(), f"checkpoints of {self._directory.path}")
        return future

    async def _run(self) -> None:
        waiters: list[asyncio.Future[None]] = []
        try:
            failures = 0
            while self._waiters or failures:
                self._wake.clear()
                waiters, self._waiters = self._waiters, []
                error = await self._attempt()
                if error is None:
                    failures = 0
                elif error.is_passing and self._directory.failure is None:
                    failures += 1
                else:
                    _settle([*waiters, *self._waiters], error)
                    self._waiters = []
                    return
                _settle(waiters, error)
                if error is not None:
                    backoff_ms = pause_after(failures, BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
                    logger.warning("a checkpoint will be written again: %s", error.message)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), backoff_ms / 1000)
        except Exception as error:
            # Those that wait must not wait for ever.
            _settle([*waiters, *self._waiters], StorageError(f"checkpoints cannot be written: {error!r}"))
            self._waiters = []
            raise
        finally:
            self._is_running = False

    async def _attempt(self) -> StorageError | None:
        """Write the files that have changed. An error that does not pass fails the directory."""
        directory = self._directory
        for file, wanted in self._wanted().items():
            if directory.failure is not None:
                return directory.failure
            if wanted == self._written[file] and file not in self._writing:
                continue
            content = self._writing[file] = dict(wanted)
            path = directory.path / file
            self._writing_since_ms = self._env.monotonic_ms()
            try:
                await self._env.run_blocking(partial(write_offsets, self._env.filesystem, path, content))
            except (StorageError, FileNotFoundError) as error:
                reason = error if isinstance(error, StorageError) else StorageError(f"{path} has no directory any more")
                if not reason.is_passing:
                    self._fail(directory, reason)
                return reason
            finally:
                self._writing_since_ms = None
            before, self._written[file] = self._written[file], content
            del self._writing[file]
            if file == LOG_START_OFFSETS:
                moved = {name: start for name, start in content.items() if before.get(name) != start}
                self._on_starts_durable(directory, moved)
        return None


def _settle(waiters: list[asyncio.Future[None]], error: StorageError | None) -> None:
    for future in waiters:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
            # It need not be awaited.
            future.exception()
