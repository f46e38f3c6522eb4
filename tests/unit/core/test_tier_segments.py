"""The segments of a partition in object storage: their states, and finding them along the leader's epochs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.core.tier.segments import GONE_KEPT_MAX, EpochStart, RemotePartition, RemoteSegment, SegmentState

STARTED, FINISHED, DELETING, DELETED = SegmentState


def segment(
    number: int, start: int, end: int, *epochs: tuple[int, int], size: int = 100, timestamp: int = 0
) -> RemoteSegment:
    starts = tuple(EpochStart(*one) for one in epochs or ((0, start),))
    return RemoteSegment(bytes([number]) * 16, start, end, size, timestamp, starts)


def lineage(*epochs: tuple[int, int]) -> list[EpochStart]:
    return [EpochStart(*one) for one in epochs]


def tier(*segments: RemoteSegment) -> RemotePartition:
    partition = RemotePartition()
    for one in segments:
        assert partition.begin(one)
        assert partition.update(one.segment_id, FINISHED, 1, 1)
    return partition


def test_only_a_finished_copy_is_found() -> None:
    partition = RemotePartition()
    copy = segment(1, 0, 9)
    assert partition.begin(copy)
    assert partition.find(lineage((0, 0)), 5) is None
    assert partition.highest_offset(lineage((0, 0))) == -1
    assert partition.update(copy.segment_id, FINISHED, 1, 7)
    found = partition.find(lineage((0, 0)), 5)
    assert found is not None
    assert (found.state, found.broker_id, found.event_timestamp_ms) == (FINISHED, 1, 7)
    assert partition.highest_offset(lineage((0, 0))) == 9


@pytest.mark.parametrize(
    ("path", "accepted"),
    [
        ((FINISHED, DELETING, DELETED), True),
        ((DELETING, DELETED), True),
        ((STARTED,), False),
        ((DELETED,), False),
        ((FINISHED, FINISHED), False),
        ((FINISHED, DELETED), False),
        ((DELETING, FINISHED), False),
        ((DELETING, DELETED, FINISHED), False),
    ],
)
def test_states_follow_the_arrows(path: tuple[SegmentState, ...], accepted: bool) -> None:
    partition = RemotePartition()
    copy = segment(1, 0, 9)
    partition.begin(copy)
    for state in path[:-1]:
        assert partition.update(copy.segment_id, state, 1, 1)
    assert partition.update(copy.segment_id, path[-1], 1, 1) is accepted


def test_a_copy_that_was_finished_is_not_given_up() -> None:
    copy = segment(1, 0, 9)
    finished, unfinished = tier(copy), RemotePartition()
    unfinished.begin(copy)
    assert not finished.update(copy.segment_id, DELETING, 2, 1, only_unfinished=True)
    assert finished.find(lineage((0, 0)), 5) is not None
    assert finished.update(copy.segment_id, DELETING, 2, 1)
    assert unfinished.update(copy.segment_id, DELETING, 2, 1, only_unfinished=True)
    assert not unfinished.update(copy.segment_id, FINISHED, 1, 1)


def test_what_was_deleted_does_not_come_back() -> None:
    copy = segment(1, 0, 9)
    partition = tier(copy)
    for state in (DELETING, DELETED):
        partition.update(copy.segment_id, state, 1, 1)
    assert not partition.begin(copy)
    assert len(partition) == 0
    assert partition.find(lineage((0, 0)), 5) is None


def test_no_more_ids_of_deleted_segments_are_kept_than_are_of_use() -> None:
    partition = RemotePartition()
    for number in range(GONE_KEPT_MAX + 1):
        copy = replace(segment(1, 0, 9), segment_id=number.to_bytes(16, "big"))
        assert partition.begin(copy)
        for state in (FINISHED, DELETING, DELETED):
            assert partition.update(copy.segment_id, state, 1, 1)
    assert len(partition._gone) == GONE_KEPT_MAX
    assert not partition.begin(copy)
    assert partition.has_deleted


def test_each_offset_is_found_in_the_epoch_that_wrote_it() -> None:
    partition = tier(segment(1, 0, 9, (0, 0)), segment(2, 10, 19, (0, 10), (2, 15)), segment(3, 20, 29, (2, 20)))
    known = lineage((0, 0), (2, 15))
    for offset, number in ((0, 1), (9, 1), (10, 2), (14, 2), (15, 2), (19, 2), (29, 3)):
        found = partition.find(known, offset)
        assert found is not None
        assert found.segment_id[0] == number
    assert partition.find(known, 30) is None
    assert partition.highest_offset(known) == 29
    assert partition.earliest_offset() == 0


def test_after_an_unclean_election_the_lost_records_are_not_found() -> None:
    # Epoch 1 copied up to 29; the leader of epoch 2 only had up to 14.
    partition = tier(segment(1, 0, 9, (0, 0)), segment(2, 10, 29, (0, 10), (1, 12)), segment(3, 15, 24, (2, 15)))
    known = lineage((0, 0), (1, 12), (2, 15))
    assert partition.highest_offset(known) == 24
    found = partition.find(known, 16)
    assert found is not None
    assert found.segment_id[0] == 3
    before = partition.find(known, 14)
    assert before is not None
    assert before.segment_id[0] == 2
    assert partition.highest_offset(lineage((0, 0), (1, 12), (3, 15))) == 14


def test_of_two_copies_of_an_offset_either_is_found_whole() -> None:
    # Another leader rolled its segments elsewhere.
    partition = tier(segment(1, 0, 20), segment(2, 10, 15), segment(3, 16, 40))
    known = lineage((0, 0))
    assert [partition.find(known, offset).segment_id[0] for offset in (5, 12, 18, 30)] == [1, 2, 3, 3]  # type: ignore[union-attr]
    assert all(partition.find(known, here.end_offset + 1) is not None for here, _ in pairwise(partition.along(known)))


def test_segments_outside_of_the_lineage_are_left_out() -> None:
    partition = tier(segment(1, 0, 9, (0, 0)), segment(2, 10, 19, (1, 10)), segment(3, 10, 19, (2, 10)))
    assert [one.segment_id[0] for one in partition.along(lineage((0, 0), (2, 10)))] == [1, 3]


@pytest.mark.parametrize(
    ("known", "extended"),
    [
        # Nothing to add: the log knows where it begins.
        (((0, 0), (2, 15)), ((0, 0), (2, 15))),
        # What was deleted is not known any more, or nothing of what is before the disk.
        (((0, 5), (2, 15)), ((0, 0), (2, 15))),
        (((2, 18), (3, 40)), ((0, 0), (2, 15), (3, 40))),
        (((3, 40),), ((0, 0), (2, 15), (3, 40))),
        ((), ((0, 0), (2, 15))),
        # Of two that wrote the same offsets the later epoch counts, and none after the log's own.
        (((1, 30),), ((0, 0), (1, 12))),
    ],
)
def test_a_log_that_knows_too_little_learns_it_from_the_tier(
    known: tuple[tuple[int, int], ...], extended: tuple[tuple[int, int], ...]
) -> None:
    partition = tier(
        segment(1, 0, 9, (0, 0)),
        segment(2, 10, 19, (0, 10), (2, 15)),
        segment(3, 20, 29, (2, 20)),
        segment(4, 12, 29, (1, 12)),
    )
    if (1, 30) not in known:
        partition.update(bytes([4]) * 16, DELETING, 1, 1)
    assert list(partition.extended(lineage(*known), 0)) == lineage(*extended)


def test_what_was_deleted_before_the_copy_is_not_in_the_tier() -> None:
    partition = tier(segment(1, 0, 19, (0, 15)), segment(2, 20, 29))
    assert partition.earliest_offset() == 15
    assert partition.find(lineage((0, 15)), 15) is not None
