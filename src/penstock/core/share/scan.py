"""Looking for delayed records in what is read for the first time."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.share.batches import Batches
from penstock.core.share.delays import Delayed, delayed_in, without
from penstock.core.share.partition import SharePartition


def wait_for(share: SharePartition, one: Delayed, now_ms: int, monotonic_ms: int) -> None:
    """Have a share-partition wait for a delayed record before its end, if it has to.

    The cursor may be ahead of the clock, if that was set back or an earlier leader's was fast. Who comes before the
    cursor cannot wait outside of the window then; it waits inside, like a record that came back.
    """
    if share.delays.is_waiting(one):
        share.wait_for(one)
    elif one.due_ms > now_ms:
        share.delay_until(one.offset, monotonic_ms + one.due_ms - now_ms)


class Ahead:
    """The delayed records of batches that were read, but are not behind the share-partition's end yet.

    Each batch is looked at once, however often it is read before its records are handed out.
    """

    def __init__(self, share: SharePartition) -> None:
        self._share = share
        self._end = share.end
        self._known: dict[int, Sequence[Delayed]] = {}

    def deliverable(self, batches: Batches, ranges: Sequence[tuple[int, int]], now_ms: int) -> list[tuple[int, int]]:
        """Ranges of offsets without the new records that have to wait, `now_ms` being the time by the wall clock."""
        share = self._share
        offsets: list[int] = []
        position = 0
        for header in batches.headers:
            if header.last_offset >= share.end:
                known = self._known.get(header.base_offset)
                if known is None:
                    known = self._known[header.base_offset] = delayed_in(batches.data, position, header)
                offsets += (one.offset for one in known if one.offset >= share.end and self._has_to_wait(one, now_ms))
            position += header.size_bytes
        return without(ranges, offsets) if offsets else [*ranges]

    def _has_to_wait(self, one: Delayed, now_ms: int) -> bool:
        return one.due_ms > now_ms or self._share.delays.is_waiting(one)

    def passed(self, now_ms: int, monotonic_ms: int) -> None:
        """To be called when the end has moved: the share-partition waits for what was passed over."""
        share, before = self._share, self._end
        if share.end == before:
            return
        self._end = share.end
        for base_offset in [base_offset for base_offset in self._known if base_offset < share.end]:
            known = self._known[base_offset]
            for one in known:
                if before <= one.offset < share.end:
                    wait_for(share, one, now_ms, monotonic_ms)
            if not known or known[-1].offset < share.end:
                del self._known[base_offset]
