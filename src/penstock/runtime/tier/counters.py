"""What tiered storage has done on this broker, for the metrics."""

from __future__ import annotations


class TierCounters:
    """Plain integers, each counted once per request."""

    __slots__ = (
        "copied_bytes",
        "copies",
        "copy_errors",
        "delete_errors",
        "deletes",
        "fetch_errors",
        "fetch_timeouts",
        "fetched_bytes",
        "fetches",
        "lag_bytes",
        "lag_segments",
        "rejected_fetches",
        "store_bytes",
        "store_reads",
    )

    def __init__(self) -> None:
        self.copies = 0
        self.copied_bytes = 0
        self.copy_errors = 0
        self.deletes = 0
        self.delete_errors = 0
        # Reads of clients and followers, what they got, and those that were answered without data.
        self.fetches = 0
        self.fetched_bytes = 0
        self.fetch_errors = 0
        self.fetch_timeouts = 0
        self.rejected_fetches = 0
        # What was read from the store; the rest came from the cache.
        self.store_reads = 0
        self.store_bytes = 0
        # What was to be copied when it was last looked for, of all partitions led here.
        self.lag_segments = 0
        self.lag_bytes = 0
