"""This broker's replicas on disk: finding, creating and deleting them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.config.topic import TopicSettings
from penstock.core.lifecycle.compaction import max_segment_ms
from penstock.core.metadata.image import Image
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import Env
from penstock.runtime.logs.directories import LogDirectory, begin_use, forget_partition
from penstock.storage.files import StorageError
from penstock.storage.log import Log, LogSettings
from penstock.storage.metadata_files import read_partition_metadata, sync_partition_metadata, write_partition_metadata
from penstock.storage.names import deletion_directory_name

STRAY_SUFFIX = "-stray"

logger = logging.getLogger("penstock.runtime")


class Opened(NamedTuple):
    """A replica's log, its directory, and what its first sync must also do."""

    home: LogDirectory
    log: Log
    high_watermark: int
    owed: Callable[[], None] | None


class Placement(NamedTuple):
    """The location of a replica, existing or new, and its checkpoints."""

    env: Env
    name: TopicPartition
    topic_id: Uuid
    home: LogDirectory
    is_new: bool
    recovery_point: int
    start_offset: int
    high_watermark: int

    def open(self, settings: LogSettings) -> Opened:
        """Open the log, or create it. Blocks, and may be called in any thread."""
        filesystem, path = self.env.filesystem, self.home.path / str(self.name)
        if self.is_new:
            filesystem.make_directory(path)
            write_partition_metadata(filesystem, path, self.topic_id)

        def owed() -> None:
            sync_partition_metadata(filesystem, path)

        log = Log.open(
            filesystem,
            path,
            settings,
            recovery_point=self.recovery_point,
            clean=self.home.clean or self.is_new,
            now_ms=self.env.now_ms(),
            start_offset=self.start_offset,
            lost_power=self.home.lost_power,
        )
        # The checkpoint may be past the end of a truncated log, and before the start of one with deleted records.
        high_watermark = max(log.local_start_offset, min(self.high_watermark, log.end_offset))
        # A killed process may have created the directory and died before its first sync.
        is_durable = self.home.clean or self.recovery_point > 0
        return Opened(self.home, log, high_watermark, None if is_durable and not self.is_new else owed)


class ReplicaStore:
    """The replicas in this broker's data directories."""

    def __init__(self, env: Env, directories: Sequence[LogDirectory]) -> None:
        self._env = env
        self.directories = directories
        # The topic ids of the directories that were here at the start.
        self._owners: dict[TopicPartition, Uuid] = {}

    def begin_use(self) -> None:
        """Start using the directories: crash detection starts, and leftovers of deleted replicas are removed."""
        for directory in self.directories:
            begin_use(self._env, directory)

    def place(self, name: TopicPartition, topic_id: Uuid, wanted: Uuid | None) -> Placement:
        """The location of a replica; a new one goes into the directory with the id `wanted`, or the emptiest one.

        A cordoned directory gets one only if no other directory works: the controller chose this broker then.
        """
        if self._owners.pop(name, topic_id) != topic_id:
            # Its topic was deleted before this replica was opened, and a new topic has the same name.
            self.remove_unopened(name)
        home = self._home_of(name)
        is_new = home is None
        if home is None:
            home = self._directory(wanted) or self._emptiest()
            forget_partition(self._env, home, name)
        return Placement(
            self._env,
            name,
            topic_id,
            home,
            is_new,
            home.recovery_points.get(name, 0),
            home.start_offsets.get(name, 0),
            home.high_watermarks.get(name, 0),
        )

    def remove(self, name: TopicPartition, log: Log) -> None:
        """Rename an open replica's directory at once and delete it later, so that a crash leaves no partial replica."""
        try:
            target = log.delete_directory(self._env.random.randbytes(16), durable=False)
        except (StorageError, FileNotFoundError) as error:
            logger.error("cannot remove %s: %s", name, error)
            return
        self._env.spawn(self._unlink(target), f"remove {target.name}")

    def remove_unopened(self, name: TopicPartition) -> None:
        """Move what is on disk of a replica that never opened out of the way of one with the same name."""
        home = self._home_of(name)
        if home is None:
            return
        home.found.discard(name)
        target = home.path / deletion_directory_name(str(name), self._env.random.randbytes(16))
        try:
            self._env.filesystem.rename(home.path / str(name), target)
        except (StorageError, FileNotFoundError) as error:
            logger.error("cannot remove %s: %s", name, error)
            return
        self._env.spawn(self._unlink(target), f"remove {target.name}")

    def set_strays_aside(self, image: Image, node_id: int) -> None:
        """Rename and keep directories that the metadata does not place here."""
        for directory in self.directories:
            for name in sorted(directory.found):
                path = directory.path / str(name)
                topic_id = read_partition_metadata(self._env.filesystem, path)
                topic = image.topics_by_id.get(topic_id) if topic_id is not None else None
                if topic is not None and topic.name == name.topic:
                    known = image.partition(*name)
                    if known is None or node_id in known.replicas:
                        self._owners[name] = topic.topic_id
                        continue
                directory.found.discard(name)
                aside = path.with_name(f"{path.name}.{self._env.random.randbytes(16).hex()}{STRAY_SUFFIX}")
                self._env.filesystem.rename(path, aside)
                reason = "belongs to no topic of this cluster" if topic is None else "was moved to other brokers"
                logger.warning("%s %s; it is kept as %s", path, reason, aside.name)

    def _home_of(self, name: TopicPartition) -> LogDirectory | None:
        return next((directory for directory in self.directories if name in directory.found), None)

    def _directory(self, directory_id: Uuid | None) -> LogDirectory | None:
        for directory in self.directories:
            if directory.directory_id == directory_id and directory.failure is None and not directory.is_cordoned:
                return directory
        return None

    def _emptiest(self) -> LogDirectory:
        working = [directory for directory in self.directories if directory.failure is None]
        if not working:
            raise StorageError("every data directory of this broker has failed")
        return min(working, key=lambda directory: (directory.is_cordoned, len(directory.partitions)))

    async def _unlink(self, path: Path) -> None:
        def remove() -> None:
            self._env.filesystem.sync_directory(path.parent)
            self._env.filesystem.remove_directory(path)

        try:
            await self._env.run_blocking(remove)
        except StorageError as error:
            logger.error("cannot remove %s, the next start tries again: %s", path, error)


def log_settings(settings: TopicSettings) -> LogSettings:
    """The log's part of a topic's settings."""
    segment_ms = settings.segment_ms
    if settings.compacts:
        # Only rolled segments are compacted, so max.compaction.lag.ms limits a segment's age.
        segment_ms = max_segment_ms(segment_ms, settings.max_compaction_lag_ms)
    return LogSettings(
        segment_bytes=settings.segment_bytes,
        segment_ms=segment_ms,
        segment_jitter_ms=settings.segment_jitter_ms,
        index_interval_bytes=settings.index_interval_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        preallocate=settings.preallocate,
        flush_messages=settings.flush_messages,
        flush_ms=settings.flush_ms,
        file_delete_delay_ms=settings.file_delete_delay_ms,
        tiered=settings.remote_storage_enable,
    )
