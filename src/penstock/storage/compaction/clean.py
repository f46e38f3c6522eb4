"""Cleans a log's rolled segments: a function of files, made to run in a process of its own.

The dirty part is read once to learn the latest offset of each key, as far as the map of keys has room. Then all
segments up to there are copied, neighbouring ones into one, without the superseded records. The log itself is not
touched: the copies are `.cleaned` files, synced, and the log's owner swaps them in.

Every cleaned segment ends with the last batch of its sources, emptied if necessary, so that its end offset is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.core.lifecycle.compaction import group_segments
from penstock.core.lifecycle.retention import SegmentFacts
from penstock.model.errors import ApiError
from penstock.storage.compaction.batches import NO_TIMESTAMP, BatchCleaner
from penstock.storage.compaction.swap import CleanedSegment
from penstock.storage.compaction.transactions import AbortedRanges, OpenTransactions, find_aborted
from penstock.storage.files import CorruptLogError, File, Filesystem, StorageError
from penstock.storage.indexes import DamagedIndexError
from penstock.storage.names import CLEANED_SUFFIX, LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_name
from penstock.storage.partition_files import PartitionFiles
from penstock.storage.producers.aborted_transactions import keep_entries
from penstock.storage.scan import header_at
from penstock.storage.segment import Segment
from penstock.wire.kernel import OffsetMap, scan_batches
from penstock.wire.record_types import Buffer
from penstock.wire.records import BatchHeader, read_body, read_header

READ_CHUNK_BYTES = 1024 * 1024
WRITE_CHUNK_BYTES = 1024 * 1024
# Written bytes are synced in small portions: one large sync at the end would delay those of other logs.
SYNC_BYTES = 8 * 1024 * 1024
SEGMENT_SIZE_MAX = 2**31 - 1
DECOMPRESSED_BYTES_MAX = 2**30

# The size of a slot in the map, and the fraction of slots that is used.
_SLOT_BYTES = 24
_SLOTS_PER_KEY = 4 / 3


class CompactionError(Exception):
    """A cleaning failed; the message has the reason and the remedy.

    `is_passing`: a retry may succeed. `is_disk_failure`: the disk is broken, so that the directory must not be used.
    `is_damage`: a batch of the log is damaged.
    """

    def __init__(
        self, message: str, *, is_passing: bool = False, is_disk_failure: bool = False, is_damage: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.is_passing = is_passing
        self.is_disk_failure = is_disk_failure
        self.is_damage = is_damage

    @classmethod
    def of(cls, error: StorageError | FileNotFoundError) -> CompactionError:
        """What an error of the disk means to a cleaning."""
        if isinstance(error, FileNotFoundError):
            # Retention was faster, or the topic was deleted.
            return cls(f"{error.filename} is gone", is_passing=True)
        return cls(
            error.message,
            is_passing=error.is_passing,
            is_disk_failure=error.is_disk_failure,
            is_damage=isinstance(error, CorruptLogError),
        )


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """What to clean: the finished `segments`, of which the records before `first_dirty_offset` are clean already.

    `later_segments` are the ones after them, which may hold transaction markers. `producers` lists active ones as
    producer id, last offset (or -1) and epoch. `seed` is sixteen secret bytes.
    """

    directory: str
    segments: tuple[SegmentFacts, ...]
    later_segments: tuple[SegmentFacts, ...]
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    map_bytes_max: int
    seed: bytes
    producers: tuple[tuple[int, int, int], ...] = ()
    bytes_per_second_max: float = float("inf")


@dataclass(slots=True)
class CompactionReport:
    """What a cleaning did. The log is clean up to `end_offset`; `latest_horizon_ms` is -1 without tombstones."""

    end_offset: int
    latest_horizon_ms: int = NO_TIMESTAMP
    keys_mapped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    batches_oversized: int = 0


class Compaction:
    """One run of a job. `pace` is called with each number of bytes read or written and may sleep."""

    def __init__(self, job: CompactionJob, filesystem: Filesystem, pace: Callable[[int], None]) -> None:
        self._job = job
        self._home = PartitionFiles(filesystem, Path(job.directory))
        self._pace = pace
        # Segments before this one may have been swapped by now, and differ from the job's description.
        self._first_unswapped = 0
        self.report = CompactionReport(job.first_dirty_offset)

    def run(self) -> Iterator[CleanedSegment]:
        """Clean group by group; each cleaned segment may be swapped in before the next is requested.

        Raises CompactionError.
        """
        try:
            yield from self._run()
        except (StorageError, FileNotFoundError) as error:
            raise CompactionError.of(error) from error
        except DamagedIndexError as error:
            raise CompactionError(f"an index of aborted transactions is damaged: {error}") from error
        except ApiError as error:
            raise CompactionError(f"a batch is damaged: {error.message}", is_damage=True) from error

    def _run(self) -> Iterator[CleanedSegment]:
        job = self._job
        offsets = self._map_offsets()
        producers = {producer_id: (last_offset, epoch) for producer_id, last_offset, epoch in job.producers}
        transactions = OpenTransactions(self._find_aborted)
        cleaner = BatchCleaner(offsets, transactions, producers, job.now_ms, job.delete_retention_ms)
        mapped = [segment for segment in job.segments if segment.base_offset < self.report.end_offset]
        for group in group_segments(mapped, min(job.segment_bytes, SEGMENT_SIZE_MAX)):
            self._first_unswapped = group[0].base_offset
            yield self._clean_group(group, cleaner)
            self.report.latest_horizon_ms = cleaner.latest_horizon_ms

    def _open(self, segment: SegmentFacts) -> File:
        return self._home.open(file_name(segment.base_offset, LOG_SUFFIX))

    def _find_aborted(self) -> AbortedRanges:
        """Called at the first batch of a transaction, so that nothing before the current segment matters."""
        segments = (*self._job.segments, *self._job.later_segments)
        return find_aborted(
            (self._open(segment), segment.size_bytes)
            for segment in segments
            if segment.base_offset >= self._first_unswapped
        )

    def _map_offsets(self) -> OffsetMap:
        """The latest offset of each key in the dirty part, as far as they fit; sets the report's `end_offset`."""
        job, report = self._job, self.report
        dirty = [segment for segment in job.segments if segment.end_offset > job.first_dirty_offset]
        # There are no more keys than offsets, and a small map stays in the CPU's cache.
        offset_count = dirty[-1].end_offset - job.first_dirty_offset if dirty else 0
        memory_bytes = int((offset_count * _SLOTS_PER_KEY + 4) * _SLOT_BYTES)
        offsets = OffsetMap(min(memory_bytes, job.map_bytes_max), job.seed)
        transactions = OpenTransactions(self._find_aborted)
        for segment in dirty:
            for header, batch in self._read(segment):
                if header.last_offset < job.first_dirty_offset or header.is_control or transactions.is_aborted(header):
                    continue
                body = read_body(batch, 0, header, DECOMPRESSED_BYTES_MAX)
                if not offsets.add(body, header.records_count, header.base_offset):
                    self._stop_before(header)
                    report.keys_mapped = len(offsets)
                    return offsets
            report.end_offset = segment.end_offset
        report.keys_mapped = len(offsets)
        return offsets

    def _stop_before(self, header: BatchHeader) -> None:
        self.report.end_offset = header.base_offset
        if header.base_offset <= self._job.first_dirty_offset:
            raise CompactionError(
                f"a batch of {header.records_count} records does not fit into the map of keys: "
                "raise log.cleaner.dedupe.buffer.size"
            )

    def _clean_group(self, group: Sequence[SegmentFacts], cleaner: BatchCleaner) -> CleanedSegment:
        job, report = self._job, self.report
        output = _Output(self._home, group, job, self._pace)
        unread_bytes = sum(segment.size_bytes for segment in group)
        for segment in group:
            for header, batch in self._read(segment):
                unread_bytes -= len(batch)
                report.bytes_read += len(batch)
                report.records_read += header.records_count
                cleaned: Buffer | None = batch
                if header.base_offset < report.end_offset:
                    cleaned = cleaner.clean(header, batch, keep_shell=unread_bytes == 0)
                if cleaned is None:
                    continue
                if len(cleaned) > len(batch):
                    if output.size + unread_bytes + len(cleaned) > SEGMENT_SIZE_MAX:
                        # Leaving a batch as it is is always correct; positions in a segment have 31 bits.
                        cleaned = batch
                    report.batches_oversized += len(cleaned) > job.max_message_bytes
                kept = header if cleaned is batch else read_header(cleaned)
                report.records_kept += kept.records_count
                output.append(kept, cleaned)
        result = output.finish()
        report.bytes_written += result.size
        assert unread_bytes == 0, "every batch of the sources was read"
        assert result.base_offset == group[0].base_offset, "a cleaned segment begins where its sources did"
        assert report.records_kept <= report.records_read
        assert result.size <= SEGMENT_SIZE_MAX, "positions in a segment have 31 bits"
        return CleanedSegment(
            result.base_offset,
            result.size,
            result.max_timestamp,
            result.max_timestamp_offset,
            tuple((source.base_offset, source.size_bytes) for source in group),
        )

    def _read(self, segment: SegmentFacts) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches of a segment, checked."""
        file = self._open(segment)
        position, end = 0, segment.size_bytes
        chunk_bytes = READ_CHUNK_BYTES
        while position < end:
            chunk = memoryview(file.read(position, min(chunk_bytes, end - position)))
            self._pace(len(chunk))
            scan = scan_batches(chunk, 0, len(chunk), check_crc=True)
            for at, size, *_ in scan.batches:
                yield read_header(chunk, at), chunk[at : at + size]
            position += scan.position
            if scan.problem is not None:
                raise CorruptLogError(file.path, position, scan.problem)
            # The header of a batch that is longer than a chunk has its length.
            chunk_bytes = READ_CHUNK_BYTES if scan.position else header_at(file, position, end).size_bytes


class _Output:
    """A `.cleaned` segment that is being written."""

    def __init__(
        self, home: PartitionFiles, group: Sequence[SegmentFacts], job: CompactionJob, pace: Callable[[int], None]
    ) -> None:
        base_offset = group[0].base_offset
        self._home = home
        self._sources = [segment.base_offset for segment in group]
        self._markers: set[int] = set()
        self._pace = pace
        self._interval_bytes = job.index_interval_bytes
        # It is not part of the log until its suffix is removed.
        self._segment = Segment(home, base_offset, 0, job.now_ms, job.index_interval_bytes)
        self._segment.suffix = CLEANED_SUFFIX
        self._segment.create_file()
        self._headers: list[BatchHeader] = []
        self._data = bytearray()
        self._unsynced_bytes = 0

    @property
    def size(self) -> int:
        return self._segment.size + len(self._data)

    def append(self, header: BatchHeader, batch: Buffer) -> None:
        assert header.size_bytes == len(batch), "a header describes its batch"
        self._headers.append(header)
        self._data += batch
        if header.is_control and header.records_count:
            self._markers.add(header.base_offset)
        if len(self._data) >= WRITE_CHUNK_BYTES:
            self._write()

    def _write(self) -> None:
        size = len(self._data)
        self._segment.append(self._headers, self._data, self._interval_bytes)
        self._headers = []
        self._data = bytearray()
        self._unsynced_bytes += size
        if self._unsynced_bytes >= SYNC_BYTES:
            self._segment.file.sync()
            self._unsynced_bytes = 0
        self._pace(size)

    def finish(self) -> Segment:
        """Write the rest and the indexes, and sync everything to disk."""
        if self._headers:
            self._write()
        self._segment.save_indexes()
        # Readers skip from an aborted transaction's first record to its marker, so both must be there, or neither.
        aborted = keep_entries(self._home, self._sources, self._markers)
        if aborted:
            self._home.write(self._segment.file_name(TRANSACTION_INDEX_SUFFIX), aborted)
        else:
            # That of a cleaning which was given up; the other files were overwritten.
            self._home.unlink(self._segment.file_name(TRANSACTION_INDEX_SUFFIX))
        for file in self._home.take_unsynced()[0]:
            file.sync()
        return self._segment
