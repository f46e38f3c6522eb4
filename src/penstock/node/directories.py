"""The directories that a node claims before anything else: which node and cluster they belong to."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from penstock.config.node import NodeSettings
from penstock.core.metadata.image import UNASSIGNED_DIRECTORY
from penstock.model.ids import Uuid, format_uuid
from penstock.node.failures import CannotStart
from penstock.runtime.env import Env
from penstock.runtime.logs.directories import LogDirectory, format_directory, lock_directory, open_directory
from penstock.runtime.raft.driver import DIRECTORY as METADATA_DIRECTORY
from penstock.storage.files import File, StorageError
from penstock.storage.metadata_files import (
    BootMarker,
    read_boot_marker,
    read_clean_shutdown_epoch,
    read_meta_properties,
    remove_boot_marker,
    write_boot_marker,
)

# In cordoned.log.dirs: every directory of the broker.
ALL_DIRECTORIES = "*"

T = TypeVar("T")

logger = logging.getLogger("penstock.node")


class Predecessor(NamedTuple):
    """The last incarnation, as far as it is known, and the directories where everything it ever wrote is known to be.

    It stopped cleanly, or only its process ended while the machine stayed up; and the directory did not fail meanwhile.
    """

    epoch: int = -1
    directories: frozenset[Uuid] = frozenset()

    def epoch_in(self, directory: LogDirectory) -> int:
        """The incarnation up to which everything is in this directory; -1 for none."""
        return self.epoch if directory.directory_id in self.directories else -1


class Directories:
    """This node's data directories, locked against other processes as long as this object exists."""

    def __init__(self, env: Env, settings: NodeSettings) -> None:
        self._env = env
        self._settings = settings
        self._locks: list[File] = []
        self.log_directories: list[LogDirectory] = []
        self.metadata_directory_id: Uuid
        self.cluster_id = ""
        self.predecessor = Predecessor()
        # The last incarnation, if its process was killed before it knew its epoch.
        self.begun_incarnation: Uuid | None = None
        # Called when the marker of a directory cannot be written, as its disk is broken.
        self.on_failure: Callable[[LogDirectory, StorageError], object] = self._take_offline

    def claim(self) -> None:
        """Lock, check and if necessary format all of them; raises CannotStart or MetadataFileError.

        A directory that cannot be read is offline, unless it has the metadata or no other directory works.
        """
        settings, env = self._settings, self._env
        metadata_path = Path(settings.metadata_log_dir)
        directories = [LogDirectory(path, UNASSIGNED_DIRECTORY) for path in map(Path, settings.log_dirs)]
        for directory in directories:
            self._attempt(directory, partial(self._lock, directory.path))
        if metadata_path not in {directory.path for directory in directories}:
            self._lock(metadata_path)
        known = [self._attempt(one, partial(read_meta_properties, env.filesystem, one.path)) for one in directories]
        known.append(read_meta_properties(env.filesystem, metadata_path))
        self.cluster_id = next((found.cluster_id for found in known if found), "") or self._found_cluster()
        for directory in directories if settings.is_broker else ():
            opened = self._attempt(directory, partial(self._open, directory.path))
            self.log_directories.append(opened or directory)
        self._note_predecessor()
        self._require_one()
        found = format_directory(env, metadata_path, self.cluster_id, settings.node_id)
        self.metadata_directory_id = found.directory_id
        self._check_metadata_present(metadata_path)

    def _require_one(self) -> None:
        if self._settings.is_broker and not self._working():
            reasons = (f"{one.path} cannot be used: {one.failure}" for one in self.log_directories)
            raise CannotStart("; ".join(reasons))

    def _lock(self, path: Path) -> None:
        # Nothing else may refer to it: it is released with the last reference.
        self._locks.append(lock_directory(self._env, path))

    def _open(self, path: Path) -> LogDirectory:
        found = format_directory(self._env, path, self.cluster_id, self._settings.node_id)
        return open_directory(self._env, path, found.directory_id)

    def _attempt(self, directory: LogDirectory, work: Callable[[], T]) -> T | None:
        """The result, or None for a directory that cannot be used and is offline from then on."""
        if directory.failure is not None:
            return None
        try:
            return work()
        except (StorageError, FileNotFoundError) as error:
            if directory.path == Path(self._settings.metadata_log_dir):
                raise
            self._take_offline(directory, StorageError(str(error)))
            return None

    @staticmethod
    def _take_offline(directory: LogDirectory, error: StorageError) -> None:
        logger.critical("the data directory %s cannot be used and is offline: %s", directory.path, error)
        directory.failure = error

    def _note_predecessor(self) -> None:
        """What the last incarnation is known to have left here.

        A replica in a directory that failed may have been on its way to another one. The log that was being filled
        there may then become the replica, and it may lack the last records.
        """
        found: dict[Uuid, BootMarker] = {}
        for one in self._working():
            marker = self._attempt(one, partial(self._last_use, one.path))
            if marker is not None:
                found[one.directory_id] = marker
        working = self._working()
        latest = max((marker.broker_epoch for marker in found.values()), default=-1)
        newest = {one: marker for one, marker in found.items() if marker.broker_epoch == latest >= 0}
        failed = {one for marker in newest.values() for one in marker.failed}
        intact = frozenset(newest.keys() - failed)
        is_unclear = self._has_doubtful_logs()
        if len(intact) == len(self._settings.log_dirs) or not is_unclear:
            self.predecessor = Predecessor(latest, intact)
        for one in working:
            one.lost_power |= one.directory_id not in intact and one.knows_recovery_points
            one.failed_before |= one.directory_id in failed
        begun = {marker.incarnation_id for marker in found.values()}
        if len(begun) == 1 and (len(working) == len(self._settings.log_dirs) or not is_unclear):
            self.begun_incarnation = begun.pop()

    def _has_doubtful_logs(self) -> bool:
        """Whether one of several logs could become a replica, or one that was being filled and has no other."""
        found = Counter(name for directory in self.log_directories for name in directory.found)
        filled = {name for directory in self.log_directories for name in directory.found_futures}
        return found.total() > len(found) or not filled <= found.keys()

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch of the last incarnation, if everything it wrote is known to be here; otherwise -1."""
        is_whole = self.predecessor.directories.issuperset(one.directory_id for one in self._working())
        return self.predecessor.epoch if is_whole else -1

    def cordon(self, paths: Collection[str]) -> bool:
        """Have these directories, or with `*` all, get no new replicas; whether that is a change."""
        every = ALL_DIRECTORIES in paths
        wanted = {path.rstrip("/") or "/" for path in paths}
        before = [directory.is_cordoned for directory in self.log_directories]
        for directory in self.log_directories:
            directory.is_cordoned = every or str(directory.path) in wanted
        unknown = wanted - {ALL_DIRECTORIES, *map(str, (directory.path for directory in self.log_directories))}
        if unknown:
            logger.warning("cordoned.log.dirs names %s, which is not among log.dirs", ", ".join(sorted(unknown)))
        return before != [directory.is_cordoned for directory in self.log_directories]

    def offline_ids(self) -> list[Uuid]:
        """The directories that failed, as far as their ids could be read."""
        failed = (one.directory_id for one in self.log_directories if one.failure is not None)
        return [directory_id for directory_id in failed if directory_id != UNASSIGNED_DIRECTORY]

    def _last_use(self, path: Path) -> BootMarker:
        """By whom a directory was last used, if nothing that it wrote was lost since."""
        found = read_boot_marker(self._env.filesystem, path, self._env.boot_id) or BootMarker(-1, is_checked=False)
        stopped = read_clean_shutdown_epoch(self._env.filesystem, path)
        return found._replace(broker_epoch=stopped) if stopped >= 0 else found

    def note_registering(self, incarnation_id: Uuid) -> None:
        """Record the incarnation that is about to register, until its epoch is recorded.

        A controller may register an incarnation that is killed before it gets the answer. Its successor does not know
        the epoch, and would count as one that has lost records; so it continues as the same incarnation.
        """
        working = self._working()
        unsure = tuple(one.directory_id for one in working if self.predecessor.epoch_in(one) < 0)
        for directory in working:
            epoch = self.predecessor.epoch_in(directory)
            # That another one is not intact must be known also if that cannot be recorded there.
            failed = unsure if epoch >= 0 else ()
            self._note(directory, BootMarker(epoch, directory.is_checked, incarnation_id, failed))
        self._require_one()

    def note_checked(self, broker_epoch: int) -> None:
        """Every log was opened: what a power failure may have lost is known, and until the next one nothing is lost.

        Future replicas are opened later, when their moves continue: their directories are checked by the next start.
        """
        for directory in self._working():
            if not directory.found_futures:
                directory.lost_power = directory.failed_before = False
        self.note_epoch(broker_epoch)

    def note_epoch(self, broker_epoch: int) -> None:
        """Record which incarnation uses the directories, and which failed under it, until the machine reboots.

        A directory that failed often still takes the few bytes of its own marker, if only in the page cache. A start
        must not trust what it reads there: it may never have reached the disk. One that works and does not take them
        fails here; the markers of the others name it then.
        """
        failed = tuple(self.offline_ids())
        for directory in self.log_directories:
            is_checked = directory.failure is None and directory.is_checked
            if not self._note(directory, BootMarker(broker_epoch, is_checked, failed=failed)):
                # From here on the incarnation acts under its epoch: no other process may continue as the same one.
                self._forget(directory)
        if failed != tuple(self.offline_ids()):
            self.note_epoch(broker_epoch)

    def _working(self) -> list[LogDirectory]:
        return [directory for directory in self.log_directories if directory.failure is None]

    def _note(self, directory: LogDirectory, marker: BootMarker) -> bool:
        try:
            write_boot_marker(self._env.filesystem, directory.path, self._env.boot_id, marker)
        except (StorageError, FileNotFoundError) as error:
            logger.warning("%s: after a crash it will be unknown whether records were lost: %s", directory.path, error)
            reason = error if isinstance(error, StorageError) else StorageError(str(error))
            if directory.failure is None and not reason.is_passing:
                self.on_failure(directory, reason)
            return False
        return True

    def _forget(self, directory: LogDirectory) -> None:
        try:
            remove_boot_marker(self._env.filesystem, directory.path)
        except StorageError as error:
            if directory.failure is None:
                self.on_failure(directory, error)

    def _found_cluster(self) -> str:
        """A single node creates its own cluster; the nodes of a larger one must be given its id."""
        voters = {voter.node_id for voter in self._settings.controller_quorum_voters}
        if voters == {self._settings.node_id}:
            return new_cluster_id(self._env)
        raise CannotStart(
            f"{self._settings.metadata_log_dir} is not formatted, and a node of a larger cluster must know which one "
            "it belongs to: run `penstock storage format --cluster-id ID --config FILE` on every node with the same "
            "id (`penstock storage random-uuid` makes one)"
        )

    def _check_metadata_present(self, metadata_path: Path) -> None:
        held = sorted(str(name) for directory in self.log_directories for name in directory.found)
        if held and not self._env.filesystem.exists(metadata_path / METADATA_DIRECTORY):
            raise CannotStart(
                f"{metadata_path / METADATA_DIRECTORY} is missing, and without it the topics of {held[0]} and other "
                "partitions here are unknown. Restore it from a backup, or correct metadata.log.dir"
            )

    def release(self) -> None:
        """Release the locks."""
        self._locks.clear()


def new_cluster_id(env: Env) -> str:
    """A cluster id as Kafka makes them; never one that begins with a dash."""
    while True:
        raw: Uuid = env.random.randbytes(16)
        text = format_uuid(raw)
        if not text.startswith("-"):
            return text
