"""Scrubbing: the batches of closed segments are read again, at a bounded rate, and compared with their checksums.

A read by a client finds damage too, but only where there are readers; by then the other copies may be gone. Every data
directory is searched by a task of its own, in the order of the partitions' names. Where it is goes to a small file now
and then, so that a broker that restarts often gets to all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.config.node import NodeSettings
from penstock.model.ids import TopicPartition
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.logs.damage_search import find_damage
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.storage.checkpoint import SCRUB_OFFSET, CheckpointError, read_offsets, write_offsets
from penstock.storage.files import StorageError

# How often the position is written, and how often it is seen that scrubbing was turned on.
CHECKPOINT_MS = 30_000
IDLE_S = 5.0
PARTITIONS_PER_TURN = 64

logger = logging.getLogger("penstock.scrub")


class Scrubber:
    """Searches closed segments for damage. `bytes_checked` and `damage_found` count since the start."""

    def __init__(self, env: Env, partitions: Partitions, settings: Callable[[], NodeSettings]) -> None:
        self._env = env
        self._partitions = partitions
        self._settings = settings
        self._saved_ms: dict[Path, int] = {}
        self.bytes_checked = 0
        self.damage_found = 0

    def start(self) -> None:
        """Start searching every data directory."""
        for directory in self._partitions.directories:
            keep_running(self._env, partial(self._run, directory), f"scrub {directory.path}")

    async def _run(self, directory: LogDirectory) -> None:
        position: tuple[TopicPartition | None, int] | None = None
        while directory.failure is None:
            if self._rate <= 0:
                await asyncio.sleep(IDLE_S)
                continue
            if position is None:
                position = await self._saved_position(directory)
            started_ms = self._env.monotonic_ms()
            await self.scrub(directory, *position)
            position = None, 0
            interval_ms = self._settings().penstock_log_scrub_interval_ms
            left_ms = interval_ms - (self._env.monotonic_ms() - started_ms)
            await asyncio.sleep(max(left_ms, 1_000) / 1000)

    @property
    def _rate(self) -> float:
        return self._settings().penstock_log_scrub_bytes_per_second

    async def scrub(self, directory: LogDirectory, name: TopicPartition | None = None, offset: int = 0) -> None:
        """Check every closed segment of a directory once, from an offset of one partition on."""
        for number, each in enumerate(sorted(directory.partitions)):
            if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            if name is None or each >= name:
                await self._scrub_partition(directory, each, offset if each == name else 0)
        await self._save_position(directory, None, 0)

    async def _scrub_partition(self, directory: LogDirectory, name: TopicPartition, offset: int) -> None:
        while self._rate > 0 and directory.failure is None:
            partition = self._partitions.get(*name)
            if partition is None or name not in directory.partitions or partition.log.is_failed:
                return
            found = partition.log.closed_segment(offset)
            if found is None:
                return
            await self._save_position(directory, name, found[0])
            try:
                damage = await find_damage(self._env, partition.log, found[1], self._pace)
            except StorageError as error:
                self._failed(directory, error)
                return
            if damage is not None and self._partitions.get(*name) is partition:
                self._found(partition, str(damage))
                self._partitions.note_damage(partition, damage)
            offset = found[0] + 1

    def _found(self, partition: Partition, reason: str) -> None:
        self.damage_found += 1
        logger.error("%s: %s", partition.name, reason)

    async def _pace(self, size: int) -> None:
        self.bytes_checked += size
        left = float(size)
        # The rate may be changed meanwhile.
        while left > 0 and (rate := self._rate) > 0:
            pause_s = min(left / rate, IDLE_S)
            await asyncio.sleep(pause_s)
            left -= pause_s * rate

    async def _saved_position(self, directory: LogDirectory) -> tuple[TopicPartition | None, int]:
        path = directory.path / SCRUB_OFFSET
        try:
            saved = await self._env.run_blocking(partial(read_offsets, self._env.filesystem, path))
        except (StorageError, CheckpointError) as error:
            logger.warning("the search for damage starts from the beginning, as its position is lost: %s", error)
            return None, 0
        return next(iter(saved.items()), (None, 0))

    async def _save_position(self, directory: LogDirectory, name: TopicPartition | None, offset: int) -> None:
        """Note where to continue, unless that was done a moment ago. Without it more is checked than necessary."""
        now_ms = self._env.monotonic_ms()
        saved_ms = self._saved_ms.setdefault(directory.path, now_ms)
        if directory.failure is not None or now_ms - saved_ms < CHECKPOINT_MS:
            return
        self._saved_ms[directory.path] = now_ms
        content = {} if name is None else {name: offset}
        write = partial(write_offsets, self._env.filesystem, directory.path / SCRUB_OFFSET, content)
        try:
            await self._env.run_blocking(write)
        except StorageError as error:
            self._failed(directory, error)

    def _failed(self, directory: LogDirectory, error: StorageError) -> None:
        logger.warning("the search for damage in %s continues after an error: %s", directory.path, error)
        self._partitions.check_disk(error)
