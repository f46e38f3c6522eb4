"""What is copied to object storage, what leaves it, and what leaves the disk."""

from __future__ import annotations

from penstock.core.lifecycle.retention import RetentionSettings, SegmentFacts, plan_local_retention
from penstock.core.tier.plans import Expiry, plan_expiry, segments_to_copy
from penstock.core.tier.segments import EpochStart, RemoteSegment, SegmentState

LINEAGE = [EpochStart(0, 0)]
LOCAL = [SegmentFacts(20, 30, 100, 20), SegmentFacts(30, 40, 100, 30), SegmentFacts(40, 45, 50, 40)]


def remote(
    number: int, start: int, end: int, timestamp: int = 0, *, epoch: int = 0, state: SegmentState | None = None
) -> RemoteSegment:
    epochs = (EpochStart(epoch, start),)
    state = SegmentState.COPY_SEGMENT_FINISHED if state is None else state
    return RemoteSegment(bytes([number]) * 16, start, end, 100, timestamp, epochs, state)


TIERED = [remote(1, 0, 9, 0), remote(2, 10, 19, 10), remote(3, 20, 29, 20)]


def expire(
    segments: list[RemoteSegment],
    *,
    start: int = 0,
    ms: int = -1,
    size: int = -1,
    now_ms: int = 100,
    lineage: list[EpochStart] = LINEAGE,
    own: frozenset[bytes] = frozenset(),
) -> tuple[list[int], int]:
    plan: Expiry = plan_expiry(
        segments,
        lineage,
        LOCAL,
        start_offset=start,
        retention_ms=ms,
        retention_bytes=size,
        now_ms=now_ms,
        own_copies=own,
    )
    return [one.segment_id[0] for one in plan.delete], plan.start_offset


def test_rolled_and_decided_segments_are_copied() -> None:
    def copied(highest: int = -1, stable: int = 45, start: int = 0) -> list[int]:
        return [one.base_offset for one in segments_to_copy(LOCAL, highest, stable, start)]

    assert copied() == [20, 30]
    assert copied(highest=29) == [30]
    assert copied(highest=34) == [30]
    assert copied(highest=39) == []
    assert copied(stable=39) == [20]
    assert copied(stable=29) == []
    assert copied(start=30) == [30]


def test_nothing_expires_without_limits() -> None:
    assert expire(TIERED) == ([], 0)


def test_old_segments_expire_in_order() -> None:
    assert expire(TIERED, ms=85) == ([1, 2], 20)
    assert expire(TIERED, ms=100) == ([], 0)
    # A newer one before an older one keeps it.
    assert expire([remote(1, 0, 9, 50), remote(2, 10, 19, 0)], ms=60) == ([], 0)


def test_the_size_of_the_log_counts_what_is_here_and_there_once() -> None:
    # 200 bytes only in the tier, 250 here.
    assert expire(TIERED, size=450) == ([], 0)
    assert expire(TIERED, size=351) == ([], 0)
    assert expire(TIERED, size=350) == ([1], 10)
    assert expire(TIERED, size=250) == ([1, 2], 20)


def test_segments_before_the_log_start_offset_go() -> None:
    assert expire(TIERED, start=10) == ([1], 10)
    assert expire(TIERED, start=15) == ([1], 15)


def test_what_another_leader_began_is_removed_and_what_this_one_copies_is_not() -> None:
    torn = remote(7, 20, 29, state=SegmentState.COPY_SEGMENT_STARTED)
    assert expire([*TIERED[:2], torn]) == ([7], 0)
    assert expire([*TIERED[:2], torn], own=frozenset([torn.segment_id])) == ([], 0)
    assert expire([remote(7, 0, 9, state=SegmentState.DELETE_SEGMENT_STARTED)]) == ([7], 0)


def test_copies_of_a_lost_epoch_are_removed_where_the_log_knows_better() -> None:
    lost = remote(7, 10, 29, epoch=1)
    known = [EpochStart(0, 0), EpochStart(2, 10)]
    assert expire([TIERED[0], lost], lineage=known) == ([7], 0)
    # A leader that does not know the offsets at all removes nothing.
    assert expire([TIERED[0]], lineage=[EpochStart(5, 40)]) == ([], 0)


def test_a_leader_that_was_replaced_does_not_take_its_successors_copies_for_lost() -> None:
    newer = remote(7, 10, 29, epoch=2)
    assert expire([TIERED[0], newer], lineage=[EpochStart(0, 0), EpochStart(1, 15)]) == ([], 0)
    assert expire([TIERED[0], newer], lineage=[EpochStart(0, 0), EpochStart(3, 5)]) == ([7], 0)


def local(*, ms: int = -1, size: int = -1, copied: int = -1, start: int = 0, stable: int = 45) -> list[int]:
    plan = plan_local_retention(
        LOCAL,
        RetentionSettings(ms, size),
        100,
        high_watermark=stable,
        log_start_offset=start,
        copied_offset=copied,
    )
    return sorted(plan.delete)


def test_only_what_was_copied_leaves_the_disk() -> None:
    assert local(ms=0, size=0) == []
    assert local(ms=0, copied=29) == [20]
    assert local(ms=0, copied=38) == [20]
    assert local(size=0, copied=39) == [20, 30]
    assert local(size=150, copied=39) == [20]
    assert local(copied=39) == []


def test_what_was_deleted_leaves_the_disk_uncopied() -> None:
    assert local(start=30) == [20]
    assert local(start=30, ms=0, copied=39) == [20, 30]
