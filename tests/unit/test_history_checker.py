"""The checker finds every anomaly it is there for, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.history import History, Operation
from support.history_checks import check


class Clock:
    """Every look at it is a second later."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def history() -> History:
    return History(Clock())


def sent(history: History, value: str, offset: int | None, process: str = "p0", partition: str = "t-0") -> Operation:
    operation = history.send(process, partition, value)
    history.ok(operation, offset)
    return operation


def kinds(history: History) -> set[str]:
    return {anomaly.kind for anomaly in check(history)}


def test_a_good_history_has_no_anomaly(history: History) -> None:
    sent(history, "a", 0)
    sent(history, "b", 1)
    lost = history.send("p0", "t-0", "c")
    history.unknown(lost, "no answer")
    refused = history.send("p0", "t-0", "d")
    history.fail(refused, "too large")
    open_for_ever = history.send("p1", "t-0", "e")
    assert open_for_ever.completed is None
    history.polled("r0", "t-0", [(0, "a")])
    history.polled("r0", "t-0", [(1, "b"), (3, "c"), (4, "e")])
    history.moved("r0", "t-0")
    history.polled("r0", "t-0", [(0, "a")])
    history.final("t-0", [(0, "a"), (1, "b"), (3, "c"), (4, "e")])
    assert check(history) == []


def lost_write(history: History) -> None:
    sent(history, "a", 0)
    sent(history, "b", 1)
    history.final("t-0", [(1, "b")])
    history.polled("r0", "t-0", [(1, "b")])


def lost_read(history: History) -> None:
    operation = history.send("p0", "t-0", "a")
    history.unknown(operation, "no answer")
    history.polled("r0", "t-0", [(0, "a")])
    history.final("t-0", [])


def unseen(history: History) -> None:
    sent(history, "a", 0)
    history.final("t-0", [(0, "a")])


def duplicate(history: History) -> None:
    sent(history, "a", 0)
    history.polled("r0", "t-0", [(0, "a"), (1, "a")])
    history.final("t-0", [(0, "a"), (1, "a")])


def two_values_at_one_offset(history: History) -> None:
    sent(history, "a", None)
    sent(history, "b", None)
    history.polled("r0", "t-0", [(0, "a")])
    history.polled("r1", "t-0", [(0, "b")])


def another_offset_than_acknowledged(history: History) -> None:
    sent(history, "a", 0)
    sent(history, "b", None)
    history.polled("r0", "t-0", [(0, "b"), (1, "a")])


def one_offset_for_two_sends(history: History) -> None:
    sent(history, "a", 7)
    sent(history, "b", 7)


def phantom(history: History) -> None:
    history.polled("r0", "t-0", [(0, "never sent")])


def failed_read(history: History) -> None:
    history.fail(history.send("p0", "t-0", "a"), "too large")
    history.polled("r0", "t-0", [(0, "a")])


def poll_skip(history: History) -> None:
    for offset, value in enumerate("abc"):
        sent(history, value, offset)
    history.polled("r0", "t-0", [(0, "a")])
    history.polled("r0", "t-0", [(2, "c")])
    history.polled("r1", "t-0", [(1, "b")])


def nonmonotonic_poll(history: History) -> None:
    sent(history, "a", 0)
    history.polled("r0", "t-0", [(0, "a")])
    history.polled("r0", "t-0", [(0, "a")])


def nonmonotonic_send(history: History) -> None:
    sent(history, "a", 1)
    sent(history, "b", 0)
    history.polled("r0", "t-0", [(0, "b"), (1, "a")])


def nonmonotonic_send_of_unknown(history: History) -> None:
    history.unknown(history.send("p0", "t-0", "a"), "no answer")
    sent(history, "b", 0)
    history.polled("r0", "t-0", [(0, "b"), (1, "a")])


def lost_commit(history: History) -> None:
    history.ok(history.commit("m0", "g", "t-0", 5))
    history.ok(history.fetch_committed("m0", "g", "t-0"), None)


def commit_that_went_back(history: History) -> None:
    history.ok(history.commit("m0", "g", "t-0", 5))
    history.ok(history.commit("m0", "g", "t-0", 9))
    history.ok(history.fetch_committed("m1", "g", "t-0"), 5)


def lost_topic(history: History) -> None:
    history.ok(history.change("admin", "topic a", "exists"))
    history.ok(history.look("admin", "topic a"), None)


def topic_that_came_back(history: History) -> None:
    history.ok(history.change("admin", "topic a", "exists"))
    history.ok(history.change("admin", "topic a", None))
    history.ok(history.look("admin", "topic a"), "exists")


def committed_by_nobody(history: History) -> None:
    history.ok(history.fetch_committed("m0", "g", "t-0"), 5)


def noticed(history: History) -> None:
    history.notice("noticed", "a client saw it")


BAD: list[tuple[Callable[[History], None], str]] = [
    (lost_write, "lost-write"),
    (lost_read, "lost-read"),
    (unseen, "unseen"),
    (duplicate, "duplicate"),
    (two_values_at_one_offset, "inconsistent-offsets"),
    (another_offset_than_acknowledged, "inconsistent-offsets"),
    (one_offset_for_two_sends, "inconsistent-offsets"),
    (phantom, "phantom"),
    (failed_read, "failed-read"),
    (poll_skip, "poll-skip"),
    (nonmonotonic_poll, "nonmonotonic-poll"),
    (nonmonotonic_send, "nonmonotonic-send"),
    (nonmonotonic_send_of_unknown, "nonmonotonic-send"),
    (lost_commit, "lost-update"),
    (commit_that_went_back, "lost-update"),
    (lost_topic, "lost-update"),
    (topic_that_came_back, "lost-update"),
    (committed_by_nobody, "phantom-value"),
    (noticed, "noticed"),
]


@pytest.mark.parametrize(("happen", "kind"), BAD, ids=[happen.__name__ for happen, _ in BAD])
def test_each_anomaly_is_found(history: History, happen: Callable[[History], None], kind: str) -> None:
    happen(history)
    assert kinds(history) == {kind}


def test_writes_that_may_come_late_excuse_what_is_read(history: History) -> None:
    late = history.commit("m0", "g", "t-0", 5)
    late.attempts = 2
    history.ok(late)
    history.ok(history.commit("m0", "g", "t-0", 9))
    history.ok(history.fetch_committed("m0", "g", "t-0"), 5)
    history.unknown(history.commit("m0", "g", "t-0", 3), "no answer")
    history.ok(history.commit("m0", "g", "t-0", 12))
    history.ok(history.fetch_committed("m0", "g", "t-0"), 3)
    assert kinds(history) == set()


def test_a_read_beside_a_write_may_see_either_value(history: History) -> None:
    history.ok(history.change("admin", "topic a", "exists"))
    deleting = history.change("admin", "topic a", None)
    before, after = history.look("admin", "topic a"), history.look("admin", "topic a")
    history.ok(deleting)
    history.ok(before, "exists")
    history.ok(after, None)
    assert kinds(history) == set()


def test_many_anomalies_of_one_kind_are_counted(history: History) -> None:
    for number in range(8):
        sent(history, str(number), number)
    history.final("t-0", [])
    found = check(history)
    assert {anomaly.kind for anomaly in found} == {"lost-write"}
    assert found[-1].text == "and 3 more"


def test_unseen_records_are_excused_while_consumers_still_read(history: History) -> None:
    unseen(history)
    assert check(history, drained=False) == []
