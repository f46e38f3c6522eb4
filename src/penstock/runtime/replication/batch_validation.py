"""Validates produced batches by their topic's settings: keys, timestamps, codec and compression level."""

from __future__ import annotations

from penstock.config.topic import TopicSettings
from penstock.model.errors import ErrorCode
from penstock.wire.compression import Compression
from penstock.wire.kernel import validate_records, walk_keys
from penstock.wire.record_types import Buffer, InvalidRecords, RecordFacts, RefusedRecords
from penstock.wire.records import BatchHeader, TimestampType, patch_timestamps

NO_TIMESTAMP = -1
TIMESTAMP_MAX = 2**63 - 1
# The attribute bit for timestamps set by the broker.
APPEND_TIME = 0x08
# As many as fill librdkafka's largest batch: a small batch can decompress to millions of records.
NAMED_RECORDS_MAX = 10_000

# By compression.type; `producer` keeps the producer's codec and is not in here.
CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def compression_level(settings: TopicSettings) -> int | None:
    """The level of the topic's own codec; None for the codec's default."""
    levels = {
        "gzip": settings.compression_gzip_level,
        "lz4": settings.compression_lz4_level,
        "zstd": settings.compression_zstd_level,
    }
    return levels.get(settings.compression_type)


def check_records(settings: TopicSettings, header: BatchHeader, body: Buffer, now_ms: int) -> RecordFacts:
    """Reject malformed records, and records without a key where the topic requires one."""
    try:
        return validate_records(body, header.records_count, require_keys=settings.compacts)
    except InvalidRecords:
        _refuse_each(settings, header, body, now_ms)
        raise


def check_times(
    settings: TopicSettings,
    data: memoryview | bytearray,
    header: BatchHeader,
    body: Buffer,
    facts: RecordFacts,
    now_ms: int,
) -> BatchHeader:
    """Reject timestamps outside the topic's window, and correct a header that misstates its largest one.

    With LogAppendTime, the broker's time is set.
    """
    if settings.log_append_time:
        check_window(settings, header, body, facts, now_ms)
        return patch_timestamps(data, 0, header, now_ms)
    base_timestamp = header.base_timestamp
    newest = base_timestamp + facts.max_timestamp_delta
    if (
        newest - now_ms > settings.message_timestamp_after_max_ms
        or newest > TIMESTAMP_MAX
        or now_ms - base_timestamp - facts.min_timestamp_delta > settings.message_timestamp_before_max_ms
    ):
        check_window(settings, header, body, facts, now_ms)
    if newest != header.max_timestamp or header.attributes & APPEND_TIME:
        header = patch_timestamps(data, 0, header, newest, TimestampType.CREATE)
    return header


def check_window(settings: TopicSettings, header: BatchHeader, body: Buffer, facts: RecordFacts, now_ms: int) -> None:
    """Reject timestamps outside the topic's window, or that only a broker may set."""
    base_timestamp = header.base_timestamp
    newest = base_timestamp + facts.max_timestamp_delta
    if settings.log_append_time:
        if header.attributes & APPEND_TIME:
            _refuse_each(settings, header, body, now_ms)
    elif (
        newest - now_ms > settings.message_timestamp_after_max_ms
        or newest > TIMESTAMP_MAX
        or now_ms - base_timestamp - facts.min_timestamp_delta > settings.message_timestamp_before_max_ms
    ):
        _refuse_each(settings, header, body, now_ms)


def _refuse_each(settings: TopicSettings, header: BatchHeader, body: Buffer, now_ms: int) -> None:
    """Raise RefusedRecords with each record that the topic rejects; return if there is none."""
    keys = walk_keys(body, header.records_count)
    refused: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    count = 0
    for index, (key_start, delta) in enumerate(zip(keys.key_starts, keys.timestamp_deltas, strict=True)):
        if settings.compacts and key_start < 0:
            why = "it has no key, but a compacted topic requires one"
        else:
            why = _wrong_time(settings, header, header.base_timestamp + delta, now_ms)
            if not why:
                continue
            code = ErrorCode.INVALID_TIMESTAMP
        count += 1
        if len(refused) < NAMED_RECORDS_MAX:
            refused.append((index, why))
    if refused:
        first, why = refused[0]
        message = f"the topic rejects {count} of {header.records_count} records; the first is record {first}: {why}"
        raise RefusedRecords(code, message, refused)


def _wrong_time(settings: TopicSettings, header: BatchHeader, timestamp: int, now_ms: int) -> str:
    """Why a record's timestamp is rejected; empty if it is valid."""
    if settings.log_append_time:
        if header.attributes & APPEND_TIME:
            return "it claims to have the broker's time (LogAppendTime), which only a broker can set"
        return ""
    if timestamp == NO_TIMESTAMP:
        return ""
    after_ms, before_ms = settings.message_timestamp_after_max_ms, settings.message_timestamp_before_max_ms
    if timestamp > min(now_ms + after_ms, TIMESTAMP_MAX):
        limit = f"message.timestamp.after.max.ms ({after_ms}) ahead of"
    elif now_ms - timestamp > before_ms:
        limit = f"message.timestamp.before.max.ms ({before_ms}) behind"
    else:
        return ""
    return f"its timestamp {timestamp} lies more than {limit} the broker's clock, {now_ms}"
