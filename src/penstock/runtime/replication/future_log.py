"""A log that is filled from another replica's log in another data directory of the same broker.

Segments begin where they do in the source, so that what was copied to object storage still ends where a segment does.
All methods but `rest` and `divergence` block, and must not run at the same time.
"""

from __future__ import annotations

from pathlib import Path

from penstock.core.replica.follower import whole_batches
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import StorageError
from penstock.storage.log import Log, LogSettings, LogSlice
from penstock.storage.metadata_files import read_partition_metadata, sync_partition_metadata, write_partition_metadata
from penstock.storage.names import LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name, offset_of
from penstock.storage.producers.snapshot import DamagedSnapshotError, decode_snapshot
from penstock.storage.segment_copy import TierHistory

CHUNK_BYTES = 1024 * 1024
# Bounds what is copied again after a crash.
UNSYNCED_BYTES_MAX = 64 * 1024 * 1024


def open_future(
    env: Env, path: Path, home: LogDirectory, topic_id: Uuid, partition: Partition, settings: LogSettings
) -> Log:
    """Open or create the directory of a future replica; one of another topic of the same name begins anew. Blocks."""
    filesystem = env.filesystem
    name = partition.name
    if filesystem.exists(path) and read_partition_metadata(filesystem, path) != topic_id:
        filesystem.remove_directory(path)
    is_new = not filesystem.exists(path)
    filesystem.make_directory(path)
    if is_new or home.failed_before:
        write_partition_metadata(filesystem, path, topic_id)
        sync_partition_metadata(filesystem, path)
    recovery_point = 0 if is_new else home.recovery_points.get(name, 0)
    return Log.open(
        filesystem,
        path,
        settings,
        recovery_point=recovery_point,
        clean=is_new,
        now_ms=env.now_ms(),
        start_offset=0 if is_new else home.start_offsets.get(name, 0),
        lost_power=home.lost_power,
        stayed_up=home.stayed_up,
        rewrites_from=recovery_point if home.failed_before else None,
    )


class FutureLog:
    """The future replica of one partition, and how far it has come."""

    def __init__(self, env: Env, log: Log) -> None:
        self._env = env
        self.log = log
        self.copied_bytes = 0
        self._unsynced_bytes = 0
        # The generation of the source that this log is known to be a part of; -1 while that is not known.
        self.generation = -1
        self._segment_base = -1

    def rest(self, source: Log) -> LogSlice | None:
        """What comes next of the source, out of one segment; None if this log must begin anew at its start."""
        offset = self.log.end_offset
        if offset < source.local_start_offset or offset > source.end_offset:
            return None
        return source.read(offset, CHUNK_BYTES)

    def divergence(self, source: Log) -> int | None:
        """The offset to cut this log at after the source was truncated; None if it is a part of it."""
        log = self.log
        epoch = log.epochs.latest
        if log.end_offset == log.local_start_offset:
            return None
        if epoch < 0:
            return 0
        found = source.epochs.end_offset_for(epoch, source.end_offset)
        if found.epoch == epoch and found.end_offset >= log.end_offset:
            return None
        local = log.epochs.end_offset_for(found.epoch, log.end_offset)
        if found.epoch < 0 or local.epoch < 0:
            return 0
        return min(found.end_offset, local.end_offset, log.end_offset - 1)

    def begin(
        self, source_path: Path, first: LogSlice, start_offset: int, local_start: int, epochs: TierHistory
    ) -> None:
        """Empty this log, and begin with what the source has first on its disk."""
        data = first.read()
        headers, _, _ = whole_batches(memoryview(data), 0)
        begin = min(headers[0].base_offset, local_start) if headers else local_start
        try:
            snapshot = self._env.filesystem.read_file(source_path / file_name(begin, SNAPSHOT_SUFFIX))
            producers = decode_snapshot(snapshot)
        except (FileNotFoundError, DamagedSnapshotError):
            # They are taken over when this log takes the source's place.
            producers = []
        history = TierHistory(epochs.epochs, producers)
        self.log.start_from_tier(begin, min(start_offset, begin), history, self._env.now_ms())
        self._segment_base = -1

    def append(self, piece: LogSlice) -> int:
        """Append the next piece of the source; returns its size."""
        log, now_ms = self.log, self._env.now_ms()
        assert piece.file is not None
        base_offset = offset_of(piece.file.path.name, LOG_SUFFIX)
        if base_offset is not None and base_offset > self._segment_base:
            log.roll(now_ms)
            self._segment_base = base_offset
        data = memoryview(piece.read())
        headers, first, end = whole_batches(data, log.end_offset)
        if not headers:
            raise StorageError(f"{piece.file.path} has no whole batch at offset {log.end_offset}")
        log.append(headers, data[first:end], now_ms)
        self.copied_bytes += end - first
        self._unsynced_bytes += end - first
        if self._unsynced_bytes > UNSYNCED_BYTES_MAX:
            self.sync()
        return end - first

    def skip_to(self, end_offset: int) -> None:
        """The source has nothing more until its end: compaction removed it."""
        log, now_ms = self.log, self._env.now_ms()
        assert end_offset > log.end_offset
        if log.size_bytes == 0:
            log.start_from_tier(end_offset, log.start_offset, TierHistory(log.epochs.entries, ()), now_ms)
            return
        log.end_offset = end_offset
        log.roll(now_ms)

    def sync(self) -> None:
        """Make all of it durable."""
        self._unsynced_bytes = 0
        self.log.flush()
