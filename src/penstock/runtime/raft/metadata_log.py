"""The metadata log on disk: entries, snapshots, and the voters in both.

Files are checked before anything is changed; inconsistent ones are rejected with DamagedMetadata. A log starts at zero
or where one of its snapshots ends, so a replica that is behind its start can begin with a snapshot.

A segment is finished only when all of it is on disk. So a power failure leaves nothing torn before the last segment:
what is incomplete there was damaged. The last one is written anew at every start: where a sync failed, the page cache
has what the disk never got, and later syncs leave it out. Nothing of a log counts as durable before its first sync.

A snapshot from the leader replaces the whole log. It is first completed and synced under the name of a pending one,
then the log is emptied, then it gets its own name: if a crash interrupts this, the next start finishes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from penstock.core.lifecycle.retention import RetentionSettings, plan_retention
from penstock.core.raft.events import Election
from penstock.core.raft.messages import LogEnd
from penstock.core.raft.voters import VoterHistory, VoterSet
from penstock.runtime.env import Env
from penstock.runtime.logs.sync import LogSync
from penstock.runtime.raft.control_records import Control, ControlMessage, control_batch, read_controls, read_voters
from penstock.runtime.raft.metadata_files import (
    PART_SUFFIX,
    PENDING_SUFFIX,
    Batch,
    SnapshotId,
    check_agreement,
    check_snapshot,
    decode_batches,
    encode_records,
    inspect_log,
    list_pending,
    list_snapshots,
    read_election,
    read_snapshot,
    write_election,
)
from penstock.storage.files import CorruptLogError, StorageError
from penstock.storage.log import Log, LogSettings
from penstock.storage.names import LEADER_EPOCH_CHECKPOINT, SEGMENT_SUFFIXES
from penstock.storage.settings import INT64_MAX
from penstock.wire.kernel import scan_batches
from penstock.wire.record_types import Buffer
from penstock.wire.records import ControlType, CorruptBatch, check_crc, split_batches

READ_BYTES = 8 * 1024 * 1024
BATCH_BYTES_MAX = 256 * 1024 * 1024
# Every node holds the record in memory and in each snapshot, whatever request it came from.
RECORD_BYTES_MAX = 1024 * 1024
# Positions in a segment are stored in four bytes.
INT32_MAX = 2**31 - 1
LARGEST_SEGMENT_BYTES = INT32_MAX - BATCH_BYTES_MAX
# The second newest snapshot is kept, with the log from there on, in case the newest is damaged.
SNAPSHOTS_KEPT = 2


class UnfitEntries(Exception):
    """Entries that a leader sent do not continue this log."""


class MetadataLog:
    """Entries and snapshots in one directory; `LogView` of the quorum's core."""

    def __init__(self, env: Env, directory: Path, settings: LogSettings, fixed_voters: VoterSet) -> None:
        self._env = env
        self.directory = directory
        self._segment_bytes, self._segment_ms = settings.segment_bytes, settings.segment_ms
        # When a segment is finished is decided here.
        self._settings = replace(settings, file_delete_delay_ms=0, segment_bytes=INT32_MAX, segment_ms=INT64_MAX)
        self._is_roll_wanted = False
        self.history = VoterHistory(fixed_voters)
        self.snapshots: list[SnapshotId] = []
        self.log: Log

    def open(self) -> Election:
        """Check and open everything; returns the persisted election state. Blocks."""
        filesystem, directory = self._env.filesystem, self.directory
        filesystem.make_directory(directory)
        filesystem.sync_directory(directory.parent)
        # The last process may have failed when it wanted that; what is read now is acted upon.
        filesystem.sync_directory(directory)
        election = read_election(filesystem, directory)
        for name in filesystem.list_directory(directory):
            if name.endswith(PART_SUFFIX):
                filesystem.unlink(directory / name)
        self._finish_pending()
        extent = inspect_log(filesystem, directory)
        self.snapshots = list_snapshots(filesystem, directory)
        newest = self.snapshots[-1] if self.snapshots else None
        check_agreement(directory, extent, newest, election)
        if newest is not None:
            # Before anything is changed: opening the log cleans up.
            check_snapshot(filesystem, directory / newest.file_name)
        first = extent.start_offset if extent is not None else 0
        start = next((one.end_offset for one in self.snapshots if one.end_offset >= first), 0)
        self.log = Log.open(
            filesystem,
            directory,
            self._settings,
            recovery_point=0,
            clean=False,
            now_ms=self._env.now_ms(),
            start_offset=start,
            rewrites_from=extent.tail_offset if extent is not None else None,
        )
        return election or Election()

    def write_election(self, election: Election) -> asyncio.Future[None]:
        """Persist the election state, off the loop."""
        filesystem, voters, kraft_version = self._env.filesystem, self.history.voters.ids, self.history.kraft_version
        return self._env.run_blocking(
            lambda: write_election(filesystem, self.directory, election, voters, kraft_version)
        )

    def _finish_pending(self) -> None:
        """A crash came between a leader's snapshot and the emptying of the log: only the snapshot counts."""
        filesystem, directory = self._env.filesystem, self.directory
        pending = list_pending(filesystem, directory)
        if not pending:
            return
        snapshot = pending[-1]
        for name in filesystem.list_directory(directory):
            if name.endswith((*SEGMENT_SUFFIXES, ".snapshot")) or name == LEADER_EPOCH_CHECKPOINT:
                filesystem.unlink(directory / name)
        now_ms = self._env.now_ms()
        Log.open(
            filesystem,
            directory,
            self._settings,
            recovery_point=0,
            clean=False,
            now_ms=now_ms,
            start_offset=snapshot.end_offset,
        ).close(clean=True)
        self._name_pending(snapshot)

    def _name_pending(self, snapshot: SnapshotId) -> None:
        path = self.directory / snapshot.file_name
        self._env.filesystem.rename(path.with_name(path.name + PENDING_SUFFIX), path)
        self._env.filesystem.sync_directory(self.directory)

    # The core's view of the log.

    def end(self) -> LogEnd:
        """Where the log ends."""
        return LogEnd(self.log.end_offset, max(self.start().epoch, self.log.epochs.latest))

    def synced_offset(self) -> int:
        """Everything before this offset is on disk."""
        return self.log.flushed_offset

    def start(self) -> LogEnd:
        """Where the log starts."""
        offset = self.log.start_offset
        found = next((one for one in self.snapshots if one.end_offset == offset), None)
        return LogEnd(offset, found.epoch if found is not None else 0)

    def snapshot(self) -> LogEnd:
        """Where the newest snapshot ends."""
        newest = self.snapshots[-1] if self.snapshots else SnapshotId(0, 0)
        return LogEnd(newest.end_offset, newest.epoch)

    def end_of_epoch(self, epoch: int) -> LogEnd:
        """Where the largest epoch at or below this one ended; `start` when the log has none."""
        start = self.start()
        entries = [entry for entry in self.log.epochs.entries if entry.epoch > start.epoch]
        if epoch < start.epoch:
            return start
        known = start.epoch
        for entry in entries:
            if entry.epoch > epoch:
                return LogEnd(max(start.offset, entry.start_offset), known)
            known = entry.epoch
        return LogEnd(self.log.end_offset, known)

    def append_records(self, records: Sequence[object], epoch: int) -> None:
        """Append one batch of metadata records; raises ApiError, and appends nothing, if one of them is too large."""
        now_ms = self._env.now_ms()
        self._append(encode_records(records, self.log.end_offset, epoch, now_ms, RECORD_BYTES_MAX))

    def append_controls(self, messages: Iterable[ControlMessage], epoch: int) -> None:
        """Append one batch of control records; voters among them apply at once."""
        self._append(control_batch(messages, self.log.end_offset, epoch, self._env.now_ms()))

    def append_fetched(self, data: Buffer, epoch: int) -> None:
        """Append a leader's batches as they are. Raises UnfitEntries, and then nothing was appended."""
        next_offset, last_epoch = self.log.end_offset, self.end().epoch
        for position, header in split_batches(data, BATCH_BYTES_MAX):
            check_crc(data, position, header)
            if header.base_offset != next_offset or not last_epoch <= header.partition_leader_epoch <= epoch:
                raise UnfitEntries(
                    f"a batch at offset {header.base_offset} of epoch {header.partition_leader_epoch} came where one "
                    f"at {next_offset} of epochs {last_epoch} to {epoch} was expected"
                )
            next_offset, last_epoch = header.next_offset, header.partition_leader_epoch
        self._append(data)

    def _append(self, data: Buffer) -> None:
        batches = split_batches(data, BATCH_BYTES_MAX)
        self._roll_if_due()
        self.log.append([header for _, header in batches], data, self._env.now_ms())
        for position, header in batches:
            if header.is_control:
                self._note(read_controls(memoryview(data)[position : position + header.size_bytes]))

    def _roll_if_due(self) -> None:
        """Finish the newest segment if it is time and all of it is on disk, or if it is far too large."""
        log, now_ms = self.log, self._env.now_ms()
        if log.flushed_offset < log.end_offset:
            if log.newest_segment_bytes < min(2 * self._segment_bytes, LARGEST_SEGMENT_BYTES):
                return
            log.flush()
        if self._is_roll_wanted or log.newest_segment_bytes >= self._segment_bytes:
            log.roll(now_ms)
        else:
            log.roll_if_due(now_ms, self._segment_ms)
        self._is_roll_wanted = False

    def _note(self, controls: Iterable[Control], offset: int | None = None) -> None:
        """Add voters to the history, at their own offsets or at that of the snapshot they are in."""
        for control in controls:
            at = control.offset if offset is None else offset
            if control.kind is ControlType.KRAFT_VERSION:
                self.history.add_version(at, control.message.kraft_version)
            elif control.kind is ControlType.KRAFT_VOTERS:
                self.history.add_voters(at, read_voters(control.message))

    async def truncate_to(self, offset: int, sync: LogSync) -> None:
        """Truncate the log to `offset`, durably; nothing may be appended meanwhile."""
        with self._failing_as_a_whole():
            # Each step is durable before the next.
            for _ in self.log.truncation(offset, self._env.now_ms()):
                await sync.barrier()
        self.history.truncate_to(self.log.end_offset)

    @contextmanager
    def _failing_as_a_whole(self) -> Iterator[None]:
        """After an error, the log is neither what it was nor what it should be."""
        try:
            yield
        except FileNotFoundError as error:
            raise StorageError(f"a file of {self.directory} is missing: {error}") from error
        except CorruptBatch as error:
            raise StorageError(f"{self.directory} cannot be truncated: {error}") from error

    def read(self, offset: int, size_max: int, *, offset_max: int | None = None) -> bytes:
        """Whole, intact batches from `offset` on, at least one if there is one; raises CorruptLogError."""
        data = self.log.read(offset, size_max, offset_max=offset_max, minimum_one_batch=True).read()
        scan = scan_batches(data, 0, len(data), check_crc=True)
        if scan.problem is not None or scan.position != len(data):
            reason = f"in what was read from offset {offset} on: {scan.problem or 'a batch is cut short'}"
            raise CorruptLogError(self.directory, scan.position, reason)
        return data

    def batches(self, offset: int, offset_max: int) -> Iterator[Batch]:
        """The decoded batches of one read between two offsets; more may follow."""
        for batch in decode_batches(self.read(offset, READ_BYTES, offset_max=offset_max), self.directory):
            if batch.next_offset > offset:
                yield batch

    def records_after(self, offset: int) -> Iterator[object]:
        """All records from `offset` on, committed or not."""
        end_offset = self.log.end_offset
        while offset < end_offset:
            for batch in self.batches(offset, end_offset):
                yield from batch.records
                offset = batch.next_offset

    def find_voters(self, controls: Iterable[Control]) -> None:
        """Read the voters in the newest snapshot and the log after it."""
        snapshot = self.snapshot()
        self.history.clear()
        self._note(controls, snapshot.offset - 1)
        offset = snapshot.offset
        while offset < self.log.end_offset:
            data = self.read(offset, READ_BYTES)
            for position, header in split_batches(data, BATCH_BYTES_MAX):
                if header.is_control and header.next_offset > snapshot.offset:
                    self._note(read_controls(memoryview(data)[position : position + header.size_bytes]))
                offset = max(offset, header.next_offset)

    def newest_snapshot(self) -> Iterator[Batch]:
        """The batches of the newest snapshot, checked; empty when there is none. Raises DamagedMetadata."""
        if self.snapshots:
            yield from read_snapshot(self._env.filesystem, self.directory, self.snapshots[-1])

    def snapshot_taken(self, snapshot: SnapshotId) -> None:
        """A snapshot of this log exists; delete everything before the oldest one that is kept.

        A crash between any two of the steps leaves more than is needed, never less.
        """
        filesystem = self._env.filesystem
        self.snapshots = sorted({*self.snapshots, snapshot})
        self._is_roll_wanted = True
        self._roll_if_due()
        while len(self.snapshots) > SNAPSHOTS_KEPT:
            filesystem.unlink(self.directory / self.snapshots.pop(0).file_name)
        if len(self.snapshots) == SNAPSHOTS_KEPT:
            self._let_go_before(self.snapshots[0].end_offset)

    def _let_go_before(self, offset: int) -> None:
        now_ms = self._env.now_ms()
        self.log.advance_start_offset(offset)
        plan = plan_retention(
            self.log.segment_facts(),
            RetentionSettings(delete=False),
            now_ms,
            high_watermark=self.log.end_offset,
            log_start_offset=offset,
        )
        self.log.delete_segments(plan, now_ms)
        self.log.reap(now_ms)

    async def install(self, snapshot: SnapshotId, controls: Iterable[Control], sync: LogSync) -> None:
        """Start again from a pending snapshot, which is complete and synced; nothing else may use the log meanwhile.

        After an error, the log may be neither the former one nor the new one, and a restart must finish the change.
        """
        with self._failing_as_a_whole():
            await self._env.run_blocking(lambda: self._env.filesystem.sync_directory(self.directory))
            for _ in self.log.restart(snapshot.end_offset, self._env.now_ms()):
                await sync.barrier()
            await self._env.run_blocking(lambda: self._name_pending(snapshot))
        for old in self.snapshots:
            if old != snapshot:
                self._env.filesystem.unlink(self.directory / old.file_name)
        self.snapshots = [snapshot]
        self.find_voters(controls)
