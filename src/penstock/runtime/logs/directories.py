"""The directories that hold this broker's partitions: what is in them, how full they are, whether they still work."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.core.metadata.topic_names import METADATA_TOPIC
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import Env
from penstock.storage.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointError,
    read_offsets,
    write_offsets,
)
from penstock.storage.files import File, StorageError
from penstock.storage.metadata_files import (
    CLEAN_SHUTDOWN,
    MetadataFileError,
    MetaProperties,
    read_boot_marker,
    read_meta_properties,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
)
from penstock.storage.names import is_deletion_directory, parse_partition_directory

LOCK = ".lock"

logger = logging.getLogger("penstock.runtime")


@dataclass(slots=True)
class LogDirectory:
    """One data directory and what its checkpoint files say."""

    path: Path
    directory_id: Uuid
    clean: bool = False
    # Whether the machine may have stopped since the directory was last used, and so have lost what was not synced.
    lost_power: bool = True
    found: set[TopicPartition] = field(default_factory=set)
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    start_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    partitions: set[TopicPartition] = field(default_factory=set)
    failure: StorageError | None = None
    is_full: bool = False

    def check_writable(self) -> None:
        """Raises KAFKA_STORAGE_ERROR while nothing may be written here."""
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory {self.path} failed: {self.failure}")
        if self.is_full:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the disk under {self.path} is nearly full; free some space and writes go on by themselves",
            )


def lock_directory(env: Env, path: Path) -> File:
    """Keep other processes out of a directory until the returned file is let go; raises MetadataFileError."""
    env.filesystem.make_directory(path)
    lock = env.filesystem.lock(path / LOCK)
    if lock is None:
        raise MetadataFileError(
            f"{path} is in use by another process, which holds {path / LOCK}: stop that broker first, "
            "or give this one another directory in log.dirs"
        )
    return lock


def format_directory(env: Env, path: Path, cluster_id: str, node_id: int) -> MetaProperties:
    """Claim a directory for this node, or read whose it is; raises MetadataFileError when it is somebody else's."""
    env.filesystem.make_directory(path)
    present = read_meta_properties(env.filesystem, path)
    if present is None:
        present = MetaProperties(cluster_id, node_id, env.random.randbytes(16))
        write_meta_properties(env.filesystem, path, present)
    if present.node_id != node_id:
        raise MetadataFileError(
            f"{path} holds the data of node {present.node_id}, and this is node {node_id}: "
            f"set node.id={present.node_id}, or point log.dirs at another directory"
        )
    if present.cluster_id != cluster_id:
        raise MetadataFileError(
            f"{path} belongs to cluster {present.cluster_id}, and the other directories to {cluster_id}: "
            "correct log.dirs so that it names directories of one cluster"
        )
    return present


def open_directory(env: Env, path: Path, directory_id: Uuid) -> LogDirectory:
    """Look what a directory holds, changing nothing: the node may yet refuse to start."""
    filesystem = env.filesystem
    directory = LogDirectory(path, directory_id, clean=filesystem.exists(path / CLEAN_SHUTDOWN))
    marker = read_boot_marker(filesystem, path, env.boot_id)
    directory.lost_power = marker is None or not marker.is_checked
    for name, size in filesystem.list_directory(path).items():
        partition = parse_partition_directory(name) if size == -1 and not is_deletion_directory(name) else None
        if partition is not None and partition.topic != METADATA_TOPIC:
            directory.found.add(partition)
    recovery_points = _read_checkpoint(env, path / RECOVERY_POINTS)
    if recovery_points is None:
        # Nobody knows which gaps were there before: rather keep records behind one than cut acknowledged ones off.
        directory.lost_power = False
    directory.recovery_points = recovery_points or {}
    directory.start_offsets = _read_checkpoint(env, path / LOG_START_OFFSETS) or {}
    directory.high_watermarks = _read_checkpoint(env, path / HIGH_WATERMARKS) or {}
    return directory


def begin_use(env: Env, directory: LogDirectory) -> None:
    """From here on a crash is one: forget that the last stop was clean, and remove what was on its way out then."""
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


def write_checkpoints(
    env: Env,
    directory: LogDirectory,
    progress: Iterable[tuple[TopicPartition, int, int, int]],
) -> None:
    """Note how far each partition's log is on disk, where it starts, and its high watermark."""
    rows = list(progress)
    directory.recovery_points = {name: flushed for name, flushed, _, _ in rows}
    directory.start_offsets = {name: start for name, _, start, _ in rows if start}
    directory.high_watermarks = {name: high_watermark for name, _, _, high_watermark in rows}
    _write_all(env, directory)


def lower_checkpoints(env: Env, directory: LogDirectory, progress: Iterable[tuple[TopicPartition, int, int]]) -> None:
    """Note that logs were cut: how far each is on disk now, and its high watermark.

    What is appended after a cut may be torn by a crash where a checkpoint of before says that it is whole.
    """
    lowered = False
    for name, flushed, high_watermark in progress:
        for noted, offset in ((directory.recovery_points, flushed), (directory.high_watermarks, high_watermark)):
            if noted.get(name, 0) > offset:
                noted[name] = offset
                lowered = True
    if lowered:
        _write_all(env, directory)


def raise_recovery_point(env: Env, directory: LogDirectory, name: TopicPartition, flushed: int) -> None:
    """Note how far one log is on disk, unless that is noted already."""
    if directory.recovery_points.get(name, 0) < flushed:
        directory.recovery_points[name] = flushed
        write_offsets(env.filesystem, directory.path / RECOVERY_POINTS, directory.recovery_points)


def forget_partition(env: Env, directory: LogDirectory, name: TopicPartition) -> None:
    """Take a partition's namesake of old out of the checkpoints: its offsets mean nothing for the new one."""
    noted = (directory.recovery_points, directory.start_offsets, directory.high_watermarks)
    if any(name in offsets for offsets in noted):
        for offsets in noted:
            offsets.pop(name, None)
        _write_all(env, directory)


def _write_all(env: Env, directory: LogDirectory) -> None:
    filesystem, path = env.filesystem, directory.path
    write_offsets(filesystem, path / RECOVERY_POINTS, directory.recovery_points)
    write_offsets(filesystem, path / LOG_START_OFFSETS, directory.start_offsets)
    write_offsets(filesystem, path / HIGH_WATERMARKS, directory.high_watermarks)


def mark_clean(env: Env, directory: LogDirectory, broker_epoch: int) -> None:
    """Say that every log here was closed; the next start trusts them."""
    write_clean_shutdown(env.filesystem, directory.path, broker_epoch)


def watch_space(env: Env, directory: LogDirectory, full_percent: float) -> None:
    """Note whether the disk is too full to take writes."""
    used = env.filesystem.disk_space(directory.path).used_fraction * 100
    full = used > full_percent
    if full != directory.is_full:
        directory.is_full = full
        state = "refusing writes" if full else "taking writes again"
        logger.warning("the disk under %s is %.1f %% full: %s", directory.path, used, state)
