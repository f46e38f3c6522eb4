"""What a rolled segment is copied to object storage with, and what a replica that starts there begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from penstock.core.replica.producer_state import ProducerEntry, ProducerState
from penstock.model.errors import ApiError, ErrorCode
from penstock.storage.checkpoint import CheckpointError
from penstock.storage.files import CorruptLogError, File, StorageError
from penstock.storage.leader_epochs import EpochEntry, LeaderEpochs
from penstock.storage.names import SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_name
from penstock.storage.producers.replay import note_batch
from penstock.storage.producers.snapshot import DamagedSnapshotError, decode_snapshot, encode_snapshot
from penstock.storage.scan import walk_headers
from penstock.storage.segment import Segment
from penstock.storage.settings import INT64_MAX
from penstock.wire.kernel import scan_batches

CHECKED_BYTES = 4 * 1024 * 1024


class TierCopy(NamedTuple):
    """A segment to copy: its log file, and its small companions as bytes. `epochs` are those of its records.

    `snapshot` and `earlier_snapshot` are of its producers at its end and at its start, empty if the disk has none.
    `modified_ms` is when its last batch was appended, or later; None if that is not known.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    epochs: tuple[EpochEntry, ...]
    log: File
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes
    snapshot: bytes
    epoch_checkpoint: bytes
    earlier_snapshot: bytes = b""
    modified_ms: int | None = None

    @property
    def log_path(self) -> Path:
        """The log file."""
        return self.log.path

    def companions(self) -> Mapping[str, bytes]:
        """The small objects by their suffix."""
        found = {
            "index": self.offset_index,
            "timeindex": self.time_index,
            "snapshot": self.snapshot,
            "epochs": self.epoch_checkpoint,
        }
        return {**found, "txnindex": self.transaction_index} if self.transaction_index else found

    def checked_crc(self) -> int:
        """The CRC-32C of the log file; raises CorruptLogError if a batch is damaged. Blocks, in any thread."""
        crc = position = 0
        step = CHECKED_BYTES
        while position < self.size_bytes:
            data = self.log.read(position, min(step, self.size_bytes - position))
            scan = scan_batches(data, 0, len(data), check_crc=True)
            if scan.problem is not None:
                raise CorruptLogError(self.log.path, position + scan.position, scan.problem)
            if scan.position == 0:
                if len(data) < step:
                    raise CorruptLogError(self.log.path, position, "the batch is cut short")
                step *= 2
                continue
            crc = crc32c(data[: scan.position], crc)
            position += scan.position
        assert position == self.size_bytes
        return crc

    def sound_snapshot(self) -> bytes:
        """The snapshot, made anew from the earlier one and the log file if it is lost or damaged.

        Producers of before are forgotten if both are: they may start anywhere. Blocks, in any thread.
        """
        if _entries(self.snapshot) is not None:
            return self.snapshot
        producers = ProducerState()
        # Nothing expires here: the broker that starts with it decides that.
        producers.load(_entries(self.earlier_snapshot) or (), self.base_offset, 0, INT64_MAX)
        for position, header in walk_headers(self.log, 0, self.size_bytes):
            # Not when its records were made, which may be years ago: a producer counts from its last append on.
            note_batch(producers, header, self.log, position, self.modified_ms)
        return encode_snapshot(producers.entries)


def _entries(snapshot: bytes) -> list[ProducerEntry] | None:
    try:
        return decode_snapshot(snapshot)
    except DamagedSnapshotError:
        return None


class TierHistory(NamedTuple):
    """What a log begins with whose first segments are in the tier."""

    epochs: Sequence[EpochEntry]
    producers: Sequence[ProducerEntry]

    def assign_epochs(self, epochs: LeaderEpochs, start_offset: int, end_offset: int) -> bool:
        """Have a log that starts and ends there know its epochs; True, as that is to be stored."""
        for entry in self.epochs:
            if entry.start_offset < end_offset:
                epochs.assign(*entry)
        epochs.truncate_from_start(start_offset)
        return True

    @classmethod
    def from_bytes(cls, epoch_checkpoint: bytes, snapshot: bytes) -> TierHistory:
        """Read the objects of a copied segment; raises StorageError if they are damaged."""
        try:
            return cls(LeaderEpochs.from_bytes(epoch_checkpoint).entries, decode_snapshot(snapshot))
        except (CheckpointError, DamagedSnapshotError) as error:
            raise StorageError(f"the history of a segment in object storage is damaged: {error}") from error


def moved_to_tier(log_name: str, offset: int) -> ApiError:
    """The error for an offset that is only in object storage."""
    text = f"Offset {offset} of {log_name} is in object storage; the disk has what is after it."
    return ApiError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, text)


def copy_of(segments: Sequence[Segment], base_offset: int, epochs: LeaderEpochs) -> TierCopy | None:
    """What is copied of a rolled segment; None if there is none that begins here."""
    found = (number for number, one in enumerate(segments[:-1]) if one.base_offset == base_offset)
    number = next(found, None)
    if number is None:
        return None
    with segments[number].visited():
        return _copy_of(segments[number], segments[number + 1].base_offset, epochs)


def _copy_of(segment: Segment, next_base_offset: int, epochs: LeaderEpochs) -> TierCopy:
    history = LeaderEpochs()
    for entry in epochs.entries:
        if entry.start_offset < next_base_offset:
            history.assign(*entry)
    own = LeaderEpochs.from_bytes(history.to_bytes())
    own.truncate_from_start(segment.base_offset)
    assert segment.base_offset < next_base_offset, "a rolled segment has records"
    assert not own.entries or own.entries[0].start_offset >= segment.base_offset
    return TierCopy(
        segment.base_offset,
        next_base_offset,
        segment.size,
        segment.max_timestamp,
        own.entries,
        segment.file,
        segment.offset_index().to_bytes(),
        segment.time_index().to_bytes(),
        _read(segment, TRANSACTION_INDEX_SUFFIX, segment.base_offset),
        _read(segment, SNAPSHOT_SUFFIX, next_base_offset),
        history.to_bytes(),
        _read(segment, SNAPSHOT_SUFFIX, segment.base_offset),
        segment.modified_ms(),
    )


def _read(segment: Segment, suffix: str, offset: int) -> bytes:
    try:
        return segment.home.read(file_name(offset, suffix))
    except FileNotFoundError:
        return b""
