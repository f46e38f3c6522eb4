"""Opening a log's directory: from what lies on disk to segments, epochs and producers that agree with each other.

After a clean stop everything on disk is whole, and only the newest segment's end is looked up. After any other stop
the segments from the recovery point on are read through, batch by batch with their checksums: the log ends before
the first batch that is torn, and indexes, epochs and producers are rebuilt on the way.

Damage before the recovery point is something else: those bytes were durable, so they are not a torn tail but a
failing disk, and cutting there would throw away acknowledged records that lie behind. Such a batch stays where it is
(it is never served, see `valid_prefix`). If even its length is lost, the log refuses to open and nothing is changed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.core.replica.producer_state import BATCHES_KEPT, ProducerState
from penstock.storage.checkpoint import CheckpointError
from penstock.storage.files import CorruptLogError, Filesystem
from penstock.storage.indexes import RELATIVE_OFFSET_MAX
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log_directory import LogDirectory
from penstock.storage.markers import read_end_marker
from penstock.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    file_name,
    offset_of,
)
from penstock.storage.producer_snapshot import DamagedSnapshotError, decode_snapshot, encode_snapshot
from penstock.storage.scan import header_at, walk_headers
from penstock.storage.segment import NO_TIMESTAMP, Segment
from penstock.storage.settings import LogSettings
from penstock.wire.kernel import scan_batches
from penstock.wire.records import HEADER_SIZE, BatchError, BatchHeader, read_header

# Small enough to be summed while it is still in the processor's cache.
CHECK_CHUNK_BYTES = 1024 * 1024

# Where a header has its leader epoch, its magic, the lower byte of its attributes, and its producer id.
_EPOCH_AT = 12
_MAGIC_AT = 16
_ATTRIBUTES_AT = 22
_PRODUCER_AT = 43

_EPOCH = struct.Struct(">i")
_MAGIC = b"\x02"
_TRANSACTIONAL_OR_CONTROL = 0x30


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log had to do."""

    clean: bool
    segments_scanned: int = 0
    bytes_scanned: int = 0
    bytes_truncated: int = 0
    segments_removed: int = 0
    damaged: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LoadedLog:
    """A directory's content, ready to be a `Log`."""

    home: LogDirectory
    segments: list[Segment]
    epochs: LeaderEpochs
    epochs_changed: bool
    producers: ProducerState
    snapshots: list[int]
    start_offset: int
    end_offset: int
    flushed_offset: int
    report: RecoveryReport


def load_log(
    filesystem: Filesystem,
    path: Path,
    settings: LogSettings,
    *,
    recovery_point: int,
    clean: bool,
    now_ms: int,
    start_offset: int,
) -> LoadedLog:
    """Read a log's directory, making it if there is none."""
    return _Loader(LogDirectory(filesystem, path), settings, recovery_point, clean, now_ms).load(start_offset)


class _Loader:
    def __init__(
        self, home: LogDirectory, settings: LogSettings, recovery_point: int, clean: bool, now_ms: int
    ) -> None:
        self.home = home
        self.settings = settings
        self.recovery_point = recovery_point
        self.now_ms = now_ms
        self.clean = clean
        self.report = RecoveryReport(clean)
        self.segments: list[Segment] = []
        self.snapshots: list[int] = []
        self.epochs = LeaderEpochs()
        self.epochs_changed = False
        self.producers = ProducerState()

    def load(self, start_offset: int) -> LoadedLog:
        self._list_files()
        if not self.segments:
            self.segments.append(Segment.create(self.home, start_offset, self.now_ms, self.settings))
        epochs_known = self._read_epochs()
        if self.clean and self._find_end():
            if not epochs_known:
                self._rebuild_epochs(self.segments)
            self._load_producers(self.segments[-1].next_offset)
        else:
            self._check_tail(epochs_known)
        end_offset = self.segments[-1].next_offset
        replay_producers(self.producers, self.segments, end_offset)
        start_offset = max(start_offset, self.segments[0].base_offset)
        self.epochs_changed |= self.epochs.truncate_from_end(end_offset)
        self.epochs_changed |= self.epochs.truncate_from_start(start_offset)
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
        )

    def _list_files(self) -> None:
        """Take stock of the directory, finishing what an interrupted process left half done."""
        try:
            names = self.home.names()
        except FileNotFoundError:
            self.home.filesystem.make_directory(self.home.path)
            self.home.filesystem.sync_directory(self.home.path.parent)
            return
        for name in [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX))]:
            self.home.unlink(name)
            del names[name]
        self._finish_swaps(names)
        interval = self.settings.index_interval_bytes
        for name in sorted(names):
            base_offset = offset_of(name, LOG_SUFFIX)
            if base_offset is not None:
                self.segments.append(Segment(self.home, base_offset, names[name], self.now_ms, interval))
            elif (offset := offset_of(name, SNAPSHOT_SUFFIX)) is not None:
                self.snapshots.append(offset)
        for name in names:
            if name.endswith(SEGMENT_SUFFIXES) and f"{name.partition('.')[0]}{LOG_SUFFIX}" not in names:
                self.home.unlink(name)

    def _finish_swaps(self, names: dict[str, int]) -> None:
        """A `.swap` segment is whole and replaces the segments whose offsets it covers; put it in their place."""
        for name in sorted(name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
            base_offset = int(name.partition(".")[0])
            next_offset = base_offset
            file = self.home.open(name)
            for _, header in walk_headers(file, 0, names[name]):
                next_offset = header.next_offset
            for other in list(names):
                if other.endswith(SEGMENT_SUFFIXES) and base_offset <= int(other.partition(".")[0]) < next_offset:
                    self.home.unlink(other)
                    del names[other]
        for name in [name for name in names if name.endswith(SWAP_SUFFIX)]:
            target = name.removesuffix(SWAP_SUFFIX)
            self.home.rename(name, target)
            names[target] = names.pop(name)

    def _read_epochs(self) -> bool:
        try:
            self.epochs = LeaderEpochs.from_bytes(self.home.read(LEADER_EPOCH_CHECKPOINT))
        except FileNotFoundError:
            return all(segment.size == 0 for segment in self.segments)
        except CheckpointError:
            return False
        return True

    def _epochs_reach(self, segment: Segment) -> bool:
        """Whether the checkpoint knows the epoch that a segment ends with; a full disk may have kept it from that."""
        segment.load_indexes()
        try:
            last = header_at(segment.file, segment.position_of(segment.next_offset - 1), segment.size)
        except CorruptLogError:
            return True
        segment.release()
        return self.epochs.epoch_for_offset(last.base_offset) == last.partition_leader_epoch

    def _rebuild_epochs(self, segments: Sequence[Segment]) -> None:
        """The checkpoint is lost; every batch still carries the epoch that wrote it."""
        self.epochs = LeaderEpochs()
        self.epochs_changed = True
        for segment in segments:
            try:
                for _, header in walk_headers(segment.file, 0, segment.size):
                    if header.partition_leader_epoch > self.epochs.latest:
                        self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            except CorruptLogError:
                # What lies behind the damage keeps its epochs unknown here; checking the tail will complete it.
                continue
            segment.release()

    def _find_end(self) -> bool:
        """Look up where the log ends after a clean stop; False when the stop was not as clean as it said."""
        active = self.segments[-1]
        active.load_indexes()
        active.release()
        return active.damage is None

    def _check_tail(self, epochs_known: bool) -> None:
        """Read the log through from the segment that holds the recovery point."""
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
        """Start from the newest snapshot that is whole and not after `offset_max`; later ones are not trusted."""
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
        """Read one segment through; True when it had to be cut, which makes it the last."""
        segment = self.segments[number]
        replay_producers(self.producers, self.segments, segment.base_offset)
        if number and segment.base_offset not in self.snapshots:
            self._take_snapshot(segment.base_offset)
        checker = _SegmentChecker(self, segment)
        size = segment.size
        valid = checker.run()
        self.report.segments_scanned += 1
        self.report.bytes_scanned += valid
        self.home.await_sync(segment.name, segment.file)
        if valid == size:
            if number < len(self.segments) - 1:
                segment.save_indexes()
                segment.release()
            return False
        segment.truncate(valid, checker.next_offset)
        self.report.bytes_truncated += size - valid
        for later in self.segments[number + 1 :]:
            self.report.bytes_truncated += later.size
            self.report.segments_removed += 1
            for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
                self.home.unlink(file_name(later.base_offset, suffix))
        del self.segments[number + 1 :]
        return True

    def _take_snapshot(self, offset: int) -> None:
        self.home.write(file_name(offset, SNAPSHOT_SUFFIX), encode_snapshot(self.producers.entries))
        self.snapshots.append(offset)


def replay_producers(producers: ProducerState, segments: Sequence[Segment], end_offset: int) -> None:
    """Bring producer state up to `end_offset` by reading the headers of the batches it has not seen."""
    if producers.end_offset >= end_offset:
        return
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if next_base <= producers.end_offset or segment.base_offset >= end_offset:
            continue
        try:
            for position, header in walk_headers(
                segment.file, segment.position_of(producers.end_offset), segment.position_of(end_offset)
            ):
                note_batch(producers, header, segment, position)
        except CorruptLogError:
            # Producers behind the damage are unknown to us, which they survive: they may start anywhere.
            continue
    producers.end_offset = end_offset


def note_batch(producers: ProducerState, header: BatchHeader, segment: Segment, position: int) -> None:
    """Note one stored batch, reading it only if it is a marker."""
    if header.producer_id >= 0 and header.is_control:
        marker = read_end_marker(segment.file.read(position, header.size_bytes))
        if marker is not None:
            producers.complete(header, marker)
    else:
        producers.update(header)


class _SegmentChecker:
    """Reads one segment through and notes every batch; stops where the segment must be cut."""

    def __init__(self, loader: _Loader, segment: Segment) -> None:
        self.loader = loader
        self.segment = segment
        self.next_offset = segment.base_offset

    def run(self) -> int:
        """How many bytes of the segment are good."""
        segment = self.segment
        segment.start_indexes()
        position, end = 0, segment.size
        chunk_bytes = CHECK_CHUNK_BYTES
        damaged = False
        while position < end:
            chunk = segment.file.read(position, min(chunk_bytes, end - position))
            chunk_bytes = CHECK_CHUNK_BYTES
            scan = scan_batches(chunk, 0, len(chunk), check_crc=True)
            batches, problem = scan.batches, scan.problem
            if batches and batches[0][2] < self.next_offset:
                problem = f"its offset, {batches[0][2]}, does not follow {self.next_offset - 1}"
            else:
                self._note_all(chunk, position, batches)
                position += scan.position
            if problem is not None:
                size = self._size_to_keep(position, end, problem)
                if size == 0:
                    break
                damaged = True
                position += size
            elif scan.position == 0:
                chunk_bytes = self._size_announced(chunk)
                if chunk_bytes > end - position:
                    self._size_to_keep(position, end, "the batch is cut short")
                    break
        segment.next_offset = self.next_offset
        segment.unverified_size = position if damaged else 0
        return position

    def _note_all(self, chunk: bytes, position: int, batches: list[tuple[int, int, int, int, int]]) -> None:
        """Take a piece's batches into indexes, epochs and producers, without a look at each one where none is due."""
        if not batches:
            return
        self.segment.index_batches(position, batches)
        self._note_epochs(chunk, batches)
        if any(chunk[at + _PRODUCER_AT] < 0x80 for at, _, _, _, _ in batches):
            self._note_producers(chunk, position, batches)
        self.next_offset = self.loader.producers.end_offset = batches[-1][3] + 1

    def _note_epochs(self, chunk: bytes, batches: list[tuple[int, int, int, int, int]]) -> None:
        epochs = self.loader.epochs
        # Epochs never go back, so the last batch tells whether there is a new one among them.
        if _EPOCH.unpack_from(chunk, batches[-1][0] + _EPOCH_AT)[0] <= epochs.latest:
            return
        for at, _, base_offset, _, _ in batches:
            epoch = _EPOCH.unpack_from(chunk, at + _EPOCH_AT)[0]
            if epoch > epochs.latest:
                self.loader.epochs_changed |= epochs.assign(epoch, base_offset)

    def _note_producers(self, chunk: bytes, position: int, batches: list[tuple[int, int, int, int, int]]) -> None:
        """Note what producers wrote. Of one that uses no transactions only its last few batches matter."""
        producers = self.loader.producers
        recent: dict[bytes, list[int]] = {}
        for at, _, _, _, _ in batches:
            producer = chunk[at + _PRODUCER_AT : at + _PRODUCER_AT + 8]
            if producer[0] >= 0x80:
                continue
            waiting = recent.get(producer)
            if waiting is None:
                waiting = recent[producer] = []
            if chunk[at + _ATTRIBUTES_AT] & _TRANSACTIONAL_OR_CONTROL:
                for earlier in waiting:
                    producers.update(read_header(chunk, earlier))
                waiting.clear()
                note_batch(producers, read_header(chunk, at), self.segment, position + at)
            else:
                waiting.append(at)
                if len(waiting) > 2 * BATCHES_KEPT:
                    del waiting[:-BATCHES_KEPT]
        for waiting in recent.values():
            for at in waiting:
                producers.update(read_header(chunk, at))

    @staticmethod
    def _size_announced(chunk: bytes) -> int:
        """How long the batch at the start of a piece says it is; more than anything when not even that is there."""
        return read_header(chunk).size_bytes if len(chunk) >= HEADER_SIZE else 2**63

    def _size_to_keep(self, position: int, end: int, problem: str) -> int:
        """How many bytes to step over a damaged batch, 0 to cut the segment there.

        A batch at or after the recovery point is cut. One before it is stepped over if the next one follows it, and
        cut if nothing does: then it is a torn tail after all, and the recovery point was noted before a truncation.
        """
        if self.next_offset >= self.loader.recovery_point:
            return 0
        file = self.segment.file
        header = self._plausible_header(position, end)
        if header is None:
            if self._has_batch_behind(position, end):
                raise CorruptLogError(file.path, position, f"{problem}, and records that were durable lie behind it")
            return 0
        self.segment.index_batch(position, header.size_bytes, header.last_offset, NO_TIMESTAMP)
        self.next_offset = header.next_offset
        self.loader.report.damaged.append(f"{file.path} at byte {position}: {problem}")
        return header.size_bytes

    def _plausible_header(self, position: int, end: int) -> BatchHeader | None:
        """The header of a damaged batch if its offsets and length fit what lies around it."""
        try:
            header = header_at(self.segment.file, position, end)
        except CorruptLogError:
            return None
        fits = header.base_offset >= self.next_offset and self._follows(header, position + header.size_bytes)
        return header if fits else None

    def _follows(self, header: BatchHeader, after: int) -> bool:
        """Whether what comes after a damaged batch fits it: the next batch, whole or torn, or the end."""
        head = self.segment.file.read(after, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return True
        try:
            return read_header(head).base_offset >= header.next_offset
        except BatchError:
            return False

    def _has_batch_behind(self, position: int, end: int) -> bool:
        """Whether a whole batch lies anywhere after `position`, sought byte by byte."""
        position += 1
        while end - position >= HEADER_SIZE:
            chunk = self.segment.file.read(position, min(CHECK_CHUNK_BYTES, end - position))
            magic_at = chunk.find(_MAGIC, _MAGIC_AT)
            while magic_at >= 0:
                if self._is_batch(position + magic_at - _MAGIC_AT, end):
                    return True
                magic_at = chunk.find(_MAGIC, magic_at + 1)
            position += max(len(chunk) - _MAGIC_AT, 1)
        return False

    def _is_batch(self, position: int, end: int) -> bool:
        try:
            header = header_at(self.segment.file, position, end)
        except CorruptLogError:
            return False
        if not 0 <= header.base_offset - self.next_offset <= RELATIVE_OFFSET_MAX:
            return False
        data = self.segment.file.read(position, header.size_bytes)
        return len(scan_batches(data, 0, len(data), check_crc=True).batches) == 1
