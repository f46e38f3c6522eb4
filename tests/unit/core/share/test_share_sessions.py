"""Share sessions by example: their epochs, their limit, and whose they are."""

from __future__ import annotations

from contextlib import suppress

import pytest

from penstock.core.share.sessions import (
    EPOCH_MAX,
    FINAL_EPOCH,
    PARTITION_BYTES,
    SESSION_BYTES,
    SessionlessMembers,
    ShareSession,
    ShareSessions,
    TopicIdPartition,
)
from penstock.model.errors import ApiError, ErrorCode

TOPIC = bytes(range(16))
ONE, TWO, THREE = (TopicIdPartition(TOPIC, number) for number in range(3))


def test_a_session_remembers_its_partitions() -> None:
    sessions = ShareSessions(10)
    session = sessions.fetch("g", "m", 0, [ONE, TWO], [])
    assert [*session.partitions] == [ONE, TWO]
    assert sessions.fetch("g", "m", 1, [THREE], [ONE]) is session
    assert [*session.partitions] == [TWO, THREE]
    assert sessions.acknowledge("g", "m", 2) is session
    assert sessions.fetch("g", "m", FINAL_EPOCH, [], []) is session
    assert sessions.end(session)
    assert not sessions.end(session)
    assert not sessions.has_group("g")


@pytest.mark.parametrize("epoch", [0, 2, 5, -2])
def test_an_epoch_out_of_turn_is_refused(epoch: int) -> None:
    sessions = ShareSessions(10)
    sessions.fetch("g", "m", 0, [ONE], [])
    with pytest.raises(ApiError) as refused:
        sessions.acknowledge("g", "m", epoch)
    assert refused.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_a_member_without_a_session_begins_anew() -> None:
    sessions = ShareSessions(10)
    for epoch in (1, FINAL_EPOCH):
        with pytest.raises(ApiError) as refused:
            sessions.fetch("g", "m", epoch, [], [])
        assert refused.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_session_that_was_replaced_does_not_end_the_next_one() -> None:
    sessions = ShareSessions(1)
    first = sessions.fetch("g", "m", 0, [ONE], [])
    second = sessions.fetch("g", "m", 0, [TWO], [])
    assert not sessions.end(first)
    assert sessions.acknowledge("g", "m", 1) is second
    with pytest.raises(ApiError) as refused:
        sessions.fetch("g", "other", 0, [], [])
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert sessions.end(second)
    sessions.fetch("g", "other", 0, [], [])


def test_every_partition_is_first_in_turn() -> None:
    session = ShareSession("g", "m", [ONE, TWO, THREE])
    firsts = set()
    for _ in range(3):
        firsts.add(session.in_turn()[0])
        session.epoch += 1
    assert firsts == {ONE, TWO, THREE}
    assert ShareSession("g", "m", []).in_turn() == []


def test_takers_count_for_a_while_and_are_limited() -> None:
    takers = SessionlessMembers(2)
    takers.seen("g", "a", 0)
    takers.seen("h", "a", 1_000)
    takers.seen("g", "a", 2_000)
    assert takers.has_group("g")
    with pytest.raises(ApiError) as refused:
        takers.seen("i", "a", 3_000)
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    takers.seen("i", "a", 1_000 + SessionlessMembers.PRESENT_MS)
    assert [takers.has_group(group) for group in "ghi"] == [True, False, True]
    takers.forget(2_000 + SessionlessMembers.PRESENT_MS)
    assert [takers.has_group(group) for group in "ghi"] == [False, False, True]


def test_no_owner_keeps_all_others_out() -> None:
    sessions, takers = ShareSessions(8), SessionlessMembers(8)

    def count(owner: str | None) -> tuple[int, int]:
        """How many more of each an owner gets."""
        opened = taken = 0
        with suppress(ApiError):
            while True:
                sessions.fetch("g", f"{owner}-{opened}", 0, [], [], owner)
                opened += 1
        with suppress(ApiError):
            while True:
                takers.seen("g", f"{owner}-{taken}", 0, owner)
                taken += 1
        return opened, taken

    assert [count(owner) for owner in ("greedy", "late", "later", None)] == [(4, 4), (2, 2), (1, 1), (1, 1)]
    # Who has one keeps it, and what ends is free for others.
    sessions.fetch("g", "greedy-0", 0, [], [], "greedy")
    takers.seen("g", "greedy-0", SessionlessMembers.PRESENT_MS - 1, "greedy")
    assert count("last") == (0, 0)
    for member in ("greedy-1", "greedy-2"):
        assert sessions.end(sessions.acknowledge("g", member, FINAL_EPOCH))
    takers.forget(SessionlessMembers.PRESENT_MS)
    assert count("last") == (1, 4)


def test_partitions_of_sessions_are_limited_for_each_owner() -> None:
    places = [TopicIdPartition(TOPIC, number) for number in range(1_000)]
    some = 100
    sessions = ShareSessions(100, 4 * SESSION_BYTES + 4 * some * PARTITION_BYTES)
    sessions.fetch("g", "a", 0, places[:some], [], "greedy")
    with pytest.raises(ApiError) as refused:
        sessions.fetch("g", "a", 1, places, [], "greedy")
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    for member in ("a", "b"):
        with pytest.raises(ApiError):
            sessions.fetch("g", member, 0, places, [], "greedy")
    # What others leave free is left for others, and what an owner forgets is free again.
    for member in ("a", "b"):
        sessions.fetch("h", member, 0, places[: some // 2], [], "late")
    session = sessions.fetch("g", "a", 0, places[:some], [], "greedy")
    assert session.size_bytes < sessions.fetch("g", "a", 1, places[some : some + 10], [], "greedy").size_bytes + 1
    sessions.fetch("g", "a", 2, [], places, "greedy")
    for group, member in (("g", "a"), ("h", "a"), ("h", "b")):
        assert sessions.end(sessions.acknowledge(group, member, FINAL_EPOCH))
    assert not sessions._places._bytes_total
    assert not sessions._places._bytes


def test_what_waits_for_the_end_of_a_session_hears_of_it_once() -> None:
    sessions = ShareSessions(10)
    ended = []
    first = sessions.fetch("g", "m", 0, [ONE], [])
    first.on_ended = lambda: ended.append("first")
    second = sessions.fetch("g", "m", 0, [ONE], [])
    assert ended == ["first"]
    second.on_ended = lambda: ended.append("second")
    assert not sessions.end(first)
    assert sessions.end(second)
    assert not sessions.end(second)
    assert ended == ["first", "second"]


def test_epochs_begin_again_at_one() -> None:
    sessions = ShareSessions(1)
    session = sessions.fetch("g", "m", 0, [], [])
    session.epoch = EPOCH_MAX
    sessions.acknowledge("g", "m", EPOCH_MAX)
    assert session.epoch == 1
