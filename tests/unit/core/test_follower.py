"""What a follower makes of a leader's answers; throttles; who reads where."""

from __future__ import annotations

import pytest

from penstock.core.replica.follower import (
    APPENDED_OFFSETS_MAX,
    FollowerState,
    beginning_of_batch,
    truncation_offset,
    whole_batches,
)
from penstock.core.replica.leader import LeaderState
from penstock.core.replica.replica_selector import choose_replica
from penstock.core.replica.throttle import UNLIMITED, Throttle, is_throttled
from penstock.wire.records import CorruptBatch, Record, build_batch


def batch(base: int, records: int = 1) -> bytes:
    rows = [Record(base + number, 1, None, b"value") for number in range(records)]
    return build_batch(rows, base_offset=base, leader_epoch=3)


def test_the_high_watermark_follows_the_leaders_and_never_moves_back() -> None:
    state = FollowerState(1, 5, 10)
    assert state.update_high_watermark(20, 15)
    assert state.high_watermark == 15
    assert not state.update_high_watermark(12, 30)
    assert state.high_watermark == 15
    assert state.update_high_watermark(40, 30)
    assert state.high_watermark == 30


@pytest.mark.parametrize(
    ("leader", "local", "end", "expected"),
    [
        # The same epoch, of which the leader has less.
        ((3, 50), (3, 80), 80, 50),
        # The same epoch, of which the leader has more; what follows it here goes.
        ((3, 90), (3, 60), 80, 60),
        # The leader's epoch is not here: all after the one before it goes.
        ((3, 90), (2, 40), 80, 40),
        # Nothing is known here of epochs that old.
        ((3, 50), (-1, -1), 80, 50),
        ((3, 90), (-1, -1), 80, 80),
    ],
)
def test_where_a_log_is_cut(leader: tuple[int, int], local: tuple[int, int], end: int, expected: int) -> None:
    assert truncation_offset(*leader, *local, end) == expected


def test_batches_are_taken_whole_and_from_the_logs_end_on() -> None:
    first, second, third = batch(4, 2), batch(6), batch(9)
    data = first + second + third + batch(10)[:-1]
    headers, begin, end = whole_batches(data, 6)
    assert [header.base_offset for header in headers] == [6, 9]
    assert data[begin:end] == second + third
    assert whole_batches(data, 11)[0] == []
    assert whole_batches(b"", 3) == ([], 0, 0)
    assert whole_batches(first[:40], 4) == ([], 0, 0)


def test_batches_too_far_apart_for_one_segment_are_left_for_the_next_fetch() -> None:
    sent = [batch(4), batch(4 + APPENDED_OFFSETS_MAX), batch(5 + APPENDED_OFFSETS_MAX), batch(2**40)]
    data = b"".join(sent)
    taken = []
    expected = 0
    while found := whole_batches(data, expected)[0]:
        taken.append([header.base_offset for header in found])
        expected = found[-1].next_offset
    assert taken == [[4, 4 + APPENDED_OFFSETS_MAX], [5 + APPENDED_OFFSETS_MAX], [2**40]]


def test_an_empty_log_may_begin_within_a_batch() -> None:
    data = batch(4, 3)
    assert [beginning_of_batch(data, offset) for offset in (3, 4, 5, 6, 7)] == [3, 4, 4, 4, 7]
    assert beginning_of_batch(data[:40], 5) == 5


def test_batches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="cannot follow"):
        whole_batches(batch(4, 2), 5)
    with pytest.raises(CorruptBatch, match="cannot follow"):
        whole_batches(batch(6) + batch(6), 6)
    damaged = bytearray(batch(6))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        whole_batches(damaged, 6)
    shorter = bytearray(batch(6))
    shorter[8:12] = (5).to_bytes(4, "big")
    with pytest.raises(CorruptBatch):
        whole_batches(shorter, 6)


def test_a_throttle_lets_a_seconds_worth_through_and_then_its_rate() -> None:
    rate = 1_000
    throttle = Throttle(lambda: rate)
    assert not throttle.is_exceeded(0)
    throttle.spent(1_500)
    assert throttle.is_exceeded(0)
    assert throttle.is_exceeded(500)
    assert not throttle.is_exceeded(501)
    assert not throttle.is_exceeded(60_000)
    throttle.spent(1_000)
    assert throttle.is_exceeded(60_000), "nothing is saved up beyond a second's worth"
    rate = UNLIMITED
    assert not throttle.is_exceeded(60_000)


def test_which_replicas_are_throttled() -> None:
    assert not is_throttled((), 0, 1)
    assert is_throttled(("*",), 7, 1)
    assert is_throttled(("0:1", "1:2"), 1, 2)
    assert not is_throttled(("0:1", "1:2"), 1, 1)


def test_a_consumer_is_sent_to_the_furthest_in_sync_replica_of_its_rack() -> None:
    racks = {1: "east", 2: "west", 3: "west", 4: "west"}
    state = LeaderState(1, 0, (1, 2, 3, 4), (1, 2, 3), 100, 0, now_ms=0)
    assert choose_replica(state, racks, "west", 10) is None, "no replica has shown anything yet"
    state.fetched(2, 50, 1, start_offset=0)
    state.fetched(3, 60, 1, start_offset=20)
    state.fetched(4, 99, 1, start_offset=0)
    assert choose_replica(state, racks, "west", 30) == 3
    assert choose_replica(state, racks, "west", 10) == 2
    assert choose_replica(state, racks, "west", 61) is None
    assert choose_replica(state, racks, "east", 30) is None
    assert choose_replica(state, racks, "north", 30) is None
