"""Finds in the log itself whether a batch is a repeated one, where the state of its producer no longer tells.

A snapshot keeps one batch per producer, and the state in memory five, as many as a client has in flight. A client that
got answers to later batches but not to the first one sends that together with new ones, and when their answers are lost
as well, it is further back than five.
"""

from __future__ import annotations

from penstock.core.replica.producer_state import Duplicate
from penstock.storage.log import Log
from penstock.wire.records import BatchHeader, split_batches

# How far back the log is searched.
OFFSETS_MAX = 20_000
READ_BYTES = 1024 * 1024
# Searches that are remembered; a client that gets a refusal may ask again and again.
SEARCHES_MAX = 1_000


class RecalledBatches:
    """What was searched for in one log, so that the same batch is not searched for twice."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[tuple[int, int, int, int], Duplicate | None] = {}

    def clear(self) -> None:
        """The log has changed other than by appending to it: what was found may be gone, or the other way round."""
        self._found.clear()

    def find(self, log: Log, header: BatchHeader) -> Duplicate | None:
        """Where a batch that was refused is in the log already; None if it is not near its end."""
        if not log.producers.may_repeat(header):
            return None
        key = _key(header)
        if key not in self._found:
            if len(self._found) >= SEARCHES_MAX:
                self._found.clear()
            headers = newest_batches_of(log, header.producer_id)
            # Those around it are likely to come again, too.
            log.producers.recall(header.producer_id, headers)
            repeated = next((known for known in headers if _key(known) == key and not known.is_control), None)
            self._found[key] = None if repeated is None else _duplicate(repeated)
        return self._found[key]


def _key(header: BatchHeader) -> tuple[int, int, int, int]:
    return header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence


def _duplicate(header: BatchHeader) -> Duplicate:
    return Duplicate(header.base_offset, header.last_offset, header.max_timestamp)


def newest_batches_of(log: Log, producer_id: int) -> list[BatchHeader]:
    """The headers of a producer's batches near the log's end, in order."""
    headers: list[BatchHeader] = []
    offset = max(log.local_start_offset, log.end_offset - OFFSETS_MAX)
    while offset < log.end_offset:
        data = log.read(offset, READ_BYTES, minimum_one_batch=True).read()
        if not data:
            break
        batches = split_batches(data, len(data))
        headers += [header for _, header in batches if header.producer_id == producer_id]
        offset = batches[-1][1].next_offset
    return headers
