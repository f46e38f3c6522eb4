"""The settings that a log obeys; a replaced `Log.settings` takes effect with the next append."""

from __future__ import annotations

from dataclasses import dataclass

INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Kafka's topic properties as far as a log needs them, with Kafka's defaults."""

    segment_bytes: int = 2**30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 2**20
    index_interval_bytes: int = 4096
    preallocate: bool = False
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    # Whether older segments may be in object storage, so that the log starts before its first segment.
    tiered: bool = False
