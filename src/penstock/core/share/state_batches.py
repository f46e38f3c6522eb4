"""Stored state of records, range by range: how a change is laid over what was stored before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.core.share.partition import StateBatch


def combine(before: Sequence[StateBatch], change: Iterable[StateBatch], start: int) -> tuple[StateBatch, ...]:
    """The batches after a change, in order and without overlaps; what is below `start` is left out.

    A leader's later word about an offset counts. Neighbours that say the same become one batch.
    """
    batches = [*before]
    for new in change:
        kept: list[StateBatch] = []
        for old in batches:
            if old.last < new.first or old.first > new.last:
                kept.append(old)
                continue
            if old.first < new.first:
                kept.append(old._replace(last=new.first - 1))
            if old.last > new.last:
                kept.append(old._replace(first=new.last + 1))
        kept.append(new)
        batches = kept
    joined: list[StateBatch] = []
    for batch in sorted(one for one in batches if one.last >= start):
        cut = batch._replace(first=max(batch.first, start))
        last = joined[-1] if joined else None
        if last is not None and last.last + 1 == cut.first and last[2:] == cut[2:]:
            joined[-1] = last._replace(last=cut.last)
        else:
            joined.append(cut)
    return tuple(joined)
