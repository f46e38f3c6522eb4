"""What a mirror partition does with the source's answers."""

from __future__ import annotations

import pytest

from penstock.core.link.mirror import BACKOFF_MAX_MS, BEHIND_MAX_MS, Action, MirrorPartition, MirrorPhase, SourceBatch

LAST = SourceBatch(90, 99, 1234, 3)


def test_a_mirror_continues_where_its_last_batch_is_the_sources() -> None:
    mirror = MirrorPartition()
    assert mirror.phase(is_paused=False, is_promoting=False) is MirrorPhase.INITIALIZING
    mirror.compare(LAST._replace(leader_epoch=1), LAST, is_compacted=False)
    assert (mirror.last_epoch, mirror.failure) == (3, "")
    assert mirror.phase(is_paused=False, is_promoting=False) is MirrorPhase.MIRRORING
    assert mirror.phase(is_paused=True, is_promoting=False) is MirrorPhase.PAUSED
    assert mirror.phase(is_paused=True, is_promoting=True) is MirrorPhase.PROMOTING


@pytest.mark.parametrize(
    "theirs",
    [
        LAST._replace(crc=1),
        LAST._replace(base_offset=95),
        LAST._replace(base_offset=89),
        LAST._replace(last_offset=109),
        SourceBatch(100, 104, 1234, 3),
    ],
)
def test_another_batch_at_the_source_ends_mirroring(theirs: SourceBatch) -> None:
    mirror = MirrorPartition()
    mirror.compare(LAST, theirs, is_compacted=False)
    assert mirror.last_epoch == -1
    assert mirror.phase(is_paused=False, is_promoting=True) is MirrorPhase.FAILED
    first = mirror.failure
    mirror.fail("something else")
    assert mirror.failure == first


def test_a_source_that_deleted_the_last_batch_is_followed() -> None:
    mirror = MirrorPartition()
    mirror.compare(LAST, None, is_compacted=False)
    assert (mirror.is_verified, mirror.failure, mirror.last_epoch) == (True, "", -1)


def test_compaction_on_either_side_proves_nothing() -> None:
    for theirs in (LAST._replace(crc=1), None, LAST._replace(base_offset=80)):
        mirror = MirrorPartition()
        mirror.compare(LAST, theirs, is_compacted=True)
        assert (mirror.is_verified, mirror.failure, mirror.last_epoch) == (True, "", -1)


def test_a_source_that_starts_later_has_the_mirror_start_again() -> None:
    mirror = MirrorPartition()
    assert mirror.out_of_range(500, 800, 100) is Action.RESTART
    assert not mirror.failure


def test_a_source_that_ends_before_the_mirror_has_lost_records() -> None:
    mirror = MirrorPartition()
    assert mirror.out_of_range(0, 99, 100) is Action.FAIL
    assert "ends at 99" in mirror.failure


def test_a_source_whose_offsets_fit_by_now_is_asked_again() -> None:
    mirror = MirrorPartition()
    assert mirror.out_of_range(100, 100, 100) is Action.CONTINUE
    assert mirror.lag(100) == 0


def test_a_source_that_refuses_what_it_has_gets_the_last_batch_compared_again() -> None:
    mirror = MirrorPartition(is_verified=True, last_epoch=5)
    assert mirror.out_of_range(0, 120, 100) is Action.CONTINUE
    assert (mirror.is_verified, mirror.last_epoch) == (False, -1)
    # The source no longer has that batch.
    assert mirror.out_of_range(100, 120, 100) is Action.CONTINUE
    assert (mirror.is_verified, mirror.last_epoch) == (True, -1)


def test_a_source_may_be_behind_for_a_minute_after_a_change_of_its_leader() -> None:
    mirror = MirrorPartition()
    for _ in range(20):
        mirror.retry("no answer", 0)
    for now_ms in range(1_000_000, 1_000_000 + BEHIND_MAX_MS, 10_000):
        mirror.behind(0, 90, 100, now_ms)
        assert mirror.retry_ms > now_ms
    assert (mirror.failure, "committed up to 90" in mirror.problem) == ("", True)
    # What interrupts that starts the minute again.
    mirror.retry("no answer", now_ms)
    mirror.behind(0, 90, 100, now_ms + BEHIND_MAX_MS)
    assert not mirror.failure
    mirror.behind(0, 90, 100, now_ms + 2 * BEHIND_MAX_MS)
    assert "ends at 90" in mirror.failure


def test_attempts_are_delayed_more_and_more() -> None:
    mirror = MirrorPartition()
    pauses = []
    for _ in range(12):
        mirror.retry("no answer", 0)
        pauses.append(mirror.retry_ms)
    assert pauses == sorted(pauses)
    assert pauses[-1] == BACKOFF_MAX_MS
    mirror.succeeded(0, 120)
    assert (mirror.problem, mirror.retry_ms, mirror.lag(100)) == ("", 0, 20)


def test_a_promotion_needs_an_end_read_for_it_and_everything_committed() -> None:
    mirror = MirrorPartition()
    mirror.succeeded(0, 100)
    assert mirror.claimed_end(7, 100, 100) == -1
    mirror.read_end_for(7, 100)
    assert mirror.claimed_end(7, 100, 99) == -1
    assert mirror.claimed_end(7, 100, 100) == 100
    # Another promotion reads it again.
    assert mirror.claimed_end(8, 100, 100) == -1
    # The source is still written to.
    mirror.read_end_for(7, 103)
    assert mirror.claimed_end(7, 100, 100) == -1
    assert mirror.claimed_end(7, 103, 103) == 103
    mirror.fail("lost")
    assert mirror.claimed_end(7, 103, 103) == -1
