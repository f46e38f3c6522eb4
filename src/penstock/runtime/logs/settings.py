"""What a topic's settings mean for its logs."""

from __future__ import annotations

from penstock.config.topic import TopicSettings
from penstock.core.lifecycle.compaction import max_segment_ms
from penstock.storage.settings import LogSettings


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
