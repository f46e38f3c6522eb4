"""Fetch sessions: what is asked once, what changes, what is told, and who gives way."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import NamedTuple

import pytest

from penstock.core.replica.fetch_session import (
    EPOCH_MAX,
    EVICTION_AGE_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    PARTITION_BYTES,
    SESSION_BYTES,
    FetchContext,
    FetchSession,
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


def test_only_news_is_returned_and_partitions_that_had_data_go_last() -> None:
    session = FetchSession(1, 0)
    session.update([("a", Wanted(0, 1)), ("b", Wanted(0, 1)), ("c", Wanted(0, 1))], [])
    assert session.must_include("a", 5, 0, 0, 0)
    assert not session.must_include("a", 5, 0, 0, 0)
    assert session.must_include("a", 6, 0, 0, 0), "a high watermark that moved is news"
    assert session.must_include("a", 6, 2, 0, 0), "a log start that moved is news"
    assert session.must_include("a", 6, 2, 100, 0), "data is news"
    assert list(session.partitions) == ["b", "c", "a"]
    assert session.must_include("b", 6, 2, 0, 3), "an error is news"
    assert session.must_include("b", 6, 2, 0, 0), "and so is its end"


def test_a_session_that_was_used_lately_keeps_its_place() -> None:
    sessions = cache(1)
    used = begin(sessions, "a")
    assert sessions.open(used.session_id, 1, [], [], EVICTION_AGE_MS - 1).error == ErrorCode.NONE
    assert not begin(sessions, "b", now_ms=EVICTION_AGE_MS + 5).session_id
    assert begin(sessions, "b", now_ms=2 * EVICTION_AGE_MS).session_id


class Named(NamedTuple):
    """A partition as a fetch names it."""

    topic: str
    topic_id: bytes
    partition: int


def fill(sessions: SessionCache, owner: str, partitions: int = 1, now_ms: int = 0, topic: str = "t") -> FetchContext:
    wanted = [(Named(topic, b"i" * 16, number), Wanted(number, 1_000_000)) for number in range(partitions)]
    return sessions.open(0, INITIAL_EPOCH, wanted, [], now_ms, owner=owner)


def test_the_bytes_of_sessions_are_about_what_they_hold_in_memory() -> None:
    sessions = SessionCache(1_000, Random(0), 1 << 30)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(10):
            fill(sessions, "eve", 1_000, topic=f"topic-{number}")
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held / 2 < sessions.size_bytes < 3 * held


def test_a_user_cannot_fill_the_memory_with_sessions() -> None:
    bytes_max = 10 * (SESSION_BYTES + 1_000 * PARTITION_BYTES)
    sessions = SessionCache(1_000, Random(0), bytes_max)
    ids = [fill(sessions, "eve", 1_000).session_id for _ in range(100)]
    assert sessions.size_bytes <= bytes_max
    assert sum(map(bool, ids)) == len(sessions) == 9
    for session_id in filter(None, ids):
        sessions.open(session_id, FINAL_EPOCH, [], [], 1, owner="eve")
    assert (len(sessions), sessions.size_bytes) == (0, 0)


def test_a_session_cannot_grow_beyond_the_memory_either() -> None:
    sessions = SessionCache(1_000, Random(0), 100 * PARTITION_BYTES)
    session_id = fill(sessions, "eve").session_id
    more = [(Named("u", b"", number), Wanted(0, 1)) for number in range(100)]
    assert sessions.open(session_id, 1, more, [], 1, owner="eve").error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.size_bytes) == (0, 0)
    assert fill(sessions, "eve", 100).error == ErrorCode.NONE, "it starts again, and is served without a session"


def test_partitions_that_are_forgotten_take_nothing() -> None:
    sessions = SessionCache(1_000, Random(0), 20 * PARTITION_BYTES)
    session_id = fill(sessions, "eve", 10).session_id
    for epoch in range(1, 50):
        gone, new = Named("t", b"i" * 16, epoch - 1), Named("t", b"i" * 16, epoch + 9)
        context = sessions.open(session_id, epoch, [(new, Wanted(0, 1))], [gone], epoch, owner="eve")
        assert context.session is not None
        assert len(context.session.partitions) == 10


@pytest.mark.parametrize(("slots", "bytes_max"), [(10, 1 << 30), (1_000, 10 * (SESSION_BYTES + PARTITION_BYTES + 1))])
def test_the_owner_with_the_most_sessions_makes_room(slots: int, bytes_max: int) -> None:
    sessions = SessionCache(slots, Random(0), bytes_max)
    of_eve = [fill(sessions, "eve", now_ms=number).session_id for number in range(30)]
    assert all(of_eve[:10])
    assert not any(of_eve[10:]), "sessions are not evicted for others of the same owner"
    of_ann = [fill(sessions, "ann", now_ms=number).session_id for number in range(30)]
    assert sum(map(bool, of_ann)) == 5
    left = [sessions.open(each, 1, [], [], 40, owner="eve").error == ErrorCode.NONE for each in of_eve[:10]]
    assert left == [False] * 5 + [True] * 5


def test_clients_evict_no_session_of_a_follower_and_cannot_end_it() -> None:
    sessions = SessionCache(4, Random(0))
    followers = [sessions.open(0, INITIAL_EPOCH, [("a", Wanted(0, 1))], [], 0, is_privileged=True) for _ in range(4)]
    assert fill(sessions, "eve").session_id == 0
    for follower in followers:
        for epoch in (INITIAL_EPOCH, FINAL_EPOCH, 1):
            sessions.open(follower.session_id, epoch, [], [], 1, owner="eve")
        again = sessions.open(follower.session_id, 1, [], [], 2, is_privileged=True)
        assert again.error == ErrorCode.NONE


def test_a_follower_takes_the_place_of_a_client() -> None:
    sessions = SessionCache(2, Random(0))
    fill(sessions, "eve")
    fill(sessions, "eve")
    for left in (2, 2, 3):
        assert sessions.open(0, INITIAL_EPOCH, [("a", Wanted(0, 1))], [], 0, is_privileged=True).session_id
        assert len(sessions) == left
    assert sessions.size_bytes == 0


def test_a_session_is_unknown_to_other_users() -> None:
    sessions = cache()
    session_id = fill(sessions, "ann").session_id
    assert sessions.open(session_id, 1, [], [], 1, owner="eve").error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.open(session_id, FINAL_EPOCH, [], [], 1, owner="eve")
    assert sessions.open(session_id, 1, [], [], 1, owner="ann").error == ErrorCode.NONE
