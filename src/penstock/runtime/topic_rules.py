"""What a topic's settings ask of produced batches: timestamps within a window, a codec and its level."""

from __future__ import annotations

from penstock.config.topic import TopicSettings
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.compression import Compression
from penstock.wire.records import BatchHeader, TimestampType, patch_timestamps

NO_TIMESTAMP = -1

# By compression.type; a topic that keeps the producer's codec has none.
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


def check_create_time(
    settings: TopicSettings,
    data: memoryview | bytearray,
    header: BatchHeader,
    max_delta: int,
    min_delta: int,
    now_ms: int,
) -> BatchHeader:
    """Refuse timestamps outside the topic's window, and correct a header that misstates its largest one."""
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
