"""Finds a producer's recent batches in the log itself, where no snapshot has kept them."""

from __future__ import annotations

from penstock.storage.log import Log
from penstock.wire.records import BatchHeader, split_batches

# How far back the log is searched for a producer that retries after our restart.
OFFSETS_MAX = 20_000
READ_BYTES = 1024 * 1024


def newest_batches_of(log: Log, producer_id: int) -> list[BatchHeader]:
    """The headers of a producer's batches near the log's end, in order."""
    headers: list[BatchHeader] = []
    offset = max(log.start_offset, log.end_offset - OFFSETS_MAX)
    while offset < log.end_offset:
        data = log.read(offset, READ_BYTES, minimum_one_batch=True).read()
        if not data:
            break
        batches = split_batches(data, len(data))
        headers += [header for _, header in batches if header.producer_id == producer_id]
        offset = batches[-1][1].next_offset
    return headers
