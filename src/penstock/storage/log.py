"""The log of one partition: batches in segments on disk, appended at one end and deleted at the other.

A log is used from one thread; only `FlushTicket.run` may run elsewhere. Nothing here waits for the disk except `flush`,
`close` and truncation; the caller decides when to sync and what to acknowledge. After an error that leaves the disk in
doubt the log is failed for good: reads still work, appends do not.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from penstock.core.lifecycle.retention import RetentionPlan, SegmentFacts
from penstock.model.errors import ApiError, ErrorCode
from penstock.storage.compaction.swap import CleanedSegment, SegmentSwap
from penstock.storage.damage import SegmentToCheck
from penstock.storage.files import Filesystem, StorageError
from penstock.storage.flush import FlushTicket
from penstock.storage.indexes import RELATIVE_OFFSET_MAX
from penstock.storage.names import LEADER_EPOCH_CHECKPOINT, TEMPORARY_SUFFIX, deletion_directory_name
from penstock.storage.producers.history import ProducerHistory
from penstock.storage.producers.replay import read_end_markers
from penstock.storage.recovery import LoadedLog, RecoveryReport, load_log
from penstock.storage.segment import Segment
from penstock.storage.segment_copy import TierCopy, TierHistory, copy_of
from penstock.storage.segment_facts import earliest_timestamp, facts_of
from penstock.storage.segments import Segments, next_base_offset
from penstock.storage.settings import INT64_MAX, LogSettings
from penstock.storage.slices import EMPTY_SLICE, LogSlice, cut, end_before, limit_before
from penstock.storage.timestamps import TimestampOffset, first_at_or_after, largest
from penstock.wire.record_types import Buffer
from penstock.wire.records import BatchHeader

__all__ = ["FlushTicket", "Log", "LogSettings", "LogSlice", "RecoveryReport", "TimestampOffset"]


# What a file takes beyond its content, so that many small segments do not go for nothing.
FILE_OVERHEAD_BYTES = 4096
# So many files every log has: those of two segments, and a few small ones.
FILES_OF_A_SMALL_LOG = 12


class Log:
    """One partition's batches. `end_offset` is the next offset, `flushed_offset` the end of what is durable.

    Besides appending and reading, `epochs` has the leader epochs, `producers` the state of producers, and `recovery`
    what opening the log had to repair.
    """

    __slots__ = (
        "_active",
        "_epochs_changed",
        "_failure",
        "_generation",
        "_history",
        "_home",
        "_segments",
        "aborted",
        "durable_start_offset",
        "end_offset",
        "epochs",
        "flushed_offset",
        "has_unsynced_segment",
        "producers",
        "recovery",
        "settings",
        "start_offset",
    )

    def __init__(self, loaded: LoadedLog, settings: LogSettings) -> None:
        self.settings = settings
        self.recovery: RecoveryReport = loaded.report
        self.start_offset = loaded.start_offset
        # The start offset that a restart would find. A tiered log keeps the segments behind it.
        self.durable_start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.flushed_offset = loaded.flushed_offset
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.aborted = loaded.aborted
        self._home = loaded.home
        self._history = ProducerHistory(loaded.home, loaded.producers, loaded.aborted, loaded.snapshots)
        self._segments = Segments(loaded.home, loaded.segments, loaded.aborted, self._history)
        self._active = self._segments[-1]
        assert self.flushed_offset <= self.end_offset, "no more is durable than there is"
        assert all(one.base_offset < two.base_offset for one, two in pairwise(self._segments)), "segments are in order"
        self._epochs_changed = loaded.epochs_changed
        self._failure: str | None = None
        # Counts truncations, so that a sync begun before one does not count for what was written after it.
        self._generation = 0
        # Whether a rolled segment waits for a sync; it keeps four files open until then.
        self.has_unsynced_segment = False

    @classmethod
    def open(
        cls,
        filesystem: Filesystem,
        directory: Path,
        settings: LogSettings,
        *,
        recovery_point: int,
        clean: bool,
        now_ms: int,
        start_offset: int = 0,
        lost_power: bool = True,
        stayed_up: bool = False,
        rewrites_from: int | None = None,
    ) -> Log:
        """Open a partition's directory, or create it.

        `recovery_point` is the checkpointed `flushed_offset`, `clean` whether the last shutdown was clean, `lost_power`
        whether bytes that were written but never synced may be missing, `stayed_up` whether all that was ever written
        is certainly there, but for the end of a write that a killed process did not finish. If a sync may have failed
        since the machine started, everything after the offset `rewrites_from` is written again. Raises
        CorruptLogError, with no record touched, when stored records are too damaged to be skipped.
        """
        loaded = load_log(
            filesystem,
            directory,
            settings,
            recovery_point=recovery_point,
            clean=clean,
            now_ms=now_ms,
            start_offset=start_offset,
            lost_power=lost_power,
            stayed_up=stayed_up,
            rewrites_from=rewrites_from,
        )
        log = cls(loaded, settings)
        if log.start_offset > log.end_offset:
            log.truncate_fully_and_start_at(log.start_offset, now_ms)
        log.close_files()
        return log

    @property
    def directory(self) -> Path:
        return self._home.path

    @property
    def local_start_offset(self) -> int:
        """The first offset on this disk; what is between it and `start_offset` is in object storage."""
        return max(self.start_offset, self._segments[0].base_offset)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def disk_bytes(self) -> int:
        """About how much disk space all files of the log take. Blocks, in any thread."""
        sizes = [size for size in self._home.names().values() if size > 0]
        return sum(sizes) + FILE_OVERHEAD_BYTES * max(0, len(sizes) - FILES_OF_A_SMALL_LOG)

    @property
    def newest_segment_bytes(self) -> int:
        return self._active.size

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def is_failed(self) -> bool:
        return self._failure is not None

    @property
    def is_swapping(self) -> bool:
        """Whether a cleaned segment is taking the place of others."""
        return self._segments.is_swapping

    @property
    def generation(self) -> int:
        """Changes with every truncation: what was read in another generation may no longer be true."""
        return self._generation

    def segment_facts(self) -> list[SegmentFacts]:
        """What retention needs to know of each segment, oldest first. May load indexes from disk."""
        return facts_of(self._segments, self.end_offset)

    def earliest_timestamp(self, offset: int) -> int | None:
        """The smallest first timestamp of the rolled segments that reach past `offset`."""
        return earliest_timestamp(self._segments, offset)

    def closed_segment(self, offset: int) -> tuple[int, SegmentToCheck] | None:
        """The first closed segment that begins at or after `offset`, with its base offset; None if there is none."""
        for segment in self._segments[:-1]:
            if segment.base_offset >= offset:
                return segment.base_offset, SegmentToCheck(segment, self._generation, segment.size)
        return None

    def segments_to_check(self, path: Path | None) -> list[SegmentToCheck]:
        """The segment that has a file, with all that was appended to it so far; every one if none has it any more."""
        found = [SegmentToCheck(segment, self._generation, segment.size) for segment in self._segments]
        return [one for one in found if one.path == path] or found

    def has(self, checked: SegmentToCheck) -> bool:
        """Whether a segment is still part of the log, and has what it had."""
        return checked.generation == self._generation and checked.segment in self._segments

    def append(self, headers: Sequence[BatchHeader], data: Buffer, now_ms: int) -> None:
        """Append batches that carry their final offsets and leader epochs; `headers` describe all of `data`.

        Either all of it is appended or StorageError is raised and the log is as before. Raises ValueError for batches
        that do not continue the log, are not what `headers` describe, or are too far apart for one segment.
        """
        if self._failure is not None:
            raise StorageError(self._failure)
        first_offset = headers[0][0]
        last = headers[-1]
        last_offset = last[0] + last[6]
        size = len(data)
        if first_offset < self.end_offset:
            raise ValueError(f"offset {first_offset} lies before the log's end {self.end_offset}")
        if len(headers) == 1:
            max_timestamp = last[8]
            described = last[1] + 12
        else:
            if last_offset - first_offset > RELATIVE_OFFSET_MAX:
                raise ValueError(f"offsets {first_offset} to {last_offset} do not fit into one segment")
            max_timestamp = max(header[8] for header in headers)
            described = sum(header[1] + 12 for header in headers)
        if described != size:
            raise ValueError(f"headers describe {described} bytes, data has {size}")
        settings = self.settings
        markers = read_end_markers(headers, data)
        segment = self._active
        try:
            jitter_ms = segment.jitter_ms(settings) if settings.segment_jitter_ms else 0
            if segment.must_roll(size, last_offset, max_timestamp, now_ms, settings, jitter_ms):
                segment = self._roll(next_base_offset(self.end_offset, first_offset, last_offset), now_ms)
            # Without descriptors nothing may be appended: the marker would be there without its transaction's entry.
            index = self._history.open_index(markers, segment.base_offset) if markers is not None else None
            segment.append(headers, data, settings.index_interval_bytes)
        except StorageError as error:
            segment.may_be_torn = True
            if not error.is_passing:
                self.fail(error)
            raise
        self.end_offset = last_offset + 1
        assert segment.next_offset == self.end_offset, "a log ends where its newest segment does"
        epochs = self.epochs
        for header in headers:
            if header[2] > epochs.latest:
                self._epochs_changed |= epochs.assign(header[2], header[0])
        try:
            self._history.note(headers, markers, self._active.base_offset, self.end_offset, now_ms, index)
        except StorageError as error:
            self.fail(error)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Record that a leader epoch begins here, before its first batch."""
        if epoch > self.epochs.latest:
            self._epochs_changed |= self.epochs.assign(epoch, start_offset)

    def roll(self, now_ms: int) -> None:
        """Finish the newest segment and start another; does nothing if it is empty."""
        self._refuse_if_failed()
        if self._active.size:
            self._roll(self.end_offset, now_ms)

    def roll_if_due(self, now_ms: int, age_max_ms: int = INT64_MAX) -> bool:
        """Roll a segment that has reached its maximum age, or `age_max_ms`, although nothing is appended to it."""
        active = self._active
        age_max_ms = min(age_max_ms, self.settings.segment_ms - active.jitter_ms(self.settings))
        if not active.size or active.age_ms(now_ms, now_ms) <= age_max_ms:
            return False
        self.roll(now_ms)
        return True

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        active = self._active
        if base_offset == active.base_offset:
            return active
        if active.size:
            active.save_indexes()
            if self.settings.preallocate or active.may_be_torn:
                # What lies behind the last batch would be damage in the middle of the log.
                active.file.truncate(active.size)
            self._home.await_sync(active.name, active.file)
        self._history.rolled(active.size, base_offset, self._segments[0].base_offset, is_tiered=self.settings.tiered)
        segment = Segment.create(self._home, base_offset, now_ms, self.settings)
        self._segments.append(segment)
        self._active = segment
        self.has_unsynced_segment = True
        assert self._segments[-1] is segment
        assert not segment.size
        active.release()
        return segment

    def read(
        self, offset: int, size_max: int, *, offset_max: int | None = None, minimum_one_batch: bool = True
    ) -> LogSlice:
        """Whole batches from the one that holds `offset`, out of one segment and at most `size_max` bytes.

        No batch with records at or past `offset_max` is included. With `minimum_one_batch` the first batch comes
        even if it is larger than `size_max`. The slice is empty when there is nothing (yet) to read.
        """
        end_offset = self.end_offset
        if not self.start_offset <= offset <= end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is not in {self._home.path.name}, which has {self.start_offset} to {end_offset}.",
            )
        if offset_max is None or offset_max > end_offset:
            offset_max = end_offset
        if offset >= offset_max:
            return EMPTY_SLICE
        segment = active = self._active
        if offset < active.base_offset:
            segment, start, segment_end = self._segments.find_older(offset, end_offset)
        else:
            start = active.position_of(offset)
            segment_end = end_offset
        size = segment.size
        limit = size if offset_max >= segment_end else limit_before(segment, offset_max, start)
        if limit - start > size_max:
            limit = cut(segment, start, limit, size_max, minimum_one_batch)
        if limit <= start:
            return EMPTY_SLICE
        assert 0 <= start < limit <= size, "a slice is whole batches of its segment"
        return LogSlice(segment.file, start, limit - start, segment is not active or start < segment.unverified_size)

    def close_files(self) -> None:
        """Close all descriptors; files are opened again when they are needed. Reserved space stays open."""
        self._segments.close_opened()
        active = self._active
        if self.settings.preallocate and active.is_open:
            return
        if active.is_open and self.end_offset > self.flushed_offset:
            self._home.await_sync(active.name, active.file)
        active.close_file()
        self._home.let_go()

    def on_open(self, listener: Callable[[], None]) -> None:
        """Have `listener` called before a file is opened that stays open."""
        self._home.on_open = listener

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record that is not older than `timestamp`, or None."""
        return first_at_or_after(self._segments, timestamp, self.start_offset)

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp, or None for an empty log."""
        return largest(self._segments)

    @property
    def is_flush_due(self) -> bool:
        """Whether `flush.messages` requires a sync now."""
        return self.end_offset - self.flushed_offset >= self.settings.flush_messages

    def begin_flush(self) -> FlushTicket | None:
        """Draw a ticket for everything appended so far; None when all of it is durable already."""
        self._refuse_if_failed()
        assert self.flushed_offset <= self.end_offset, "no more is durable than there is"
        unflushed = self.end_offset > self.flushed_offset
        if not (unflushed or self._epochs_changed or self._home.has_unsynced):
            return None
        if unflushed and self._active.is_open:
            self._home.await_sync(self._active.name, self._active.file)
        files, directory_changed = self._home.take_unsynced()
        self.has_unsynced_segment = False
        epochs = (LEADER_EPOCH_CHECKPOINT, self.epochs.to_bytes()) if self._epochs_changed else None
        self._epochs_changed = False
        return FlushTicket(self._home, files, directory_changed, epochs, self.end_offset, self._generation)

    def finish_flush(self, ticket: FlushTicket) -> None:
        """Hand back a ticket whose `run` returned.

        Raises StorageError, a passing one where another sync is necessary before anything counts as durable.
        """
        if ticket.directory_missing and self._failure is None:
            raise self.fail(StorageError(f"The directory {self._home.path} has disappeared."))
        self._epochs_changed |= ticket.epochs_unsaved
        if ticket.delay is not None:
            self._home.await_directory_sync()
            raise ticket.delay
        if ticket.generation == self._generation:
            assert ticket.end_offset <= self.end_offset, (
                "only a truncation takes records away, and begins another generation"
            )
            self.flushed_offset = max(self.flushed_offset, ticket.end_offset)

    def flush(self) -> None:
        """Make everything appended so far durable, blocking; failures but a lack of descriptors fail the log."""
        self._flush(self.begin_flush())

    def _flush(self, ticket: FlushTicket | None) -> None:
        if ticket is None:
            return
        try:
            ticket.run()
        except StorageError as error:
            self.fail(error)
            raise
        self.finish_flush(ticket)

    def fail(self, error: StorageError) -> StorageError:
        """Reject all writes from now on: after a failed sync it is unknown what the disk holds."""
        if self._failure is None:
            self._failure = f"{self._home.path.name} accepts no more writes since: {error.message}"
        return error

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise StorageError(self._failure)

    def truncate_to(self, offset: int, now_ms: int = 0) -> bool:
        """Remove everything from `offset` on; True when something was removed. Blocks.

        A batch that reaches past `offset` is removed as a whole; the log then ends after the last remaining batch. The
        truncation is durable on return; the caller should checkpoint the lowered `flushed_offset`.
        """
        return self._carry_out(self.truncation(offset, now_ms))

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Remove everything; the log is empty and starts and ends at `offset`. Blocks.

        If the disk has no room for the new segment StorageError is raised, and the log is as before.
        """
        self._carry_out(self.restart(offset, now_ms))

    def start_from_tier(self, offset: int, start_offset: int, history: TierHistory, now_ms: int) -> None:
        """Remove everything and continue at `offset`; what is before it, from `start_offset` on, is in the tier.

        Blocks.
        """
        for _ in self.restart_from_tier(offset, start_offset, history, now_ms):
            self.flush()
            if self._epochs_changed:
                raise StorageError(f"The disk has no room for the epochs of {self._home.path}.", errno.ENOSPC)

    def _carry_out(self, steps: Iterator[int]) -> bool:
        changed = False
        for _ in steps:
            self.flush()
            changed = True
        return changed

    def truncation(self, offset: int, now_ms: int = 0) -> Iterator[int]:
        """The steps of `truncate_to`, of which none waits for the disk.

        Whenever a step yields, what was changed so far must become durable, and no checkpoint of this log may be past
        the yielded offset, before the iterator is resumed. The log may be read meanwhile, but not appended to. A crash
        at any time leaves a log without a gap: a prefix of the former one.
        """
        self._refuse_if_failed()
        if offset < 0:
            raise ValueError(f"cannot truncate to offset {offset}")
        if offset >= self.end_offset:
            # The leader may have noted an epoch of ours that never got a batch.
            self._epochs_changed |= self.epochs.truncate_from_end(self.end_offset)
            return
        if offset < self._segments[0].base_offset:
            yield from self.restart(offset, now_ms, keeps_epochs=self.settings.tiered)
            return
        # A start must not find a swap that brings back what is truncated.
        if self._segments.settle_swap():
            # No other may begin meanwhile.
            self._generation += 1
            yield self.end_offset
            self._refuse_if_failed()
        # A segment may be rolled between the steps.
        while later := self._segments[self._segments.number_of(offset) + 1 :]:
            kept = self._segments[self._segments.number_of(offset)]
            if kept.suffix:
                # It is to grow under its own name, which it gets when those that it replaced are gone for good.
                yield self.end_offset
                self._refuse_if_failed()
                self._finish_name(kept)
                continue
            remaining_end = end_before(kept, kept.position_of(offset))
            self._set_end(later[0].base_offset)
            self._segments.cut_off(later)
            self._segments.forget_opened(kept)
            kept.unverified_size = kept.size
            self._active = kept
            for _ in self._reload_history(now_ms):
                yield remaining_end
                self._refuse_if_failed()
            # Only once they are gone for good: otherwise a power failure could bring them back behind what is cut next.
            yield remaining_end
            self._refuse_if_failed()
        segment = self._active
        position = segment.position_of(offset)
        offset = end_before(segment, position)
        segment.load()
        # From here on the log is not what it was, also if an error leaves it open what of the segment is gone.
        self._set_end(offset)
        segment.truncate(position, offset)
        for _ in self._reload_history(now_ms):
            yield offset
            self._refuse_if_failed()
        # What was removed must not reappear after a crash, least of all in the middle of what replaces it.
        yield offset

    def _reload_history(self, now_ms: int) -> Iterator[None]:
        self.aborted.truncate(self.end_offset)
        return self._history.reload(self._segments, self.end_offset, now_ms, self.settings.producer_id_expiration_ms)

    def restart(self, offset: int, now_ms: int = 0, *, keeps_epochs: bool = False) -> Iterator[int]:
        """The steps of `truncate_fully_and_start_at`, to be used as those of `truncation`.

        The new segment gets its name when the former ones are gone for good. A crash before that leaves a prefix of the
        former log, or an empty one.
        """
        segment = self._begin_again(offset, now_ms)
        self.start_offset = min(self.start_offset, offset) if self.settings.tiered else offset
        if not keeps_epochs:  # which tell what to read of the tier
            self.epochs.clear()
        self._set_end(offset)
        yield offset
        self._refuse_if_failed()
        segment.rename("")
        yield offset

    def restart_from_tier(self, offset: int, start_offset: int, history: TierHistory, now_ms: int) -> Iterator[int]:
        """The steps of `start_from_tier`, to be used as those of `truncation`.

        The new segment gets its name when the epochs and producers before it are durable: a log that begins without
        them would not find its records in the tier, and would store what producers repeat.
        """
        segment = self._begin_again(offset, now_ms)
        self.epochs.clear()
        self._set_end(offset)
        self.start_offset = start_offset
        # It may start before where it did: the epochs from there on are needed.
        self.durable_start_offset = min(self.durable_start_offset, start_offset)
        self._epochs_changed |= history.assign_epochs(self.epochs, start_offset, offset)
        self._history.adopt(offset, history.producers, now_ms, self.settings.producer_id_expiration_ms)
        yield offset
        while self._epochs_changed:
            # The disk had no room for them.
            self._refuse_if_failed()
            yield offset
        self._refuse_if_failed()
        segment.rename("")
        yield offset

    def _begin_again(self, offset: int, now_ms: int) -> Segment:
        """Remove every segment, and continue with an empty one under a temporary name."""
        self._refuse_if_failed()
        self._segments.settle_swap()
        segment = Segment.create(self._home, offset, now_ms, self.settings, TEMPORARY_SUFFIX)
        # From here on the log is not what it was, also if removing the segments stops half-way.
        self._generation += 1
        self._segments.cut_off(list(self._segments))
        self._active = segment
        self._segments.append(segment)
        assert len(self._segments) == 1
        assert segment.base_offset == offset
        self._history.clear(offset)
        return segment

    @property
    def has_unsaved_epochs(self) -> bool:
        """Whether the next sync has epochs to save; after one, the disk had no room for them."""
        return self._epochs_changed

    def tier_copy(self, base_offset: int) -> TierCopy | None:
        """What is copied of a rolled segment; None if it is gone. May read indexes from disk."""
        return copy_of(self._segments, base_offset, self.epochs)

    def _set_end(self, offset: int) -> None:
        self._generation += 1
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.durable_start_offset = min(self.durable_start_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        assert self.start_offset <= self.end_offset
        assert self.durable_start_offset <= self.end_offset
        self.epochs.truncate_from_end(offset)
        self._epochs_changed = True

    def advance_start_offset(self, offset: int) -> bool:
        """Make everything before `offset` unreadable; retention removes the segments. False if it already is.

        A tiered log keeps the epochs until `note_durable_start`: of records that are not on this disk nothing else here
        has them, and after a crash it may start where it did before.
        """
        if offset > self.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"Offset {offset} lies past the log's end {self.end_offset}.")
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        if not self.settings.tiered:
            self._epochs_changed |= self.epochs.truncate_from_start(offset)
        return True

    def note_durable_start(self, offset: int) -> None:
        """A restart would find that the log starts at `offset`, or later."""
        self.durable_start_offset = max(self.durable_start_offset, min(offset, self.start_offset))
        self._epochs_changed |= self.epochs.truncate_from_start(self.durable_start_offset)

    def delete_segments(self, plan: RetentionPlan, now_ms: int) -> int:
        """Carry out a retention plan: roll if it requires that, and set segments aside; returns the bytes set aside.

        Their files are renamed at once and removed by `reap` after `file.delete.delay.ms`. A tiered log keeps, for a
        later call, what the tier does not have as long as its start offset is not durable: after a crash the log would
        start before what is deleted here.
        """
        self._refuse_if_failed()
        doomed = [segment for segment in self._segments if segment.base_offset in plan.delete]
        if self.settings.tiered:
            kept_from, segments = max(self.durable_start_offset, plan.copied_offset + 1), self._segments
            doomed = [segment for segment in doomed if segments.end_of(segment, self.end_offset) <= kept_from]
        if not doomed:
            return 0
        if len(doomed) == len(self._segments):
            self.roll(now_ms)
            doomed = [segment for segment in doomed if segment is not self._active]
        assert doomed == self._segments[: len(doomed)]
        assert self._active not in doomed, "a log keeps its newest segment"
        self._store_producers_of_deleted(self._segments[len(doomed)].base_offset)
        try:
            self._segments.set_aside(doomed, now_ms + self.settings.file_delete_delay_ms)
        finally:
            if not self.settings.tiered:
                self.advance_start_offset(self._segments[0].base_offset)
        return sum(segment.size for segment in doomed)

    def _store_producers_of_deleted(self, start_offset: int) -> None:
        try:
            if self._history.take_snapshot_at_start(start_offset):
                # It is synced with the next check of logs.
                self.has_unsynced_segment = True
        except StorageError as error:
            # What is deleted makes room on a full disk.
            if not error.is_passing:
                raise

    def reap(self, now_ms: int) -> int:
        """Remove the files whose delay has passed; returns how many."""
        return self._segments.reap(now_ms)

    def begin_swap(self, cleaned: CleanedSegment, generation: int) -> SegmentSwap | None:
        """Decide that a cleaned segment replaces others. None, and it is removed, if these have changed."""
        self._refuse_if_failed()
        is_current, interval = generation == self._generation, self.settings.index_interval_bytes
        return self._segments.begin_swap(cleaned, is_current=is_current, interval_bytes=interval)

    def apply_swap(self, swap: SegmentSwap, now_ms: int) -> bool:
        """Have readers use the new segment and set the old ones aside; False if they were removed meanwhile.

        It can be called again after a StorageError that passes, as can `finish_swap`.
        """
        self._refuse_if_failed()
        return self._segments.apply_swap(swap, now_ms + self.settings.file_delete_delay_ms)

    def finish_swap(self, swap: SegmentSwap) -> None:
        """Give the new segment its name."""
        if self._failure is None:
            self._finish_name(swap.segment)

    def _finish_name(self, segment: Segment) -> None:
        if segment.suffix and segment in self._segments:
            segment.rename("")

    def begin_close(self) -> FlushTicket | None:
        """Write what a clean close leaves, and draw a ticket for it: after its flush `close` waits for no disk."""
        self._refuse_if_failed()
        self._active.save_indexes()
        if (self.settings.preallocate and self._active.is_open) or self._active.may_be_torn:
            self._active.file.truncate(self._active.size)
            self._home.await_sync(self._active.name, self._active.file)
        self._history.take_snapshot(self.end_offset, self._segments[0].base_offset)
        return self.begin_flush()

    def close(self, *, clean: bool = True) -> None:
        """Close the log. A clean close leaves nothing to recover; it raises StorageError if that is not possible."""
        try:
            if clean and self._failure is None:
                self._flush(self.begin_close())
        finally:
            for segment in self._segments:
                segment.release()
            if self._failure is None:
                self._failure = f"{self._home.path.name} is closed"

    def take_place_of(self, other: Log) -> None:
        """Become the log that `other` is, which ends at the same offset: by name, with its producers and its start.

        The rename is not durable yet. If StorageError is raised, this log must be given up.
        """
        assert self.end_offset == other.end_offset
        self._history.take_over(other.producers, other.end_offset)
        self._home.move_to(self._home.path.with_name(other.directory.name))
        self.producers, self.settings = other.producers, other.settings
        self.advance_start_offset(other.start_offset)

    def delete_directory(self, unique: bytes, *, durable: bool = True) -> Path:
        """Rename the directory out of the way and close the log.

        `unique` is sixteen random bytes. The caller removes the returned directory when its readers are done, and
        syncs its parent unless the rename is to be `durable` on return.
        """
        self.close(clean=False)
        target = self._home.path.with_name(deletion_directory_name(self._home.path.name, unique))
        self._home.filesystem.rename(self._home.path, target)
        if durable:
            self._home.filesystem.sync_directory(target.parent)
        return target
