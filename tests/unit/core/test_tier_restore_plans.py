"""Where a restored log ends, and what is missing of it."""

from __future__ import annotations

import pytest

from penstock.core.tier.restore import Hole, holes, last_segments, readable_partition
from penstock.core.tier.segments import EpochStart, RemoteSegment


def segment(number: int, start: int, end: int, *epochs: tuple[int, int]) -> RemoteSegment:
    starts = tuple(EpochStart(*one) for one in epochs or ((0, start),))
    return RemoteSegment(bytes([number]) * 16, start, end, 100, 0, starts)


def lineage(*epochs: tuple[int, int]) -> list[EpochStart]:
    return [EpochStart(*one) for one in epochs]


@pytest.mark.parametrize(
    ("segments", "epochs", "missing"),
    [
        # Whole, overlapping, and beginning where retention left it.
        ([(10, 19), (20, 29)], ((0, 0),), []),
        ([(10, 24), (20, 29)], ((0, 0),), []),
        # What was deleted before it was copied is not missing.
        ([(0, 19, (0, 15)), (20, 29)], ((0, 15),), []),
        # One segment is missing, or two that follow each other.
        ([(0, 9), (20, 29)], ((0, 0),), [(10, 19)]),
        ([(0, 4), (10, 14), (20, 29)], ((0, 0),), [(5, 9), (15, 19)]),
        # What is missing may cross the start of an epoch.
        ([(0, 9), (20, 29, (1, 20))], ((0, 0), (1, 15)), [(10, 19)]),
        # Another epoch's records at these offsets are no substitute.
        ([(0, 19), (20, 29, (2, 20))], ((0, 0), (2, 10)), [(10, 19)]),
    ],
)
def test_holes(
    segments: list[tuple[int, ...]], epochs: tuple[tuple[int, int], ...], missing: list[tuple[int, int]]
) -> None:
    built = [segment(number, start, end, *own) for number, (start, end, *own) in enumerate(segments, 1)]
    partition = readable_partition(built)
    assert holes(partition, lineage(*epochs), built[-1].end_offset + 1) == [Hole(*one) for one in missing]


def test_nothing_is_missing_of_nothing() -> None:
    assert holes(readable_partition([]), [], 0) == []


def test_the_highest_epoch_determines_where_the_log_ended() -> None:
    longer, newer, newest = segment(1, 0, 99), segment(2, 50, 79, (2, 50)), segment(3, 50, 69, (2, 50))
    assert last_segments([longer, newest, newer]) == [newer, newest, longer]
