"""This broker's replicas on disk: finding, creating and deleting them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.config.topic import TopicSettings
from penstock.core.lifecycle.compaction import max_segment_ms
from penstock.core.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, Image
from penstock.core.replica.directory_move import FoundLog, settle
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import Env
from penstock.runtime.logs.checkpoints import CheckpointWriter
from penstock.runtime.logs.directories import LogDirectory, begin_use, choose_home
from penstock.storage.files import StorageError
from penstock.storage.log import Log, LogSettings
from penstock.storage.metadata_files import read_partition_metadata, sync_partition_metadata, write_partition_metadata
from penstock.storage.names import deletion_directory_name, stray_directory_name

Key = tuple[Uuid, int]

logger = logging.getLogger("penstock.runtime")


class Opened(NamedTuple):
    """A replica's log, its directory, and what its first sync must also do.

    `is_whole` is whether it was here before, and has everything that was durable.
    """

    home: LogDirectory
    log: Log
    high_watermark: int
    owed: Callable[[], None] | None
    is_whole: bool


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
        # A killed process may have created the directory and died before its first sync.
        is_durable = not self.is_new and (self.home.clean or self.recovery_point > 0)
        if self.is_new:
            filesystem.make_directory(path)
        if self.is_new or (self.home.failed_before and not is_durable):
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
            stayed_up=self.home.stayed_up,
            rewrites_from=self.recovery_point if self.home.failed_before else None,
        )
        # The checkpoint may be past the end of a truncated log, and before the start of one with deleted records.
        high_watermark = max(log.local_start_offset, min(self.high_watermark, log.end_offset))
        is_whole = not self.is_new and self.home.knows_recovery_points and log.end_offset >= self.recovery_point
        return Opened(self.home, log, high_watermark, None if is_durable else owed, is_whole)


class ReplicaStore:
    """The replicas in this broker's data directories."""

    def __init__(
        self,
        env: Env,
        directories: Sequence[LogDirectory],
        checkpoints: Callable[[LogDirectory], CheckpointWriter],
        check_disk: Callable[[StorageError], None],
    ) -> None:
        """`check_disk` takes a directory offline if an error shows that its disk is broken."""
        self._env = env
        self.directories = directories
        self._checkpoints = checkpoints
        self._check_disk = check_disk
        # The topic ids of the directories that were here at the start.
        self._owners: dict[TopicPartition, Uuid] = {}
        # Replicas that a data directory has which cannot be read: another one must not begin without their records.
        self._lost: dict[TopicPartition, Uuid] = {}
        # The directories that were chosen for replicas which this broker does not have yet.
        self._preferred: dict[TopicPartition, Uuid] = {}

    def begin_use(self) -> None:
        """Start using the directories: crash detection starts, and leftovers of deleted replicas are removed."""
        for directory in self.directories:
            if directory.failure is None:
                begin_use(self._env, directory)

    def prefer(self, name: TopicPartition, directory: LogDirectory) -> None:
        """Create this replica there, if it comes to this broker."""
        self._preferred[name] = directory.directory_id

    def place(self, name: TopicPartition, topic_id: Uuid, wanted: Uuid, settings: LogSettings) -> Placement:
        """The location of a replica. A new one goes where it was requested, or into the directory with the id
        `wanted`, or where there is the most space.

        A cordoned directory gets one only if no other directory works: the controller chose this broker then. Raises
        StorageError for a replica that a failed directory has.
        """
        if self._owners.get(name, topic_id) != topic_id:
            # Its topic was deleted before this replica was opened, and a new topic has the same name.
            self.remove_unopened(name)
        self._owners.pop(name, None)
        if self._lost.get(name) == topic_id:
            raise StorageError(f"{name} is in a data directory that failed")
        home = self._settled_home(name, wanted, settings)
        is_new = home is None
        if home is not None and home.failure is not None:
            raise home.failure
        if home is None:
            preferred = self._preferred.get(name)
            home = self._directory(preferred) or self._directory(wanted) or self._choose_home()
            checkpoints = self._checkpoints(home)
            checkpoints.forget(name)
            if not checkpoints.has_stale(name):
                # Otherwise it is placed once more.
                self._preferred.pop(name, None)
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

    def remove(self, name: TopicPartition, topic_id: Uuid, home: LogDirectory, log: Log) -> None:
        """Rename an open replica's directory at once and delete it later, so that a crash leaves no partial replica."""
        log.close(clean=False)
        self.retire(name, topic_id, home)

    def retire(self, name: TopicPartition, topic_id: Uuid, home: LogDirectory) -> None:
        """Remove the directory of a closed replica; one that cannot be renamed now is renamed before it is replaced."""
        home.found.discard(name)
        try:
            self._remove_directory(home, name, home.path / str(name))
        except StorageError as error:
            logger.error("cannot remove %s: %s", home.path / str(name), error)
            home.found.add(name)
            self._owners[name] = topic_id

    def retire_unopened(self, name: TopicPartition, topic_id: Uuid) -> None:
        """The topic of a replica that never opened was deleted; what cannot be renamed now is renamed by `place`."""
        try:
            self.remove_unopened(name)
        except StorageError as error:
            logger.error("cannot remove %s: %s", name, error)
            self._owners[name] = topic_id

    def remove_unopened(self, name: TopicPartition) -> None:
        """Move what is on disk of a replica that never opened out of the way of one with the same name.

        Raises StorageError, and can be called again then.
        """
        for home in self.directories:
            if name in home.found:
                self._remove_directory(home, name, home.path / str(name))
                home.found.discard(name)
        self._remove_futures(name)

    def _remove_futures(self, name: TopicPartition) -> None:
        """Remove what the last run's move to another directory had copied of a replica. Raises StorageError."""
        for home in self.directories:
            if name in home.found_futures and home.failure is None:
                self._remove_directory(home, name, home.path / home.found_futures[name])
                del home.found_futures[name]

    def set_damaged_aside(self, name: TopicPartition, home: LogDirectory) -> Path:
        """Rename and keep the directory of a damaged replica, closed or never opened, so that it begins anew.

        What a move to another directory has copied of it is removed: it would be taken for the replica. Raises
        StorageError, and can be called again then.
        """
        self._remove_futures(name)
        try:
            aside = self._set_aside(home, name)
        except FileNotFoundError as error:
            logger.error("%s has disappeared: %s", name, error)
            aside = home.path / str(name)
            home.found.discard(name)
            self._checkpoints(home).forget(name)
        except StorageError as error:
            self._check_disk(error)
            raise
        self._checkpoints(home).write()
        self._owners.pop(name, None)
        return aside

    def _set_aside(self, home: LogDirectory, name: TopicPartition) -> Path:
        path = home.path / str(name)
        aside = path.with_name(stray_directory_name(path.name, self._env.random.randbytes(16)))
        self._env.filesystem.rename(path, aside)
        home.found.discard(name)
        self._checkpoints(home).forget(name)
        return aside

    def _remove_directory(self, home: LogDirectory, name: TopicPartition, path: Path) -> None:
        """Rename the directory of a closed replica at once and delete it later. Raises StorageError."""
        target = path.with_name(deletion_directory_name(path.name, self._env.random.randbytes(16)))
        try:
            self._env.filesystem.rename(path, target)
        except FileNotFoundError as error:
            logger.error("cannot remove %s: %s", path, error)
        except StorageError as error:
            self._check_disk(error)
            raise
        else:
            self._env.spawn(self._unlink(target), f"remove {target.name}")
        checkpoints = self._checkpoints(home)
        checkpoints.forget(name)
        checkpoints.write()

    def set_strays_aside(self, image: Image, node_id: int) -> None:
        """Rename and keep directories that the metadata does not place here."""
        self._note_lost(image, node_id)
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
                aside = self._set_aside(directory, name)
                reason = "belongs to no topic of this cluster" if topic is None else "was moved to other brokers"
                logger.warning("%s %s; it is kept as %s", path, reason, aside.name)

    def _note_lost(self, image: Image, node_id: int) -> None:
        """Find the replicas that are not here because a directory cannot be read."""
        if all(directory.failure is None for directory in self.directories):
            return
        online = {directory.directory_id for directory in self.directories if directory.failure is None}
        found = {name for directory in self.directories for name in directory.found}
        for topic in image.topics.values():
            for index, state in enumerate(topic.partitions):
                if node_id in state.replicas:
                    name, assigned = TopicPartition(topic.name, index), state.directory(node_id)
                    is_found = assigned in (UNASSIGNED_DIRECTORY, LOST_DIRECTORY) and name in found
                    if assigned not in online and not is_found:
                        self._lost[name] = topic.topic_id

    def _settled_home(self, name: TopicPartition, assigned: Uuid, settings: LogSettings) -> LogDirectory | None:
        """The directory that has a replica, after a move that a crash interrupted was completed or undone."""
        homes = {one.directory_id: one for one in self.directories}
        logs = [one for one in self.directories if name in one.found]
        futures = [FoundLog(one.directory_id, is_future=True) for one in self.directories if name in one.found_futures]
        if len(logs) < 2 and not futures:
            return logs[0] if logs else None
        ends = [self._end_of(one, name, settings) if len(logs) > 1 else FoundLog(one.directory_id) for one in logs]
        settled = settle([*ends, *futures], assigned)
        for log in settled.superseded:
            home = homes[log.directory_id]
            logger.warning("%s: a log that another one replaced is removed from %s", name, home.path)
            self._remove_directory(home, name, home.path / (home.found_futures[name] if log.is_future else str(name)))
            if log.is_future:
                del home.found_futures[name]
            else:
                home.found.discard(name)
        if settled.current is None:
            return None
        home = homes[settled.current.directory_id]
        if settled.current.is_future:
            logger.warning("%s: the log that was being filled in %s is all that is left of it", name, home.path)
            self._env.filesystem.rename(home.path / home.found_futures.pop(name), home.path / str(name))
            self._env.filesystem.sync_directory(home.path)
            home.found.add(name)
        return home

    def _end_of(self, home: LogDirectory, name: TopicPartition, settings: LogSettings) -> FoundLog:
        recovery_point = home.recovery_points.get(name, 0)
        log = Log.open(
            self._env.filesystem,
            home.path / str(name),
            settings,
            recovery_point=recovery_point,
            clean=False,
            now_ms=self._env.now_ms(),
            start_offset=home.start_offsets.get(name, 0),
            lost_power=home.lost_power,
            stayed_up=home.stayed_up,
            rewrites_from=recovery_point if home.failed_before else None,
        )
        found = FoundLog(home.directory_id, False, log.epochs.latest, log.end_offset)
        log.close(clean=False)
        return found

    def _choose_home(self) -> LogDirectory:
        return choose_home(self._env, self.directories, self._check_disk)

    def _directory(self, directory_id: Uuid | None) -> LogDirectory | None:
        for directory in self.directories:
            if directory.directory_id == directory_id and directory.failure is None and not directory.is_cordoned:
                return directory
        return None

    async def _unlink(self, path: Path) -> None:
        def remove() -> None:
            self._env.filesystem.sync_directory(path.parent)
            self._env.filesystem.remove_directory(path)

        try:
            await self._env.run_blocking(remove)
        except StorageError as error:
            logger.error("cannot remove %s, the next start tries again: %s", path, error)
            self._check_disk(error)


def open_placed(wanted: Sequence[tuple[Placement, LogSettings]]) -> list[Opened | Exception]:
    """Open replicas one after the other; one that fails does not affect the others. Blocks."""
    return [_open(*one) for one in wanted]


def _open(placement: Placement, settings: LogSettings) -> Opened | Exception:
    try:
        return open_replica(placement, settings)
    except (StorageError, FileNotFoundError) as error:
        return error


def open_replica(placement: Placement, settings: LogSettings) -> Opened:
    """Open a replica; raises StorageError or FileNotFoundError, whatever its files have in them. Blocks."""
    try:
        return placement.open(settings)
    except (StorageError, FileNotFoundError):
        raise
    except Exception as error:
        logger.exception("%s cannot be opened", placement.name)
        raise StorageError(f"{placement.name} cannot be opened: {error!r}") from error


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
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        tiered=settings.remote_storage_enable,
    )
