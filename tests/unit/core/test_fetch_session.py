"""Fetch sessions: what is asked once, what changes, what is told, and who gives way."""

from __future__ import annotations

from random import Random

from penstock.core.replica.fetch_session import (
    EPOCH_MAX,
    EVICTION_AGE_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchContext,
    Session,
    SessionCache,
    Wanted,
)
from penstock.model.errors import ErrorCode


def cache(slots: int = 10) -> SessionCache:
    return SessionCache(slots, Random(0))


def begin(sessions: SessionCache, *keys: str, now_ms: int = 0) -> FetchContext:
    return sessions.open(0, INITIAL_EPOCH, [(key, Wanted(0, 100)) for key in keys], [], now_ms)


def followed(context: FetchContext) -> list[object]:
    assert context.session is not None
    return list(context.session.partitions)


def test_a_session_remembers_changes_and_forgets() -> None:
    sessions = cache()
    first = begin(sessions, "a", "b")
    assert first.session_id > 0
    assert not first.incremental
    second = sessions.open(first.session_id, 1, [("c", Wanted(5, 100)), ("a", Wanted(9, 100))], ["b"], 1)
    assert second.incremental
    assert followed(second) == ["a", "c"]
    assert second.session is not None
    assert second.session.partitions["a"].wanted.offset == 9
    third = sessions.open(first.session_id, 2, [], [], 2)
    assert followed(third) == ["a", "c"]


def test_no_session_is_made_when_none_is_wanted() -> None:
    sessions = cache()
    context = sessions.open(0, FINAL_EPOCH, [("a", Wanted(0, 1))], [], 0)
    assert context.session is None
    assert context.session_id == 0
    assert len(sessions) == 0


def test_the_final_epoch_ends_a_session() -> None:
    sessions = cache()
    session_id = begin(sessions, "a").session_id
    sessions.open(session_id, FINAL_EPOCH, [], [], 1)
    assert len(sessions) == 0
    assert sessions.open(session_id, 1, [], [], 2).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_wrong_epoch_is_refused_and_the_session_stays() -> None:
    sessions = cache()
    session_id = begin(sessions, "a").session_id
    assert sessions.open(session_id, 7, [], [], 1).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.open(session_id, 1, [], [], 1).error == ErrorCode.NONE


def test_an_unknown_session_is_refused() -> None:
    assert cache().open(12345, 1, [], [], 0).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_wrap_around_to_one() -> None:
    sessions = cache()
    context = begin(sessions, "a")
    assert context.session is not None
    context.session.epoch = EPOCH_MAX
    assert sessions.open(context.session_id, EPOCH_MAX, [], [], 1).error == ErrorCode.NONE
    assert sessions.open(context.session_id, 1, [], [], 2).error == ErrorCode.NONE


def test_a_full_cache_makes_no_session_until_one_is_old() -> None:
    sessions = cache(2)
    oldest = begin(sessions, "a", now_ms=0)
    begin(sessions, "b", now_ms=10)
    refused = begin(sessions, "c", now_ms=20)
    assert refused.session_id == 0
    assert refused.error == ErrorCode.NONE, "a fetch without a session is still served"
    assert len(sessions) == 2
    late = begin(sessions, "d", now_ms=EVICTION_AGE_MS + 5)
    assert late.session_id != 0
    assert len(sessions) == 2
    gone = sessions.open(oldest.session_id, 1, [], [], EVICTION_AGE_MS + 6)
    assert gone.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_in_use_is_not_the_one_to_go() -> None:
    sessions = cache(2)
    used, quiet = begin(sessions, "a", now_ms=0), begin(sessions, "b", now_ms=1)
    sessions.open(used.session_id, 1, [], [], EVICTION_AGE_MS)
    begin(sessions, "c", now_ms=EVICTION_AGE_MS + 10)
    assert sessions.open(used.session_id, 2, [], [], EVICTION_AGE_MS + 11).error == ErrorCode.NONE
    assert sessions.open(quiet.session_id, 1, [], [], EVICTION_AGE_MS + 11).error != ErrorCode.NONE


def test_no_slots_means_no_sessions() -> None:
    assert begin(cache(0), "a").session_id == 0


def test_only_news_is_told_and_whoever_had_data_goes_last() -> None:
    session = Session(1, 0)
    session.update([("a", Wanted(0, 1)), ("b", Wanted(0, 1)), ("c", Wanted(0, 1))], [])
    assert session.must_include("a", 5, 0, 0, 0)
    assert not session.must_include("a", 5, 0, 0, 0)
    assert session.must_include("a", 6, 0, 0, 0), "a high watermark that moved is news"
    assert session.must_include("a", 6, 2, 0, 0), "a log start that moved is news"
    assert session.must_include("a", 6, 2, 100, 0), "data is news"
    assert list(session.partitions) == ["b", "c", "a"]
    assert session.must_include("b", 6, 2, 0, 3), "an error is news"
    assert session.must_include("b", 6, 2, 0, 0), "and so is its end"


def test_a_followers_session_gives_way_when_it_was_quiet_for_so_long() -> None:
    for quiet_ms, gives_way in ((EVICTION_AGE_MS - 1, False), (EVICTION_AGE_MS, True)):
        sessions = cache(1)
        follower = sessions.open(0, INITIAL_EPOCH, [("a", Wanted(0, 100))], [], 0, is_privileged=True)
        assert follower.session_id
        assert bool(begin(sessions, "b", now_ms=quiet_ms).session_id) is gives_way


def test_a_session_that_was_used_lately_keeps_its_place() -> None:
    sessions = cache(1)
    used = begin(sessions, "a")
    assert sessions.open(used.session_id, 1, [], [], EVICTION_AGE_MS - 1).error == ErrorCode.NONE
    assert not begin(sessions, "b", now_ms=EVICTION_AGE_MS + 5).session_id
    assert begin(sessions, "b", now_ms=2 * EVICTION_AGE_MS).session_id
