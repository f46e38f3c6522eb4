"""One partition that this broker leads: checks what producers send, appends it, serves what consumers may see.

`append` either takes the whole batch or raises `ApiError` and changes nothing. Every check on a batch's content is
made before an offset is given out. Readers see what is below the high watermark, or below the first undecided
transaction when they read committed records only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from penstock.config.topic import TopicSettings
from penstock.core.lifecycle.compaction import max_segment_ms
from penstock.core.replica.leader import LeaderState
from penstock.core.replica.producer_state import Duplicate, Refused
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.env import Env
from penstock.runtime.log_sync import LogSync
from penstock.storage.files import StorageError
from penstock.storage.log import Log, LogSettings, LogSlice
from penstock.wire.compression import Compression
from penstock.wire.kernel import validate_records
from penstock.wire.record_types import BatchTooLarge, InvalidRecords
from penstock.wire.records import (
    LENGTH_OVERHEAD,
    BatchHeader,
    TimestampType,
    check_crc,
    check_produced,
    patch,
    patch_timestamps,
    read_body,
    read_header,
    recompress,
    split_batches,
)

NO_TIMESTAMP = -1
# How far back a producer that repeats itself after our restart is looked for.
RECALLED_OFFSETS_MAX = 20_000
RECALLED_BYTES = 1024 * 1024

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class Appended(NamedTuple):
    """Where a produced batch went. `next_offset` is what must be durable or replicated before it is acknowledged."""

    base_offset: int
    next_offset: int
    log_append_time_ms: int = NO_TIMESTAMP


class Partition:
    """The leader of one partition."""

    __slots__ = (
        "_append_listeners",
        "_codec",
        "_env",
        "_on_failure",
        "_recalled",
        "appended_bytes",
        "decompressed_bytes_max",
        "log",
        "name",
        "replication_factor",
        "settings",
        "state",
        "sync",
        "topic_id",
    )

    def __init__(
        self,
        env: Env,
        name: TopicPartition,
        topic_id: Uuid,
        log: Log,
        state: LeaderState,
        replication_factor: int,
        settings: TopicSettings,
        decompressed_bytes_max: int,
        on_failure: Callable[[StorageError], None],
    ) -> None:
        self._env = env
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.state = state
        self.replication_factor = replication_factor
        self.decompressed_bytes_max = decompressed_bytes_max
        self._on_failure = on_failure
        self.sync = LogSync(env, log, on_failure)
        # All bytes ever appended since this broker opened the partition.
        self.appended_bytes = 0
        self._recalled: set[int] = set()
        # Parked fetches that want to hear of new records; called with the bytes that became visible.
        self._append_listeners: set[Callable[[int], None]] = set()
        self.configure(settings)

    def configure(self, settings: TopicSettings) -> None:
        """Take new topic settings; they hold from the next batch on."""
        self.settings = settings
        self._codec = _CODECS.get(settings.compression_type)
        self.log.settings = log_settings(settings)

    @property
    def high_watermark(self) -> int:
        """The offset before which every in-sync replica has everything."""
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset before which every transaction is decided."""
        undecided = self.log.producers.first_undecided_offset
        high_watermark = self.state.high_watermark
        return high_watermark if undecided is None or undecided > high_watermark else undecided

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client whose idea of the leader is older or newer than ours; -1 means that it has none."""
        epoch = self.state.leader_epoch
        if current_leader_epoch in (-1, epoch):
            return
        if current_leader_epoch < epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {current_leader_epoch} is over, it is {epoch}")
        raise ApiError(
            ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {current_leader_epoch} has not reached this broker"
        )

    def check_enough_replicas(self) -> None:
        """Refuse an acks=all produce that too few replicas would hold."""
        if len(self.state.in_sync_replicas) < min(self.settings.min_insync_replicas, self.replication_factor):
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.state.in_sync_replicas)} replicas are in sync, and min.insync.replicas asks for "
                f"{self.settings.min_insync_replicas}",
            )

    # Writing.

    def append(self, data: memoryview | bytearray, now_ms: int) -> Appended:
        """Append the one batch that `data` holds. `data` is patched in place and not kept."""
        header = read_header(data)
        self._check_size(header, len(data))
        check_crc(data, 0, header)
        check_produced(header)
        body = read_body(data, 0, header, self.decompressed_bytes_max)
        facts = validate_records(body, header.records_count, require_keys=self.settings.compacts)
        if header.producer_id >= 0:
            verdict = self.log.producers.check(header)
            if isinstance(verdict, Refused) and self._recall(header.producer_id):
                verdict = self.log.producers.check(header)
            if isinstance(verdict, Duplicate):
                append_time = verdict.timestamp if self.settings.log_append_time else NO_TIMESTAMP
                return Appended(verdict.base_offset, verdict.last_offset + 1, append_time)
            if isinstance(verdict, Refused):
                raise ApiError(verdict.code, verdict.message)
        if self._codec is not None and self._codec != header.compression:
            data = bytearray(recompress(data, header, self._codec, self._level(), self.decompressed_bytes_max))
            header = read_header(data)
            self._check_size(header, len(data))
        append_time = NO_TIMESTAMP
        if self.settings.log_append_time:
            append_time = now_ms
            header = patch_timestamps(data, 0, header, now_ms)
        else:
            header = self._check_create_time(data, header, facts.max_timestamp_delta, facts.min_timestamp_delta, now_ms)
        return self._write(data, header, append_time, now_ms)

    def _recall(self, producer_id: int) -> bool:
        """Look in the log, once, for batches of a producer that its snapshot did not keep."""
        log = self.log
        if producer_id in self._recalled:
            return False
        self._recalled.add(producer_id)
        headers = []
        offset = max(log.start_offset, log.end_offset - RECALLED_OFFSETS_MAX)
        while offset < log.end_offset:
            data = log.read(offset, RECALLED_BYTES, minimum_one_batch=True).read()
            if not data:
                break
            batches = split_batches(data, len(data))
            headers += [header for _, header in batches if header.producer_id == producer_id]
            offset = batches[-1][1].next_offset
        log.producers.recall(producer_id, headers)
        return True

    def _write(self, data: memoryview | bytearray, header: BatchHeader, append_time: int, now_ms: int) -> Appended:
        log = self.log
        base_offset = log.end_offset
        leader_epoch = self.state.leader_epoch
        patch(data, 0, base_offset, leader_epoch)
        header = tuple.__new__(BatchHeader, (base_offset, header[1], leader_epoch, *header[3:]))
        try:
            log.append((header,), data, now_ms)
        except StorageError as error:
            if not error.is_disk_full:
                self._on_failure(error)
            raise
        self.appended_bytes += len(data)
        next_offset = log.end_offset
        if self.state.appended(next_offset):
            self.announce(len(data))
        return Appended(base_offset, next_offset, append_time)

    def _check_size(self, header: BatchHeader, size: int) -> None:
        batch_size = header.batch_length + LENGTH_OVERHEAD
        if batch_size > self.settings.max_message_bytes:
            raise BatchTooLarge(batch_size, self.settings.max_message_bytes)
        if batch_size < size:
            raise InvalidRecords("a produce request must hold exactly one batch for each partition")
        if header.base_offset:
            raise InvalidRecords(f"a produced batch's base offset must be 0, not {header.base_offset}")

    def _check_create_time(
        self, data: memoryview | bytearray, header: BatchHeader, max_delta: int, min_delta: int, now_ms: int
    ) -> BatchHeader:
        """Refuse timestamps outside the topic's window, and correct a header that misstates its largest one."""
        settings = self.settings
        if header.base_timestamp == NO_TIMESTAMP:
            newest = NO_TIMESTAMP
        else:
            newest = header.base_timestamp + max_delta
            oldest = header.base_timestamp + min_delta
            if newest - now_ms > settings.message_timestamp_after_max_ms:
                raise ApiError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"a record's timestamp {newest} lies more than message.timestamp.after.max.ms "
                    f"({settings.message_timestamp_after_max_ms}) ahead of the broker's clock {now_ms}",
                )
            if now_ms - oldest > settings.message_timestamp_before_max_ms:
                raise ApiError(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"a record's timestamp {oldest} lies more than message.timestamp.before.max.ms "
                    f"({settings.message_timestamp_before_max_ms}) behind the broker's clock {now_ms}",
                )
        if newest != header.max_timestamp or header.attributes & 0x08:
            header = patch_timestamps(data, 0, header, newest, TimestampType.CREATE)
        return header

    def _level(self) -> int | None:
        settings = self.settings
        levels = {
            Compression.GZIP: settings.compression_gzip_level,
            Compression.LZ4: settings.compression_lz4_level,
            Compression.ZSTD: settings.compression_zstd_level,
        }
        return levels.get(self._codec) if self._codec is not None else None

    def durable(self, next_offset: int) -> asyncio.Future[None]:
        """Done when everything before `next_offset` is on this broker's disk."""
        return self.sync.durable(next_offset)

    # Reading.

    def read(self, offset: int, size_max: int, *, committed_only: bool, minimum_one_batch: bool) -> LogSlice:
        """What a consumer may see from `offset` on; raises OFFSET_OUT_OF_RANGE outside of the log."""
        limit = self.last_stable_offset if committed_only else self.state.high_watermark
        if offset > limit:
            if offset > self.log.end_offset:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is past the end of the log, {self.log.end_offset}"
                )
            offset = min(offset, limit)
        return self.log.read(offset, size_max, offset_max=limit, minimum_one_batch=minimum_one_batch)

    def listen(self, listener: Callable[[int], None]) -> None:
        """Have `listener` called with the number of bytes whenever more can be read."""
        self._append_listeners.add(listener)

    def unlisten(self, listener: Callable[[int], None]) -> None:
        """Stop calling `listener`."""
        self._append_listeners.discard(listener)

    def announce(self, size_bytes: int) -> None:
        """Tell those who wait for records that so many more bytes can be read."""
        if self._append_listeners:
            for listener in tuple(self._append_listeners):
                listener(size_bytes)

    def delete_records(self, offset: int) -> int:
        """Move the log's start up to `offset` (-1: the high watermark); returns the start."""
        wanted = self.state.high_watermark if offset == -1 else offset
        if wanted < 0 or wanted > self.state.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"records can be deleted up to the high watermark {self.state.high_watermark}, not up to {offset}",
            )
        self.log.advance_start_offset(wanted)
        return self.log.start_offset


def log_settings(settings: TopicSettings) -> LogSettings:
    """The part of a topic's settings that its log acts on."""
    segment_ms = settings.segment_ms
    if settings.compacts:
        # Only finished segments are compacted, so a record's wait for it bounds a segment's age.
        segment_ms = max_segment_ms(segment_ms, settings.max_compaction_lag_ms)
    return LogSettings(
        segment_bytes=settings.segment_bytes,
        segment_ms=segment_ms,
        segment_jitter_ms=settings.segment_jitter_ms,
        index_interval_bytes=settings.index_interval_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        preallocate=settings.preallocate,
        flush_messages=settings.flush_messages,
        flush_ms=settings.flush_ms,
        file_delete_delay_ms=settings.file_delete_delay_ms,
    )
