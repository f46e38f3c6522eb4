"""Stored state of records, range by range: how a change is laid over what was stored before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.core.share.runs import FINISHED, StateBatch


def overlay(before: Sequence[StateBatch], change: Iterable[StateBatch], floor: int) -> tuple[StateBatch, ...]:
    """The batches after a change, in order and without overlaps; what is below `floor` is left out.

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
                kept.append(old.cut(old.first, new.first - 1))
            if old.last > new.last:
                kept.append(old.cut(new.last + 1, old.last))
        kept.append(new)
        batches = kept
    return _joined(batch.cut(max(batch.first, floor), batch.last) for batch in sorted(batches) if batch.last >= floor)


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
