"""In-sync replicas and the high watermark."""

from __future__ import annotations

from penstock.core.replica.leader import LeaderState

LAG_MS = 30_000


def three_replicas(end: int = 100, high_watermark: int = 80) -> LeaderState:
    return LeaderState(1, 5, (1, 2, 3), (1, 2, 3), end, high_watermark, now_ms=0)


def test_alone_the_high_watermark_is_the_logs_end() -> None:
    state = LeaderState(1, 0, (1,), (1,), 10, 4, now_ms=0)
    assert state.is_sole_replica
    assert state.high_watermark == 10
    assert state.appended(12)
    assert state.high_watermark == 12


def test_a_leader_that_may_be_alone_by_the_controllers_next_word_counts_as_alone() -> None:
    state = three_replicas()
    state.propose(frozenset({1, 2}))
    assert not state.is_sole_replica
    state.refused()
    state.propose(frozenset({1}))
    assert state.is_sole_replica
    state.refused()
    assert not state.is_sole_replica


def test_a_new_leader_does_not_know_how_much_of_its_log_was_acknowledged() -> None:
    state = three_replicas()
    assert state.acknowledged_offset == 100
    state.appended(120)
    assert state.acknowledged_offset == 100
    state.fetched(2, 120, 10)
    state.fetched(3, 110, 10)
    assert state.acknowledged_offset == 110


def test_it_waits_for_the_slowest_replica_that_is_in_sync() -> None:
    state = three_replicas()
    assert state.high_watermark == 80
    assert not state.fetched(2, 100, 10)
    assert state.fetched(3, 90, 20)
    assert state.high_watermark == 90
    state.appended(110)
    assert state.fetched(3, 110, 30)
    assert state.high_watermark == 100


def test_it_never_moves_back() -> None:
    state = three_replicas()
    state.fetched(2, 100, 10)
    state.fetched(3, 100, 10)
    state.fetched(3, 50, 20)
    assert state.high_watermark == 100


def test_a_replica_that_lags_is_to_go_and_one_that_caught_up_to_come_back() -> None:
    state = three_replicas()
    state.fetched(2, 100, LAG_MS + 1)
    assert state.proposal(LAG_MS + 1) == {1, 2}
    state.propose(frozenset({1, 2}))
    assert state.proposal(LAG_MS + 1) is None
    assert state.high_watermark == 80, "who is to go still counts until the controller agrees"
    assert state.settled((1, 2))
    assert state.high_watermark == 100
    state.fetched(3, 99, LAG_MS + 2)
    assert state.proposal(LAG_MS + 2) is None
    state.fetched(3, 100, LAG_MS + 3)
    assert state.proposal(LAG_MS + 3) == {1, 2, 3}


def test_a_replica_that_is_to_come_back_holds_the_high_watermark_already() -> None:
    state = three_replicas()
    state.settled((1, 2))
    state.fetched(2, 100, 1)
    state.fetched(3, 100, 1, is_eligible=False)
    state.propose(frozenset({1, 2, 3}))
    state.appended(120)
    state.fetched(2, 120, 2)
    assert state.high_watermark == 100
    state.refused()
    state.fetched(2, 120, 3)
    assert state.high_watermark == 120


def test_a_follower_that_is_always_a_little_behind_is_in_sync() -> None:
    """It reaches at each fetch what the leader had at the fetch before: it keeps pace."""
    state = three_replicas()
    state.settled((1, 2))
    now_ms = 0
    for step in range(20):
        now_ms += LAG_MS // 2
        state.appended(200 + step * 10)
        state.fetched(2, 190 + step * 10, now_ms)
    assert state.proposal(now_ms) is None


def test_a_follower_that_fetches_and_falls_behind_is_not() -> None:
    state = three_replicas()
    state.settled((1, 2))
    now_ms = 0
    for step in range(20):
        now_ms += LAG_MS // 2
        state.appended(200 + step * 100)
        state.fetched(2, 100 + step, now_ms)
    assert state.proposal(now_ms) == {1}


def test_a_replica_without_the_start_of_this_epoch_stays_out() -> None:
    state = LeaderState(1, 5, (1, 2), (1,), 100, 100, now_ms=0)
    state.fetched(2, 99, 1)
    assert state.proposal(1) is None
    state.fetched(2, 100, 2)
    assert state.proposal(2) == {1, 2}


def test_a_replica_joins_with_all_that_was_there_when_the_epoch_began_however_little_is_known_as_committed() -> None:
    state = LeaderState(1, 3, (1, 2, 3), (1, 2), 10, 5, now_ms=0, min_in_sync=2)
    # It lost power, and came back without what it had.
    state.settled((1,))
    state.fetched(2, 7, 10)
    assert not state.may_join(2), "an earlier leader may have committed up to 10"
    state.fetched(2, 10, 20)
    assert state.may_join(2)


def test_below_the_minimum_in_sync_nothing_is_committed() -> None:
    state = LeaderState(1, 5, (1, 2, 3), (1, 2), 100, 80, now_ms=0, min_in_sync=2)
    state.fetched(2, 100, 1)
    assert state.high_watermark == 100
    state.appended(120)
    assert not state.settled((1,))
    assert not state.has_enough_in_sync
    assert state.high_watermark == 100
    assert state.set_min_in_sync(1)
    assert state.high_watermark == 120


def test_a_minimum_above_the_number_of_replicas_requires_all_of_them() -> None:
    state = LeaderState(1, 5, (1,), (1,), 10, 4, now_ms=0, min_in_sync=3)
    assert state.has_enough_in_sync
    assert state.high_watermark == 10


def test_a_follower_that_keeps_pace_is_waited_for_until_it_stops() -> None:
    """Otherwise a busy leader that is alone in sync would be ahead of it for ever."""
    state = LeaderState(1, 5, (1, 2), (1,), 100, 100, now_ms=0)
    state.fetched(2, 90, 10)
    state.appended(110)
    assert state.high_watermark == 110
    assert not state.may_join(2)
    state.fetched(2, 105, 20)
    state.appended(120)
    assert state.high_watermark == 110, "it has caught up with what there was at its last fetch"
    assert not state.may_join(2)
    state.fetched(2, 115, 30)
    assert state.high_watermark == 115
    assert state.may_join(2)
    assert not state.expire_joining(20 + LAG_MS)
    assert state.expire_joining(31 + LAG_MS)
    assert state.high_watermark == 120


def test_a_follower_that_could_not_join_is_not_waited_for() -> None:
    state = LeaderState(1, 5, (1, 2), (1,), 100, 100, now_ms=0)
    state.fetched(2, 100, 10)
    state.appended(110)
    assert state.high_watermark == 100
    assert state.excluded(2)
    assert state.high_watermark == 110
    state.fetched(2, 105, 20, is_eligible=False)
    assert not state.may_join(2)


def test_a_replica_that_is_taken_away_holds_nothing_back() -> None:
    state = three_replicas()
    state.fetched(2, 100, 1)
    assert state.settled((1, 2), (1, 2))
    assert state.high_watermark == 100
    assert state.follower(3) is None
    state.settled((1, 2), (1, 2, 4), now_ms=5)
    assert state.follower(4) is not None
    assert state.low_watermark == -1


def test_a_follower_that_catches_up_while_fenced_may_join_when_it_is_unfenced() -> None:
    state = LeaderState(1, 5, [1, 2, 3], [1, 3], log_end_offset=7, high_watermark=7, now_ms=0)
    state.fetched(2, 7, 10, broker_epoch=40, is_eligible=False)
    assert state.proposal(20) is None
    assert not state.admitted(2, 41, 30), "another incarnation was let in"
    assert not state.admitted(3, 40, 30), "it is in sync already"
    assert state.admitted(2, 40, 30)
    assert state.proposal(30) == {1, 2, 3}


def test_a_follower_unfenced_while_it_lags_must_catch_up_first() -> None:
    state = LeaderState(1, 5, [1, 2], [1], log_end_offset=7, high_watermark=7, now_ms=0)
    state.fetched(2, 6, 10, broker_epoch=40, is_eligible=False)
    assert not state.admitted(2, 40, 20)
    assert state.proposal(20) is None


def test_nothing_is_committed_while_another_replica_is_eligible() -> None:
    state = LeaderState(1, 5, (1, 2), (1,), 100, 80, now_ms=0, eligible_replicas=(2,))
    assert state.must_confirm, "one is enough, and the controller does not know that this leader is there"
    assert not state.appended(101)
    assert state.high_watermark == 80
    assert state.proposal(0) == {1}, "the same again, to be heard of"
    assert state.settled((1,))
    assert state.high_watermark == 101
    assert state.proposal(0) is None


def test_too_few_in_sync_replicas_confirm_nothing() -> None:
    state = LeaderState(1, 5, (1, 2, 3), (1,), 100, 80, now_ms=0, min_in_sync=2, eligible_replicas=(2,))
    assert not state.must_confirm
    assert state.proposal(0) is None
    assert not state.set_min_in_sync(1), "not before the controller has heard of it"
    assert state.proposal(0) == {1}


def test_a_leader_that_stays_alone_requests_removal_of_the_others() -> None:
    leader = LeaderState(1, 0, (1, 2, 3), (1, 2), 10, 10, 0, leaving_replicas=(2,))
    # Replica 3 stays.
    assert (leader.stays_alone, leader.must_confirm, leader.proposal(0)) == (False, False, None)
    leader.settled((1, 2), (1, 2), 0, (), (2,))
    assert (leader.stays_alone, leader.must_confirm) == (True, True)
    assert leader.proposal(0) == {1}
    leader.propose(frozenset({1}))
    assert leader.is_sole_replica
    leader.settled((1,), (1,), 0)
    assert (leader.stays_alone, leader.must_confirm, leader.proposal(0)) == (False, False, None)


def test_an_incarnation_does_not_inherit_that_the_former_one_had_caught_up() -> None:
    state = LeaderState(1, 5, (1, 2), (1,), 100, 100, now_ms=0)
    state.fetched(2, 100, 10, broker_epoch=12)
    assert state.may_join(2)
    # It has lost everything.
    state.fetched(2, 0, 20, broker_epoch=13)
    assert not state.may_join(2)
    assert state.appended(110), "nothing waits for it"
    state.fetched(2, 100, 30, broker_epoch=13)
    assert not state.may_join(2)
    state.fetched(2, 110, 40, broker_epoch=13)
    assert state.may_join(2)


def test_the_low_watermark_is_the_lowest_start_of_followers_in_sync() -> None:
    state = LeaderState(1, 5, (1, 2, 3, 4), (1, 2, 3), 100, 80, now_ms=0)
    assert state.low_watermark == -1
    for replica, start_offset in ((2, 7), (3, 5), (4, 1)):
        state.fetched(replica, 100, 0, start_offset=start_offset)
    assert state.low_watermark == 5
    assert LeaderState(1, 0, (1,), (1,), 10, 4, now_ms=0).low_watermark is None


def test_a_replica_that_just_reaches_the_limit_of_its_lag_is_in_sync() -> None:
    state = three_replicas()
    state.fetched(2, 100, 0)
    state.fetched(3, 100, 0)
    state.appended(101)
    assert state.proposal(LAG_MS) is None
    assert state.proposal(LAG_MS + 1) == {1}
    assert state.incarnations({1, 2}, 9) == ((1, 9), (2, -1))


def test_a_follower_may_join_until_its_lag_is_too_long() -> None:
    state = LeaderState(1, 5, (1, 2), (1,), 100, 100, now_ms=0)
    state.fetched(2, 100, 10)
    state.appended(110)
    # It holds the high watermark back for as long as it may join.
    assert state.high_watermark == 100
    assert not state.expire_joining(10 + LAG_MS)
    assert state.may_join(2)
    assert state.expire_joining(11 + LAG_MS)
    assert state.high_watermark == 110
    assert not state.may_join(2)
    assert not state.expire_joining(12 + LAG_MS)


def test_a_follower_that_is_excluded_is_not_waited_for() -> None:
    state = LeaderState(1, 5, (1, 2), (1,), 100, 100, now_ms=0)
    assert not state.excluded(2)
    assert not state.excluded(9)
    state.fetched(2, 100, 10)
    state.appended(110)
    assert state.excluded(2)
    assert (state.high_watermark, state.may_join(2)) == (110, False)


def test_a_follower_is_admitted_only_as_the_one_that_fetched_everything() -> None:
    state = LeaderState(1, 5, (1, 2), (1,), 100, 100, now_ms=0)
    state.fetched(2, 100, 10, broker_epoch=7, is_eligible=False)
    assert not state.may_join(2)
    assert not state.admitted(9, 7, 20)
    assert not state.admitted(2, 8, 20)
    assert state.admitted(2, 7, 20)
    follower = state.follower(2)
    assert follower is not None
    assert (follower.fetched_at_ms, follower.caught_up_at_ms) == (20, 20)
    assert state.proposal(20) == {1, 2}


def test_what_a_fetch_shows_is_known_of_a_follower() -> None:
    state = LeaderState(1, 5, (1, 2), (1, 2), 100, 50, now_ms=3)
    follower = state.follower(2)
    assert follower is not None
    assert (follower.end_offset, follower.caught_up_at_ms, follower.is_joining) == (-1, 3, False)
    assert not state.fetched(2, 40, 10, broker_epoch=7, start_offset=4)
    assert (follower.end_offset, follower.start_offset, follower.fetched_at_ms) == (40, 4, 10)
    assert (follower.leader_end_offset, follower.broker_epoch, follower.caught_up_at_ms) == (100, 7, 3)
    state.appended(120)
    # Now it has what there was at its last fetch.
    assert state.fetched(2, 100, 20, broker_epoch=7)
    assert (follower.caught_up_at_ms, state.high_watermark) == (10, 100)
    state.was_caught_up(2, 30)
    state.was_caught_up(2, 25)
    state.was_caught_up(9, 25)
    assert follower.caught_up_at_ms == 30
    assert state.follower(9) is None
    # Another incarnation starts anew.
    state.fetched(2, 100, 40, broker_epoch=8)
    renewed = state.follower(2)
    assert renewed is not follower


def test_a_minimum_that_is_lowered_commits_at_once() -> None:
    state = LeaderState(1, 5, (1, 2, 3), (1,), 100, 80, now_ms=0, min_in_sync=2)
    assert not state.has_enough_in_sync
    assert state.high_watermark == 80
    assert state.set_min_in_sync(1)
    assert (state.high_watermark, state.has_enough_in_sync) == (100, True)
    assert not state.set_min_in_sync(2)
    assert (state.rivals, state.leader_id, state.has_followers) == (frozenset(), 1, True)
