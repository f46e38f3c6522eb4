"""Tiered storage: what was copied, read and removed, what waits to be copied, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.metrics.sheet import Metric, Sheet
from penstock.runtime.tier.remote_logs import RemoteLogs

_PREFIX = "kafka_server_brokertopicmetrics_remote"


def _counter(name: str, what: str) -> Metric:
    return Metric(f"{_PREFIX}{name}_total", "counter", what)


COPY_BYTES = _counter("copybytes", "Bytes that were copied to object storage.")
COPIES = _counter("copyrequests", "Segments that were copied to object storage.")
COPY_ERRORS = _counter("copyerrors", "Copies that failed; they are tried again.")
FETCH_BYTES = _counter("fetchbytes", "Bytes that consumers got from object storage or its cache.")
FETCHES = _counter("fetchrequests", "Reads of what is only in object storage.")
FETCH_ERRORS = _counter("fetcherrors", "Such reads that failed.")
DELETES = _counter("deleterequests", "Segments that were removed from object storage.")
DELETE_ERRORS = _counter("deleteerrors", "Removals that failed; they are tried again.")
LAG_BYTES = Metric(f"{_PREFIX}copylagbytes", "gauge", "Bytes of segments that wait to be copied, where led here.")
LAG_SEGMENTS = Metric(f"{_PREFIX}copylagsegments", "gauge", "Segments that wait to be copied, where led here.")
SIZE = Metric(f"{_PREFIX}logsizebytes", "gauge", "Bytes of the segments in object storage that this broker knows of.")
SEGMENTS = Metric(f"{_PREFIX}logmetadatacount", "gauge", "Segments in object storage that this broker knows of.")
TIMEOUTS = Metric(
    "penstock_tier_fetch_timeouts_total", "counter", "Reads that were answered without records, as they took too long."
)
REJECTED = Metric(
    "penstock_tier_fetches_rejected_total", "counter", "Reads answered without records, as too many others waited."
)
STORE_READS = Metric("penstock_tier_store_reads_total", "counter", "Requests that read from the object store.")
STORE_BYTES = Metric("penstock_tier_store_read_bytes_total", "counter", "Bytes that they read.")

METRICS = (
    COPY_BYTES,
    COPIES,
    COPY_ERRORS,
    FETCH_BYTES,
    FETCHES,
    FETCH_ERRORS,
    DELETES,
    DELETE_ERRORS,
    LAG_BYTES,
    LAG_SEGMENTS,
    SIZE,
    SEGMENTS,
    TIMEOUTS,
    REJECTED,
    STORE_READS,
    STORE_BYTES,
)


class TierCollector:
    """Collects what tiered storage does on this broker."""

    def __init__(self, tier: RemoteLogs) -> None:
        self._tier = tier

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        counters = self._tier.counters
        for metric, value in (
            (COPY_BYTES, counters.copied_bytes),
            (COPIES, counters.copies),
            (COPY_ERRORS, counters.copy_errors),
            (FETCH_BYTES, counters.fetched_bytes),
            (FETCHES, counters.fetches),
            (FETCH_ERRORS, counters.fetch_errors),
            (DELETES, counters.deletes),
            (DELETE_ERRORS, counters.delete_errors),
            (LAG_BYTES, counters.lag_bytes),
            (LAG_SEGMENTS, counters.lag_segments),
            (TIMEOUTS, counters.fetch_timeouts),
            (REJECTED, counters.rejected_fetches),
            (STORE_READS, counters.store_reads),
            (STORE_BYTES, counters.store_bytes),
        ):
            sheet.add(metric, value)
        yield
        size = count = 0
        for _, remote in self._tier.segments():
            segments = remote.segments()
            count += len(segments)
            size += sum(segment.size_bytes for segment in segments)
            yield
        sheet.add(SIZE, size)
        sheet.add(SEGMENTS, count)
