"""Opens a log's directory: from the files on disk to consistent segments, epochs and producers.

After a clean shutdown everything on disk is complete, and only the end of the newest segment is looked up. After any
other shutdown the segments from the recovery point on are read, batch by batch with their checksums: the log ends
before the first torn batch, and indexes, epochs and producers are rebuilt on the way.

A power failure may also lose the end of a rolled segment but not the next one, since the disk writes files in any
order. After the recovery point every segment ends where the next one begins (a segment is rolled at the log's end, and
compaction waits until the recovery point has passed what it cleans), so the log ends at the first gap there. If the
machine stayed up and only the process ended, nothing written can be missing, and gaps are left alone.

After a sync that failed, programs read what the disk never got: the kernel has dropped the pages from what is to be
written, and has them in its cache. Unless the machine went down since, what is kept after the recovery point is
therefore written again before anything depends on it.

Damage before the recovery point is different: those bytes were durable, so it is not a torn tail but a failing disk,
and truncating there would lose acknowledged records after it. Such a batch stays where it is (it is never served, see
`valid_prefix`). If even its length is lost, the log refuses to open and no record is touched. Where the machine stayed
up the same is true of all that was written: only the end of a write that the process did not finish is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.core.replica.producer_state import ProducerState
from penstock.storage.checkpoint import CheckpointError
from penstock.storage.files import CorruptLogError, Filesystem
from penstock.storage.indexes import RELATIVE_OFFSET_MAX
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    offset_of,
)
from penstock.storage.partition_files import PartitionFiles
from penstock.storage.producers.aborted_transactions import AbortedTransactions
from penstock.storage.producers.replay import note_batch, replay_producers
from penstock.storage.producers.snapshot import (
    DamagedSnapshotError,
    decode_snapshot,
    encode_snapshot,
    is_worth_its_size,
)
from penstock.storage.scan import header_at, walk_headers
from penstock.storage.segment import Segment
from penstock.storage.segment_check import CHECK_CHUNK_BYTES, SegmentChecker
from penstock.storage.settings import LogSettings


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log had to do."""

    clean: bool
    segments_scanned: int = 0
    bytes_truncated: int = 0
    segments_removed: int = 0
    damaged: list[CorruptLogError] = field(default_factory=list)


@dataclass(slots=True)
class LoadedLog:
    """A directory's content, ready to become a `Log`."""

    home: PartitionFiles
    segments: list[Segment]
    epochs: LeaderEpochs
    epochs_changed: bool
    producers: ProducerState
    snapshots: list[int]
    start_offset: int
    end_offset: int
    flushed_offset: int
    report: RecoveryReport
    aborted: AbortedTransactions


def load_log(
    filesystem: Filesystem,
    path: Path,
    settings: LogSettings,
    *,
    recovery_point: int,
    clean: bool,
    now_ms: int,
    start_offset: int,
    lost_power: bool,
    stayed_up: bool = False,
    rewrites_from: int | None,
) -> LoadedLog:
    """Read a log's directory, creating it if there is none."""
    home = PartitionFiles(filesystem, path)
    loader = _Loader(
        home,
        settings,
        recovery_point,
        clean,
        now_ms,
        lost_power=lost_power,
        stayed_up=stayed_up,
        rewrites_from=rewrites_from,
    )
    return loader.load(start_offset)


class _Loader:
    def __init__(
        self,
        home: PartitionFiles,
        settings: LogSettings,
        recovery_point: int,
        clean: bool,
        now_ms: int,
        *,
        lost_power: bool,
        stayed_up: bool,
        rewrites_from: int | None,
    ) -> None:
        self.home = home
        self.settings = settings
        self.recovery_point = recovery_point
        self.now_ms = now_ms
        self.clean = clean
        self.lost_power = lost_power
        self.stayed_up = stayed_up
        self.rewrites_from = rewrites_from
        self.report = RecoveryReport(clean)
        self.segments: list[Segment] = []
        self.snapshots: list[int] = []
        self.bytes_since_snapshot = 0
        self.epochs = LeaderEpochs()
        self.epochs_changed = False
        self.producers = ProducerState()
        self.aborted = AbortedTransactions(home)
        # Files that an interrupted swap left under its suffix.
        self.swapped: list[str] = []

    def load(self, start_offset: int) -> LoadedLog:
        self._list_files()
        if not self.segments:
            self.segments.append(Segment.create(self.home, start_offset, self.now_ms, self.settings))
        epochs_known = self._read_epochs() and not self._epochs_lack_start()
        # A damaged index of a healthy segment is rebuilt by reading the markers again.
        damaged = self.aborted.load(segment.base_offset for segment in self.segments)
        self._finish_swaps()
        if self.clean and self._find_end():
            self._check_nothing_missing(self.segments[-1].next_offset)
            if not epochs_known:
                self._rebuild_epochs(self.segments)
            self._load_producers(self.segments[-1].next_offset)
        else:
            self._check_tail(epochs_known)
        end_offset = self.segments[-1].next_offset
        for base_offset in damaged:
            self._rebuild_aborted(base_offset)
        replay_producers(self.producers, self.segments, end_offset)
        if not self.settings.tiered:
            start_offset = max(start_offset, self.segments[0].base_offset)
        self.epochs_changed |= self.epochs.truncate_from_end(end_offset)
        self.epochs_changed |= self.epochs.truncate_from_start(start_offset)
        assert self.segments, "a log has a segment, if only an empty one"
        assert end_offset == self.segments[-1].next_offset
        return LoadedLog(
            self.home,
            self.segments,
            self.epochs,
            self.epochs_changed,
            self.producers,
            self.snapshots,
            start_offset,
            end_offset,
            min(self.recovery_point, end_offset) if self.report.segments_scanned else end_offset,
            self.report,
            self.aborted,
        )

    def _list_files(self) -> None:
        """List the directory, finishing what an interrupted process left half done."""
        try:
            names = self.home.names()
        except FileNotFoundError:
            self.home.filesystem.make_directory(self.home.path)
            self.home.filesystem.sync_directory(self.home.path.parent)
            return
        for name in [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX))]:
            self.home.unlink(name)
            del names[name]
        self._remove_replaced(names)
        interval = self.settings.index_interval_bytes
        for name in sorted(names):
            base_offset = offset_of(name.removesuffix(SWAP_SUFFIX), LOG_SUFFIX)
            if base_offset is not None:
                segment = Segment(self.home, base_offset, names[name], self.now_ms, interval)
                segment.suffix = SWAP_SUFFIX if name.endswith(SWAP_SUFFIX) else ""
                self.segments.append(segment)
            elif (offset := offset_of(name, SNAPSHOT_SUFFIX)) is not None:
                self.snapshots.append(offset)
        for name in names:
            if name.endswith(SEGMENT_SUFFIXES) and f"{name.partition('.')[0]}{LOG_SUFFIX}" not in names:
                self.home.unlink(name)

    def _remove_replaced(self, names: dict[str, int]) -> None:
        """A `.swap` segment is complete: remove the segments whose offsets it covers."""
        self.swapped = sorted(name for name in names if name.endswith(SWAP_SUFFIX))
        for name in [name for name in self.swapped if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]:
            base_offset = int(name.partition(".")[0])
            next_offset = base_offset + 1
            file = self.home.open(name)
            for _, header in walk_headers(file, 0, names[name]):
                next_offset = header.next_offset
            for other in list(names):
                if other.endswith(SEGMENT_SUFFIXES) and base_offset <= int(other.partition(".")[0]) < next_offset:
                    self.home.unlink(other)
                    del names[other]

    def _finish_swaps(self) -> None:
        """Give the segments of interrupted swaps their names.

        Their indexes of aborted transactions may be the former ones, or missing. They are made again before the last
        file loses the suffix, durably: another start would not know that they are wrong.
        """
        for base_offset in sorted({int(name.partition(".")[0]) for name in self.swapped}):
            self._rebuild_aborted(base_offset)
        if self.swapped:
            self.home.filesystem.sync_directory(self.home.path)
        for segment in self.segments:
            if segment.suffix:
                self.home.unlink(segment.file_name(TRANSACTION_INDEX_SUFFIX))
                segment.rename("")
        for name in self.swapped:
            # Those of a log file that has its name already.
            self.home.unlink(name)

    def _read_epochs(self) -> bool:
        try:
            self.epochs = LeaderEpochs.from_bytes(self.home.read(LEADER_EPOCH_CHECKPOINT))
        except FileNotFoundError:
            return all(segment.size == 0 for segment in self.segments)
        except CheckpointError:
            return False
        return True

    def _epochs_lack_start(self) -> bool:
        """Whether the checkpoint lacks epochs of records that were deleted, as their deletion was not recorded."""
        first, entries = self.segments[0], self.epochs.entries
        if self.settings.tiered or not entries or not first.size or entries[0].start_offset <= first.base_offset:
            return False
        try:
            return header_at(first.file, 0, first.size).base_offset < entries[0].start_offset
        except CorruptLogError:
            return False
        finally:
            first.release()

    def _epochs_reach(self, segment: Segment) -> bool:
        """Whether the checkpoint has the epoch that a segment ends with; a full disk may have prevented that."""
        try:
            with segment.visited():
                segment.load_indexes()
                last = header_at(segment.file, segment.position_of(segment.next_offset - 1), segment.size)
        except CorruptLogError:
            return True
        return self.epochs.epoch_for_offset(last.base_offset) == last.partition_leader_epoch

    def _rebuild_epochs(self, segments: Sequence[Segment]) -> None:
        """The checkpoint is lost; every batch still carries its epoch."""
        self.epochs = LeaderEpochs()
        self.epochs_changed = True
        for segment in segments:
            try:
                with segment.visited():
                    for _, header in walk_headers(segment.file, 0, segment.size):
                        if header.partition_leader_epoch > self.epochs.latest:
                            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            except CorruptLogError:
                # Epochs after the damage are unknown here; checking the tail adds them.
                continue

    def _find_end(self) -> bool:
        """Look up where the log ends after a clean shutdown; False when it was not clean after all."""
        active = self.segments[-1]
        active.load_indexes()
        active.release()
        return active.damage is None

    def _check_nothing_missing(self, end_offset: int) -> None:
        """Raise CorruptLogError if a log that was stopped cleanly has lost records since, which were durable then."""
        last = self.segments[-1]
        if self.clean and end_offset < self.recovery_point:
            problem = f"the log ends at offset {end_offset}, and was durable up to {self.recovery_point}"
            raise CorruptLogError(last.file.path, last.size, problem)

    def _check_tail(self, epochs_known: bool) -> None:
        """Read the log from the segment that holds the recovery point."""
        first = len(self.segments) - 1
        while first > 0 and self.segments[first].base_offset > self.recovery_point:
            first -= 1
        if not epochs_known or (first and not self._epochs_reach(self.segments[first - 1])):
            self._rebuild_epochs(self.segments[:first])
        self._load_producers(self.segments[first].base_offset)
        for number in range(first, len(self.segments)):
            if self._check_segment(number):
                break

    def _load_producers(self, offset_max: int) -> None:
        """Start from the newest complete snapshot that is not after `offset_max`; later ones are not trusted."""
        while self.snapshots:
            offset = self.snapshots[-1]
            try:
                if offset <= offset_max:
                    entries = decode_snapshot(self.home.read(file_name(offset, SNAPSHOT_SUFFIX)))
                    expiration_ms = self.settings.producer_id_expiration_ms
                    self.producers.load(entries, offset, self.now_ms, expiration_ms)
                    return
            except (DamagedSnapshotError, FileNotFoundError):
                pass
            self.home.unlink(file_name(self.snapshots.pop(), SNAPSHOT_SUFFIX))
        self.producers.clear(self.segments[0].base_offset)

    def _check_segment(self, number: int) -> bool:
        """Read one segment; True when the log ends with it, because it is torn or the next does not follow."""
        segment = self.segments[number]
        replay_producers(self.producers, self.segments, segment.base_offset)
        if number and segment.base_offset not in self.snapshots:
            self.bytes_since_snapshot += self.segments[number - 1].size
            if self.settings.tiered or is_worth_its_size(len(self.producers), self.bytes_since_snapshot):
                self._take_snapshot(segment.base_offset)
        checker = SegmentChecker(
            segment,
            self.epochs,
            self.producers,
            self.recovery_point,
            has_later=any(self.segments[later].size for later in range(number + 1, len(self.segments))),
            # After a clean stop everything was durable, whatever became of the machine since.
            lost_power=self.lost_power and not self.clean,
            stayed_up=self.stayed_up,
        )
        size = segment.size
        valid = checker.run()
        assert 0 <= valid <= size, "what is valid is a part of the segment"
        assert checker.next_offset >= segment.base_offset
        self.epochs_changed |= checker.epochs_changed
        self.aborted.rebuild(segment.base_offset, checker.aborted)
        self.report.damaged += checker.damaged
        self.report.segments_scanned += 1
        if size:
            self.home.await_sync(segment.name, segment.file)
            # The former process may have created or renamed it, and died before it synced the directory.
            self.home.await_directory_sync()
        if self.rewrites_from is not None and self.rewrites_from < checker.next_offset:
            self._rewrite(segment, valid, self.rewrites_from)
        if valid == size and not self._gap_after(number):
            if number < len(self.segments) - 1:
                segment.save_indexes()
                segment.release()
            if number == len(self.segments) - 1:
                self._check_nothing_missing(checker.next_offset)
            return False
        self._check_nothing_missing(checker.next_offset)
        # Before the segment seems whole to a start that is to remove the rest.
        self._remove_after(number)
        if valid < size:
            segment.truncate(valid, checker.next_offset)
            self.report.bytes_truncated += size - valid
        return True

    @staticmethod
    def _rewrite(segment: Segment, size: int, offset: int) -> None:
        """Write what is kept from an offset on once more, in place.

        A sync that failed leaves pages in the cache which the kernel takes for written. Reading them shows what a power
        failure would lose, and the next sync would leave them out.
        """
        position = segment.position_of(offset) if offset > segment.base_offset else 0
        while position < size:
            chunk = segment.file.read(position, min(CHECK_CHUNK_BYTES, size - position))
            segment.file.overwrite(chunk, position)
            position += len(chunk)

    def _gap_after(self, number: int) -> bool:
        """Whether offsets between a segment and the next one were lost.

        A gap that no single segment can span was not lost: a replicated compacted log has such gaps.
        """
        if not self.lost_power or number + 1 == len(self.segments):
            return False
        segment, following = self.segments[number], self.segments[number + 1]
        spans = following.base_offset - segment.base_offset
        return segment.next_offset < following.base_offset and spans <= RELATIVE_OFFSET_MAX

    def _remove_after(self, number: int) -> None:
        """Remove the segments behind one that ends the log, the newest first: a crash in between leaves no gap."""
        for later in reversed(self.segments[number + 1 :]):
            self.report.bytes_truncated += later.size
            self.report.segments_removed += 1
            self.aborted.forget(later.base_offset)
            for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
                self.home.unlink(file_name(later.base_offset, suffix))
            if later.base_offset in self.snapshots:
                self.snapshots.remove(later.base_offset)
        if self.segments[number + 1 :]:
            # Before anything is appended, which could be durable where they are not gone.
            self.home.filesystem.sync_directory(self.home.path)
        del self.segments[number + 1 :]
        assert len(self.segments) == number + 1, "the log ends with the segment that is torn"

    def _rebuild_aborted(self, base_offset: int) -> None:
        """Find a segment's aborted transactions again, durably; they start at the producers' first records."""
        segments = [segment for segment in self.segments if segment.base_offset <= base_offset]
        producers = ProducerState(self.segments[0].base_offset)
        found = []
        for segment in segments:
            for position, header in walk_headers(segment.file, 0, segment.size):
                aborted = note_batch(producers, header, segment.file, position)
                if aborted is not None and segment.base_offset == base_offset:
                    found.append(aborted)
            segment.release()
        self.aborted.rebuild(base_offset, found, durable=True)

    def _take_snapshot(self, offset: int) -> None:
        assert not self.snapshots or offset > self.snapshots[-1], "snapshots are in order"
        self.home.write(file_name(offset, SNAPSHOT_SUFFIX), encode_snapshot(self.producers.entries))
        self.snapshots.append(offset)
        self.bytes_since_snapshot = 0
