"""One segment of a log: a `.log` file of batches, and two sparse indexes over it.

Only the newest segment of a log is appended to. An older one is opened when it is read, and its indexes are loaded when
they are first needed; both can be released at any time. An index that is missing or does not match the batches is
rebuilt, so nothing is ever answered from a wrong one.

Batches are found by "the first batch whose last offset is at or after this one", which is right in compacted logs
too, where offsets have gaps. Readers at the tail are answered from a window over the last appended batches, readers
that come one slice after another from a hint left by the slice before.
"""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from zlib import crc32

from penstock.storage.files import CorruptLogError, File, StorageError
from penstock.storage.indexes import (
    OFFSET_ENTRY_BYTES,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_BYTES,
    DamagedIndexError,
    OffsetIndex,
    TimeIndex,
)
from penstock.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from penstock.storage.partition_files import PartitionFiles
from penstock.storage.scan import SMALL_WALK_BYTES, header_at, walk
from penstock.storage.settings import LogSettings
from penstock.wire.record_types import Buffer
from penstock.wire.records import BatchHeader

NO_TIMESTAMP = -1

# The window over the newest batches is cut to half when it reaches this many.
RECENT_BATCHES_MAX = 128
HINTS_MAX = 64
REBUILD_CHUNK_BYTES = 1024 * 1024

_position = itemgetter(0)
_max_timestamp = itemgetter(4)


class Segment:
    """A part of a log. `size` counts whole batches; `next_offset` is only maintained for the newest segment."""

    __slots__ = (
        "_bytes_since_entry",
        "_file",
        "_hints",
        "_index_interval_bytes",
        "_indexes_rebuilt",
        "_indexes_saved",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_recent_is_whole",
        "_recent_offsets",
        "_recent_positions",
        "_time_index",
        "_times_known",
        "base_offset",
        "created_ms",
        "damage",
        "first_timestamp",
        "home",
        "may_be_torn",
        "next_offset",
        "size",
        "suffix",
        "unverified_size",
    )

    def __init__(self, home: PartitionFiles, base_offset: int, size: int, created_ms: int, interval_bytes: int) -> None:
        self.home = home
        self.base_offset = base_offset
        self.size = size
        self.next_offset = base_offset
        self.created_ms = created_ms
        # The suffix of files that are about to replace others in compaction; empty for all the rest.
        self.suffix = ""
        # Largest timestamp of the first batch, from which the age of a segment is counted; None while unknown.
        self.first_timestamp: int | None = None
        # Bytes before this position were not checked since the log was opened.
        self.unverified_size = size
        # Whether a write has failed, so that there may be bytes behind the last batch.
        self.may_be_torn = False
        # Where the chain of batches is broken, if a walk has found that.
        self.damage: CorruptLogError | None = None
        self._index_interval_bytes = interval_bytes
        self._file: File | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._indexes_saved = True
        self._indexes_rebuilt = False
        self._bytes_since_entry = 0
        # The largest timestamp outlives released indexes: retention needs it again and again.
        self._times_known = size == 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._recent_offsets: array[int] | None = None
        self._recent_positions: array[int] | None = None
        self._recent_is_whole = False
        self._hints: dict[int, int] | None = None

    @classmethod
    def create(
        cls, home: PartitionFiles, base_offset: int, now_ms: int, settings: LogSettings, suffix: str = ""
    ) -> Segment:
        """Create a new, empty segment on disk; with a suffix it is not part of the log yet."""
        segment = cls(home, base_offset, 0, now_ms, settings.index_interval_bytes)
        segment.suffix = suffix
        segment.create_file()
        if settings.preallocate:
            try:
                segment.file.reserve(settings.segment_bytes)
            except StorageError:
                # The log continues in its newest segment, past the offset at which a start would find this one.
                home.unlink(segment.name)
                raise
        return segment

    def create_file(self) -> None:
        """Create the log file of a segment that is not on disk yet."""
        self._file = self.home.create(self.name)

    @property
    def name(self) -> str:
        return self.file_name(LOG_SUFFIX)

    def file_name(self, suffix: str) -> str:
        """The current name of one of the segment's files."""
        return file_name(self.base_offset, suffix) + self.suffix

    def rename(self, suffix: str) -> None:
        """Give all files another suffix. After a StorageError it can be called again as long as the log has the former.

        The aborted transactions come before the log, as a start makes them again where the log has another suffix. The
        indexes come last: if they keep their suffix they are made again.
        """
        former = self.suffix
        for kind in (TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            name = file_name(self.base_offset, kind)
            is_there = self.home.rename(name + former, name + suffix)
            if kind == LOG_SUFFIX:
                if not is_there:
                    raise FileNotFoundError(errno.ENOENT, "a segment is gone", str(self.home.path / (name + former)))
                self.suffix = suffix

    def know_times(self, max_timestamp: int, max_timestamp_offset: int) -> None:
        """Set the largest timestamp, known from writing the segment, so that it need not be looked up."""
        self._times_known = True
        self._max_timestamp = max_timestamp
        self._max_timestamp_offset = max_timestamp_offset

    def modified_ms(self) -> int:
        """When the log file was last written, which is when its last batch was appended, or later."""
        return self.home.filesystem.modified_ms(self.home.path / self.name)

    @property
    def file(self) -> File:
        """The log file, opened on first use."""
        if self._file is None:
            self._file = self.home.open(self.name)
        return self._file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the segment, -1 when it has none."""
        if not self._times_known:
            self.load_indexes()
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch that has the largest timestamp."""
        if not self._times_known:
            self.load_indexes()
        return self._max_timestamp_offset

    @contextmanager
    def visited(self) -> Iterator[None]:
        """Read it meanwhile: if it was not open, what was opened is released, also after an error."""
        was_open = self.is_open
        try:
            yield
        finally:
            if self.is_open and not was_open:
                self.release()

    def release(self) -> None:
        """Release the file and everything that can be loaded from disk again."""
        self.release_indexes()
        self._file = None
        self._hints = None
        self._recent_offsets = self._recent_positions = None

    def close_file(self) -> None:
        """Release the file alone; it is opened again when it is needed."""
        self._file = None

    def release_indexes(self) -> None:
        if self._indexes_saved:
            self._offset_index = self._time_index = None

    def must_roll(
        self, data_size: int, last_offset: int, max_timestamp: int, now_ms: int, settings: LogSettings, jitter_ms: int
    ) -> bool:
        """Whether these batches must go into a new segment, by Kafka's rules."""
        size = self.size
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if size == 0:
            return False
        if size > settings.segment_bytes - data_size:
            return True
        if self.age_ms(now_ms, max_timestamp) > settings.segment_ms - jitter_ms:
            return True
        index, times = self._offset_index, self._time_index
        if index is None or times is None:
            self.load_indexes()
            return self.must_roll(data_size, last_offset, max_timestamp, now_ms, settings, jitter_ms)
        return (
            len(index.positions) >= settings.segment_index_bytes // OFFSET_ENTRY_BYTES
            or len(times.offsets) >= settings.segment_index_bytes // TIME_ENTRY_BYTES - 1
        )

    def age_ms(self, now_ms: int, timestamp: int) -> int:
        """How long the segment has been growing: by its batches' timestamps if they have any, else by the clock."""
        first_timestamp = self.first_timestamp
        if first_timestamp is None:
            first_timestamp = self.begin_timestamp()
        return timestamp - first_timestamp if first_timestamp >= 0 else now_ms - self.created_ms

    def jitter_ms(self, settings: LogSettings) -> int:
        """A fraction of the allowed jitter that is random between logs and the same after a restart."""
        jitter_ms = min(settings.segment_jitter_ms, settings.segment_ms)
        return crc32(f"{self.home.path.name}{self.base_offset}".encode()) % jitter_ms if jitter_ms > 0 else 0

    def begin_timestamp(self) -> int:
        """The largest timestamp of the first batch, -1 when there is none."""
        if self.first_timestamp is None and self.size:
            self.first_timestamp = header_at(self.file, 0, self.size).max_timestamp
        return NO_TIMESTAMP if self.first_timestamp is None else self.first_timestamp

    def append(self, headers: Sequence[BatchHeader], data: Buffer, interval_bytes: int) -> None:
        """Write batches and index them; when the write fails nothing has changed."""
        if self._offset_index is None:
            self.load_indexes()
        file = self._file
        position = self.size
        if file is None:
            file = self.file
        if file.size != position:
            # It was closed after a failed write that could not be truncated, and opened again, perhaps by a reader.
            file.truncate(position)
        file.append(data)
        if position == 0:
            self.first_timestamp = headers[0][8]
        recent_offsets, recent_positions = self._recent_offsets, self._recent_positions
        if recent_offsets is None or recent_positions is None:
            recent_offsets, recent_positions = self._start_recent()
        self._index_interval_bytes = interval_bytes
        assert headers[0][0] >= self.next_offset
        for header in headers:
            last_offset = header[0] + header[6]
            size = header[1] + 12
            self.index_batch(position, size, last_offset, header[8])
            recent_offsets.append(last_offset)
            recent_positions.append(position)
            position += size
        self.size = position
        self.next_offset = last_offset + 1
        if len(recent_offsets) >= RECENT_BATCHES_MAX:
            keep = RECENT_BATCHES_MAX // 2
            del recent_offsets[:-keep]
            del recent_positions[:-keep]
            self._recent_is_whole = False

    def _start_recent(self) -> tuple[array[int], array[int]]:
        self._recent_offsets, self._recent_positions = array("q"), array("i")
        self._recent_is_whole = self.size == 0
        return self._recent_offsets, self._recent_positions

    def index_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Index a batch at the end of the segment; every few kilobytes that adds an index entry."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._bytes_since_entry > self._index_interval_bytes:
            self._add_index_entry(position, last_offset)
        self._bytes_since_entry += size
        self._indexes_saved = False

    def index_batches(self, origin: int, batches: list[tuple[int, int, int, int, int]]) -> None:
        """Like `index_batch` for many: the result of `scan_batches` on a chunk that was read from position `origin`."""
        start = 0
        while start < len(batches):
            # Of the batches up to the next index entry only the largest timestamp matters.
            room = self._index_interval_bytes - self._bytes_since_entry
            stop = bisect_right(batches, batches[start][0] + room, key=_position)
            if stop == start:
                position, size, _, last_offset, max_timestamp = batches[start]
                self.index_batch(origin + position, size, last_offset, max_timestamp)
                start += 1
                continue
            youngest = max(batches[start:stop], key=_max_timestamp)
            if youngest[4] > self._max_timestamp:
                self._max_timestamp = youngest[4]
                self._max_timestamp_offset = youngest[3]
            self._bytes_since_entry += batches[stop - 1][0] + batches[stop - 1][1] - batches[start][0]
            start = stop
        self._indexes_saved = False

    def _add_index_entry(self, position: int, last_offset: int) -> None:
        assert self._offset_index is not None
        assert self._time_index is not None
        self._offset_index.append(last_offset - self.base_offset, position)
        if self._max_timestamp >= 0:
            self._time_index.append(self._max_timestamp, self._max_timestamp_offset - self.base_offset)
        self._bytes_since_entry = 0

    def position_of(self, offset: int) -> int:
        """Where the first batch starts whose last offset is at or after `offset`; `size` when there is none."""
        if offset <= self.base_offset:
            return 0
        recent = self._recent_offsets
        if recent:
            if offset > recent[-1]:
                return self.size
            slot = bisect_left(recent, offset)
            if slot or self._recent_is_whole:
                return self._recent_positions[slot]  # type: ignore[index]
        if self._hints is not None and (hint := self._hints.get(offset)) is not None:
            return hint
        try:
            return self._search(offset)
        except (DamagedIndexError, CorruptLogError) as error:
            self.distrust_indexes(error)
            return self._search(offset)

    def _search(self, offset: int) -> int:
        index = self.offset_index()
        slot = index.search(offset - self.base_offset)
        start = index.positions[slot - 1] if slot else 0
        end = index.positions[slot] if slot < len(index) else self.size
        expected = self.base_offset + index.last_offsets[slot - 1] if slot else None
        position = start
        for place in walk(self.file, start, self.size, SMALL_WALK_BYTES):
            if expected is not None and place.last_offset != expected:
                raise DamagedIndexError(f"no batch at {start} ends with offset {expected}")
            expected = None
            if place.last_offset >= offset:
                return place.position
            position = place.position + place.size
            if position >= end:
                break
        if position != end:
            raise DamagedIndexError(f"no batch starts at {end}")
        return position

    def distrust_indexes(self, error: DamagedIndexError | CorruptLogError) -> None:
        """Rebuild the indexes, once; if that does not help, the batches themselves are damaged."""
        if self.damage is not None or self._indexes_rebuilt:
            if isinstance(error, CorruptLogError):
                raise error
            raise CorruptLogError(self.home.path / self.name, 0, str(error)) from error
        self.rebuild_indexes()

    def leave_hint(self, offset: int, position: int) -> None:
        """A sequential reader will request this offset next, which is at this position."""
        hints = self._hints
        if hints is None:
            hints = self._hints = {}
        elif len(hints) >= HINTS_MAX:
            del hints[next(iter(hints))]
        assert position <= self.size
        hints[offset] = position

    def time_index(self) -> TimeIndex:
        """The sparse index from timestamps to offsets, loaded if it was not."""
        self.load_indexes()
        assert self._time_index is not None
        return self._time_index

    def offset_index(self) -> OffsetIndex:
        """The sparse index from offsets to positions, loaded if it was not."""
        if self._offset_index is None:
            self.load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    def load(self) -> None:
        """Open the file and load the indexes, all for which descriptors are necessary."""
        self.load_indexes()
        assert self.file is not None

    def load_indexes(self) -> None:
        """Load the indexes: from their files if these match the batches, otherwise from the batches."""
        if self._offset_index is not None:
            return
        if self.size == 0:
            self.start_indexes()
            self._indexes_saved = True
            return
        try:
            self._read_indexes()
        except (FileNotFoundError, DamagedIndexError, CorruptLogError):
            self.rebuild_indexes()
        except StorageError:
            self._offset_index = None
            raise

    def start_indexes(self) -> None:
        """Forget the indexes; `index_batch` must now be called with all batches in order."""
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self._bytes_since_entry = 0
        self._times_known = True
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._indexes_saved = False

    def rebuild_indexes(self) -> None:
        """Rebuild the indexes from the batches and store them.

        If the chain of batches is broken (`damage`), earlier entries after the break stay in use, so that the batches
        there can still be read.
        """
        known = self._offset_index
        self.start_indexes()
        self._indexes_rebuilt = True
        next_offset = self.base_offset
        try:
            for place in walk(self.file, 0, self.size, REBUILD_CHUNK_BYTES):
                self.index_batch(place.position, place.size, place.last_offset, place.max_timestamp)
                next_offset = place.last_offset + 1
        except CorruptLogError as error:
            self.damage = error
            self._keep_entries_behind(error.position, known)
        else:
            self.save_indexes()
        self.next_offset = next_offset

    def _keep_entries_behind(self, position: int, known: OffsetIndex | None) -> None:
        assert self._offset_index is not None
        if known is None:
            return
        slot = known.search_position(position)
        self._offset_index.last_offsets.extend(known.last_offsets[slot:])
        self._offset_index.positions.extend(known.positions[slot:])

    def _read_indexes(self) -> None:
        offset_index = OffsetIndex.from_bytes(self.home.read(self.file_name(INDEX_SUFFIX)), self.size)
        self._offset_index = offset_index
        time_index = TimeIndex.from_bytes(self.home.read(self.file_name(TIME_INDEX_SUFFIX)))
        self._max_timestamp = time_index.timestamps[-1] if len(time_index) else NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset + (time_index.offsets[-1] if len(time_index) else 0)
        self._check_tail(offset_index)
        if self._max_timestamp_offset >= self.next_offset:
            raise DamagedIndexError("the time index has offsets that the segment does not")
        self._time_index = time_index
        self._bytes_since_entry = self.size - (offset_index.positions[-1] if len(offset_index) else 0)
        self._times_known = True
        self._indexes_saved = True

    def _check_tail(self, index: OffsetIndex) -> None:
        """Walk from the last entry to the end: the entry must be right, and no later one may be missing."""
        start = index.positions[-1] if len(index) else 0
        expected = self.base_offset + index.last_offsets[-1] if len(index) else None
        for place in walk(self.file, start, self.size):
            if expected is not None and place.last_offset != expected:
                raise DamagedIndexError(f"no batch at {start} ends with offset {expected}")
            expected = None
            if place.position - start > self._index_interval_bytes:
                raise DamagedIndexError(f"entries after {start} are missing")
            if place.max_timestamp > self._max_timestamp:
                raise DamagedIndexError("the time index lacks the largest timestamp")
            self.next_offset = place.last_offset + 1

    def save_indexes(self) -> None:
        """Write both index files, as required when the segment is rolled."""
        if self._indexes_saved:
            return
        self.load_indexes()
        assert self._offset_index is not None
        assert self._time_index is not None
        if self._max_timestamp >= 0:
            self._time_index.append(self._max_timestamp, self._max_timestamp_offset - self.base_offset)
        self.home.write(self.file_name(INDEX_SUFFIX), self._offset_index.to_bytes())
        self.home.write(self.file_name(TIME_INDEX_SUFFIX), self._time_index.to_bytes())
        self._indexes_saved = True

    def truncate(self, position: int, end_offset: int) -> None:
        """Truncate the segment at a batch's start; what is left ends at `end_offset`."""
        self.load_indexes()
        assert self._offset_index is not None
        assert self._time_index is not None
        assert self.damage is not None or end_offset <= self.next_offset
        assert 0 <= position <= self.size, "a truncation never grows a segment"
        self.file.truncate(position)
        self.home.await_sync(self.name, self.file)
        self.size = position
        self.unverified_size = min(self.unverified_size, position)
        self._hints = None
        self._recent_offsets = self._recent_positions = None
        self._offset_index.truncate(position)
        self._time_index.truncate(end_offset - self.base_offset)
        self._indexes_saved = False
        self._recount_tail()
        self.next_offset = end_offset

    def _recount_tail(self) -> None:
        """Compute what the indexes don't have: the bytes since the last entry, and the largest timestamp."""
        assert self._offset_index is not None
        assert self._time_index is not None
        index, times = self._offset_index, self._time_index
        self._max_timestamp = times.timestamps[-1] if len(times) else NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset + (times.offsets[-1] if len(times) else 0)
        start = index.positions[-1] if len(index) else 0
        self._bytes_since_entry = self.size - start
        try:
            # Up to the last entry of the offset index the time index has the largest timestamp.
            for place in walk(self.file, start, self.size):
                if place.max_timestamp > self._max_timestamp:
                    self._max_timestamp = place.max_timestamp
                    self._max_timestamp_offset = place.last_offset
        except CorruptLogError as error:
            # What lies behind it can still be read, and is not the worse for an unknown timestamp.
            self.damage = error
