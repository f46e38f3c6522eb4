"""This broker's data directories: their contents, their free space, and whether they still work."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.core.lifecycle.disk_forecast import DiskForecast
from penstock.core.metadata.topic_names import METADATA_TOPIC
from penstock.core.placement.directories import Candidate, choose_directory
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import Env
from penstock.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointError,
    read_offsets,
)
from penstock.storage.files import DiskSpace, File, StorageError
from penstock.storage.log import Log
from penstock.storage.metadata_files import (
    BOOT_MARKER,
    CLEAN_SHUTDOWN,
    MetadataFileError,
    MetaProperties,
    read_boot_marker,
    read_meta_properties,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
)
from penstock.storage.names import is_deletion_directory, parse_future_directory, parse_partition_directory

LOCK = ".lock"
# For how long a replica counts as one that is still empty.
NEW_MS = 3_600_000

logger = logging.getLogger("penstock.runtime")


@dataclass(slots=True)
class LogDirectory:
    """One data directory, and what its checkpoint files are to contain: `CheckpointWriter` writes them."""

    path: Path
    directory_id: Uuid
    clean: bool = False
    # Whether the machine may have gone down since the directory was last used, or the disk, losing unsynced data.
    lost_power: bool = True
    # Whether a sync may have failed since the machine started: then the page cache has what the disk never got.
    failed_before: bool = False
    # Whether it is known what was synced. Without that, earlier gaps are unknown as well: better to keep records after
    # one than to truncate acknowledged ones.
    knows_recovery_points: bool = True
    found: set[TopicPartition] = field(default_factory=set)
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    # By compacted log, the offset up to which it is clean.
    clean_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    partitions: set[TopicPartition] = field(default_factory=set)
    # Logs that are being filled here, to take the place of replicas in other directories; and those of the last run.
    futures: dict[TopicPartition, Log] = field(default_factory=dict)
    found_futures: dict[TopicPartition, str] = field(default_factory=dict)
    failure: StorageError | None = None
    is_full: bool = False
    # Whether new replicas go elsewhere; the ones that are here stay.
    is_cordoned: bool = False
    # When replicas were created here lately, on the monotonic clock.
    created_ms: deque[int] = field(default_factory=deque)
    forecast: DiskForecast = field(default_factory=DiskForecast)
    # When the disk will be full at this rate; None if that is not in sight.
    full_in_ms: int | None = None

    @property
    def stayed_up(self) -> bool:
        """Whether all that was ever written here is certainly there."""
        return self.knows_recovery_points and not self.lost_power

    @property
    def is_checked(self) -> bool:
        """Whether what may have been lost, or may only seem to be on the disk, has been seen to."""
        return not (self.lost_power or self.failed_before)

    def check_writable(self) -> None:
        """Raises KAFKA_STORAGE_ERROR while writes are not possible."""
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory {self.path} failed: {self.failure}")
        if self.is_full:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the disk under {self.path} is nearly full; writes resume when there is free space again",
            )


def lock_directory(env: Env, path: Path) -> File:
    """Keep other processes out of a directory until the returned file is released; raises MetadataFileError."""
    env.filesystem.make_directory(path)
    lock = env.filesystem.lock(path / LOCK)
    if lock is None:
        raise MetadataFileError(
            f"{path} is in use by another process, which holds {path / LOCK}: stop that broker first, "
            "or give this one another directory in log.dirs"
        )
    return lock


def format_directory(env: Env, path: Path, cluster_id: str, node_id: int) -> MetaProperties:
    """Format a directory for this node, or read its owner; raises MetadataFileError when it belongs to another node."""
    env.filesystem.make_directory(path)
    present = read_meta_properties(env.filesystem, path)
    if present is None:
        present = MetaProperties(cluster_id, node_id, env.random.randbytes(16))
        write_meta_properties(env.filesystem, path, present)
    if present.node_id != node_id:
        raise MetadataFileError(
            f"{path} holds the data of node {present.node_id}, but this is node {node_id}: "
            f"set node.id={present.node_id}, or point log.dirs at another directory"
        )
    if present.cluster_id != cluster_id:
        raise MetadataFileError(
            f"{path} belongs to cluster {present.cluster_id}, but the other directories to {cluster_id}: "
            "correct log.dirs so that it names directories of one cluster"
        )
    return present


def open_directory(env: Env, path: Path, directory_id: Uuid) -> LogDirectory:
    """Read a directory without changing anything: the node may still refuse to start."""
    filesystem = env.filesystem
    directory = LogDirectory(path, directory_id, clean=filesystem.exists(path / CLEAN_SHUTDOWN))
    marker = read_boot_marker(filesystem, path, env.boot_id)
    for name, size in filesystem.list_directory(path).items():
        partition = parse_partition_directory(name) if size == -1 and not is_deletion_directory(name) else None
        if partition is not None and partition.topic != METADATA_TOPIC:
            directory.found.add(partition)
        future = parse_future_directory(name) if size == -1 else None
        if future is not None:
            directory.found_futures[future] = name
    recovery_points = _read_checkpoint(env, path / RECOVERY_POINTS)
    directory.knows_recovery_points = recovery_points is not None
    directory.recovery_points = recovery_points or {}
    directory.lost_power = directory.knows_recovery_points and (marker is None or not marker.is_checked)
    if marker is None:
        # Of another boot, unless it could not be kept up to date.
        directory.failed_before = not env.boot_id or not filesystem.exists(path / BOOT_MARKER)
    else:
        directory.failed_before = not marker.is_checked
    directory.start_offsets = _read_checkpoint(env, path / LOG_START_OFFSETS) or {}
    directory.high_watermarks = _read_checkpoint(env, path / HIGH_WATERMARKS) or {}
    directory.clean_offsets = _read_checkpoint(env, path / CLEANER_OFFSETS) or {}
    return directory


def begin_use(env: Env, directory: LogDirectory) -> None:
    """Start using a directory: forget that the last shutdown was clean, and remove what was being deleted then."""
    take_clean_shutdown(env.filesystem, directory.path)
    for name, size in env.filesystem.list_directory(directory.path).items():
        if size == -1 and is_deletion_directory(name):
            env.filesystem.remove_directory(directory.path / name)


def _read_checkpoint(env: Env, path: Path) -> dict[TopicPartition, int] | None:
    try:
        return read_offsets(env.filesystem, path)
    except CheckpointError as error:
        # Without it more of the log is checked at start-up; nothing is lost.
        logger.warning("%s is damaged and ignored: %s", path, error)
        return None


def mark_clean(env: Env, directory: LogDirectory, broker_epoch: int) -> None:
    """Record that every log here was closed cleanly; the next start trusts them."""
    write_clean_shutdown(env.filesystem, directory.path, broker_epoch)


def measure_space(env: Env, directory: LogDirectory, full_percent: float) -> bool:
    """Look at the disk, for the forecast as well; returns whether it is fuller than it may be."""
    space = env.filesystem.disk_space(directory.path)
    used_bytes = space.total_bytes - space.free_bytes
    directory.forecast.note(env.monotonic_ms(), used_bytes)
    directory.full_in_ms = directory.forecast.full_in_ms(used_bytes, space.total_bytes * full_percent / 100)
    return space.used_fraction * 100 > full_percent


def set_full(env: Env, directory: LogDirectory, is_full: bool) -> None:
    """Reject writes, or accept them again."""
    if is_full != directory.is_full:
        directory.is_full = is_full
        used = env.filesystem.disk_space(directory.path).used_fraction * 100
        state = "rejecting writes" if is_full else "accepting writes again"
        logger.warning("the disk under %s is %.1f %% full: %s", directory.path, used, state)


def choose_home(
    env: Env, directories: Sequence[LogDirectory], check_disk: Callable[[StorageError], None]
) -> LogDirectory:
    """The directory for one more replica; raises StorageError if all have failed."""
    working = [directory for directory in directories if directory.failure is None]
    if not working:
        raise StorageError("every data directory of this broker has failed")
    if len(working) == 1:
        return working[0]
    now_ms = env.monotonic_ms()
    candidates = [_candidate(env, directory, now_ms, check_disk) for directory in working]
    chosen = working[choose_directory(candidates)]
    chosen.created_ms.append(now_ms)
    return chosen


def _candidate(env: Env, directory: LogDirectory, now_ms: int, check_disk: Callable[[StorageError], None]) -> Candidate:
    while directory.created_ms and now_ms - directory.created_ms[0] > NEW_MS:
        directory.created_ms.popleft()
    try:
        space = env.filesystem.disk_space(directory.path)
    except StorageError as error:
        # Nothing else may meet the error before the disk works again, without its last writes.
        check_disk(error)
        space = DiskSpace(0, 0)
    return Candidate(
        space.free_bytes,
        space.total_bytes,
        len(directory.partitions),
        len(directory.created_ms),
        directory.is_cordoned,
        directory.is_full,
    )
