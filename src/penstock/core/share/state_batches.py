"""Stored state of records, range by range: how a change is laid over what was stored before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from penstock.core.share.runs import FINISHED, StateBatch

_first_of = attrgetter("first")
_last_of = attrgetter("last")


def overlay(before: Sequence[StateBatch], change: Iterable[StateBatch], floor: int) -> tuple[StateBatch, ...]:
    """The batches after a change, in order and without overlaps; what is below `floor` is left out.

    A leader's later word about an offset counts. Neighbours that say the same become one batch.
    """
    new = _layered(change)
    batches = [*new]
    for old in before:
        position = old.first
        for over in new[bisect_left(new, old.first, key=_last_of) : bisect_right(new, old.last, key=_first_of)]:
            if over.first > position:
                batches.append(old.cut(position, over.first - 1))
            position = over.last + 1
        if position <= old.last:
            batches.append(old if position == old.first else old.cut(position, old.last))
    batches.sort()
    return _joined(
        batch if batch.first >= floor else batch.cut(floor, batch.last) for batch in batches if batch.last >= floor
    )


def _layered(change: Iterable[StateBatch]) -> list[StateBatch]:
    """The batches of a change, in order and without overlaps: a later one covers those before it."""
    layered: list[StateBatch] = []
    for new in change:
        begin = bisect_left(layered, new.first, key=_last_of)
        end = bisect_right(layered, new.last, key=_first_of)
        covered = layered[begin:end]
        kept = [new]
        if covered and covered[0].first < new.first:
            kept.insert(0, covered[0].cut(covered[0].first, new.first - 1))
        if covered and covered[-1].last > new.last:
            kept.append(covered[-1].cut(new.last + 1, covered[-1].last))
        layered[begin:end] = kept
    return layered


def combine(
    before: Sequence[StateBatch], change: Iterable[StateBatch], start: int, floor: int | None = None
) -> tuple[StateBatch, ...]:
    """The state after a change: everything from `start` on, and before that, from `floor` on, what is unfinished."""
    batches = overlay(before, change, start if floor is None else min(floor, start))
    if not batches or batches[0].first >= start:
        return batches
    return _joined(
        batch.cut(max(batch.first, start), batch.last) if batch.state in FINISHED else batch
        for batch in batches
        if batch.last >= start or batch.state not in FINISHED
    )


def _joined(batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    joined: list[StateBatch] = []
    for batch in batches:
        if joined and joined[-1].is_continued_by(batch):
            joined[-1] = joined[-1]._replace(last=batch.last)
        else:
            joined.append(batch)
    return tuple(joined)
