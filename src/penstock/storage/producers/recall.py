"""Finds in the log itself whether a batch is a repeated one, where the state of its producer no longer shows it.

A snapshot keeps one batch per producer, and the state in memory five, as many as a client has in flight. A client that
got answers to later batches but not to the first one sends that together with new ones, and when their answers are lost
as well, it is further back than five.

The headers of the log's last batches are read for it, a few at a time, since that takes long: `lookup` answers from
what was found, and raises Unsearched where a search must come first. All batches of a producer are found at once, and
later only what was appended since is searched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

from penstock.core.replica.producer_state import Duplicate
from penstock.model.errors import ApiError, ErrorCode
from penstock.storage.log import Log
from penstock.storage.scan import SMALL_WALK_BYTES, walk_headers
from penstock.wire.records import BatchHeader

# How far back the log is searched.
OFFSETS_MAX = 20_000
# So much of a segment is located at once; only the headers in it are read.
LOCATE_BYTES = 1024 * 1024
# How many headers are read before others get their turn, about a millisecond's worth.
HEADERS_PER_TURN = 64
# What is remembered of one log: batches, and producers that were searched for.
BATCHES_MAX = OFFSETS_MAX
PRODUCERS_MAX = 1_000

_Key = tuple[int, int, int]


class Unsearched(ApiError):
    """Whether a refused batch is a repeated one is not known before the log is searched; `refused` is why if it is not.

    Where the log is not searched, the client sends it again.
    """

    def __init__(self, header: BatchHeader, refused: ApiError) -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"it may be a repeated batch: {refused.message}")
        self.header = header
        self.refused = refused


class SearchInterrupted(ApiError):
    """The log has changed other than by appending to it; the client sends the batch again."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log changed while a repeated batch was looked for")


class _Found:
    """A producer's batches, oldest first, and the offset up to which they were searched for."""

    __slots__ = ("batches", "end_offset")

    def __init__(self, end_offset: int) -> None:
        self.batches: dict[_Key, Duplicate] = {}
        self.end_offset = end_offset


class RecalledBatches:
    """What was found in one log."""

    __slots__ = ("_changes", "_found", "_lock")

    def __init__(self) -> None:
        self._found: dict[int, _Found] = {}
        self._changes = 0
        self._lock: asyncio.Lock | None = None

    def clear(self) -> None:
        """The log has changed other than by appending to it: what was found may be gone, or the other way round."""
        self._found.clear()
        self._changes += 1

    def lookup(self, log: Log, header: BatchHeader, refused: ApiError) -> Duplicate | None:
        """Where a batch that was refused is in the log already; None if it is not near its end. Raises Unsearched."""
        entry = log.producers.get(header.producer_id)
        if entry is None or not log.producers.may_repeat(header):
            return None
        found = self._found.get(header.producer_id)
        # The latest batches are those that the producer's state has.
        if found is None or found.end_offset < entry.batches[0].base_offset:
            raise Unsearched(header, refused)
        repeated = found.batches.get(_key(header))
        return repeated if repeated is not None and repeated.base_offset >= log.local_start_offset else None

    async def search(self, log: Log, header: BatchHeader, refused: ApiError) -> Duplicate | None:
        """The same as `lookup`, after searching the log if that is necessary.

        Others get their turn meanwhile, and one search of a log is under way at a time. Raises SearchInterrupted.
        """
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            while True:
                try:
                    return self.lookup(log, header, refused)
                except Unsearched:
                    # Again, if the producer has written more than its state keeps meanwhile.
                    await self._search(log, header.producer_id)

    async def _search(self, log: Log, producer_id: int) -> None:
        changes, end_offset = self._changes, log.end_offset
        found = self._found.get(producer_id) or _Found(0)
        fresh: dict[_Key, Duplicate] = {}
        headers = headers_between(log, max(found.end_offset, end_offset - OFFSETS_MAX), end_offset)
        while portion := list(islice(headers, HEADERS_PER_TURN)):
            for one in portion:
                if one.producer_id == producer_id and not one.is_control:
                    fresh[_key(one)] = Duplicate(one.base_offset, one.last_offset, one.max_timestamp)
            await asyncio.sleep(0)
            if self._changes != changes:
                raise SearchInterrupted
        self._note(producer_id, found, fresh, end_offset)

    def _note(self, producer_id: int, found: _Found, fresh: dict[_Key, Duplicate], end_offset: int) -> None:
        found.end_offset = end_offset
        oldest = end_offset - OFFSETS_MAX
        kept = {key: one for key, one in found.batches.items() if one.base_offset >= oldest}
        found.batches = kept | fresh
        self._found.pop(producer_id, None)
        self._found[producer_id] = found
        count = sum(len(one.batches) for one in self._found.values())
        while count > BATCHES_MAX or len(self._found) > PRODUCERS_MAX:
            # The one that was searched for the longest ago makes room.
            count -= len(self._found.pop(next(iter(self._found))).batches)
        assert 0 <= count <= BATCHES_MAX
        assert len(self._found) <= PRODUCERS_MAX


def _key(header: BatchHeader) -> _Key:
    return header.producer_epoch, header.base_sequence, header.last_sequence


def headers_between(log: Log, first_offset: int, end_offset: int) -> Iterator[BatchHeader]:
    """The headers of the batches between two offsets, in order; the log may be appended to meanwhile."""
    offset = max(first_offset, log.local_start_offset)
    while offset < end_offset:
        located = log.read(offset, LOCATE_BYTES, offset_max=end_offset, minimum_one_batch=True)
        if located.file is None:
            return
        end = located.position + located.size
        for _, header in walk_headers(located.file, located.position, end, SMALL_WALK_BYTES):
            yield header
        # Retention may have removed what comes next.
        offset = max(header.next_offset, log.local_start_offset)
