"""Tiered storage: what was copied, read and removed, what waits to be copied, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.metrics.sheet import Metric, Sheet, counter, gauge
from penstock.runtime.tier.remote_logs import RemoteLogs

_PREFIX = "kafka_server_brokertopicmetrics_remote"


def _counter(name: str, what: str) -> Metric:
    return counter(f"{_PREFIX}{name}_total", what)


COPY_BYTES = _counter("copybytes", "Bytes that were copied to object storage.")
COPIES = _counter("copyrequests", "Segments that were copied to object storage.")
COPY_ERRORS = _counter("copyerrors", "Copies that failed; they are tried again.")
FETCH_BYTES = _counter("fetchbytes", "Bytes that consumers got from object storage or its cache.")
FETCHES = _counter("fetchrequests", "Reads of what is only in object storage.")
FETCH_ERRORS = _counter("fetcherrors", "Such reads that failed.")
DELETES = _counter("deleterequests", "Segments that were removed from object storage.")
DELETE_ERRORS = _counter("deleteerrors", "Removals that failed; they are tried again.")
LAG_BYTES = gauge(f"{_PREFIX}copylagbytes", "Bytes of segments that wait to be copied, where led here.")
LAG_SEGMENTS = gauge(f"{_PREFIX}copylagsegments", "Segments that wait to be copied, where led here.")
SIZE = gauge(f"{_PREFIX}logsizebytes", "Bytes of the segments in object storage that this broker knows of.")
SEGMENTS = gauge(f"{_PREFIX}logmetadatacount", "Segments in object storage that this broker knows of.")
TIMEOUTS = counter(
    "penstock_tier_fetch_timeouts_total", "Reads that were answered without records, as they took too long."
)
REJECTED = counter("penstock_tier_fetches_rejected_total", "Reads answered without records, as too many others waited.")
STORE_READS = counter("penstock_tier_store_reads_total", "Requests that read from the object store.")
STORE_BYTES = counter("penstock_tier_store_read_bytes_total", "Bytes that they read.")


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
