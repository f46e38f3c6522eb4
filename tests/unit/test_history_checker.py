"""The checker finds every anomaly it is there for, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.history import History, Operation, Status, Transaction
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


def test_a_reader_may_miss_what_the_leader_at_the_time_had_compacted(history: History) -> None:
    history.compacted.add("t-0")
    for offset, (key, value) in enumerate([("k", "a"), ("l", "b"), ("k", "c"), ("k", "d")]):
        history.ok(history.send("p0", "t-0", value, key), offset)
    history.polled("r0", "t-0", [(1, "b"), (3, "d")])
    # The leader at the end has not compacted yet.
    everything = [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    history.polled("r1", "t-0", everything)
    history.final("t-0", everything)
    assert check(history) == []
    history.polled("r2", "t-0", [(0, "a"), (2, "c"), (3, "d")])
    assert [anomaly.text for anomaly in check(history)] == ["r2 went from 0 to 2 of t-0, past [1]"]


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


# Transactions.


def started(history: History, process: str, epoch: int, transactional_id: str = "id") -> None:
    history.ok(history.start(process, transactional_id), (1, epoch))


def transaction(history: History, writes: dict[str, tuple[str, int]], process: str = "w1") -> Transaction:
    """One that wrote values to partitions at offsets, and is still open."""
    begun = history.begin(process, "id")
    for value, (partition, offset) in writes.items():
        history.ok(history.send_in(begun, partition, value), offset)
    return begun


def ended(history: History, begun: Transaction, status: Status) -> None:
    if status is not Status.FAIL:
        end = history.end(begun, commit=True)
        (history.ok if status is Status.OK else history.unknown)(end, "")
    history.ended(begun, status)


def read_in_the_end(history: History, **partitions: list[tuple[int, str]]) -> None:
    for name, records in partitions.items():
        history.polled("r0", f"{name}-0", records)
        history.final(f"{name}-0", records)


def aborted_read(history: History) -> None:
    ended(history, transaction(history, {"a": ("t-0", 0)}), Status.FAIL)
    history.polled("r0", "t-0", [(0, "a")])


def aborted_in_the_end(history: History) -> None:
    ended(history, transaction(history, {"a": ("t-0", 0)}), Status.FAIL)
    history.final("t-0", [(0, "a")])


def read_in_a_circle(history: History) -> None:
    one = transaction(history, {"a": ("t-0", 0)}, "w1")
    other = transaction(history, {"b": ("u-0", 0)}, "w2")
    one.reads.append(("u-0", 0, "b"))
    other.reads.append(("t-0", 0, "a"))
    ended(history, one, Status.OK)
    ended(history, other, Status.UNKNOWN)


def read_what_it_wrote(history: History) -> None:
    begun = transaction(history, {"a": ("t-0", 0)})
    begun.reads.append(("t-0", 0, "a"))
    ended(history, begun, Status.OK)


def torn(history: History) -> None:
    ended(history, transaction(history, {"a": ("t-0", 0), "b": ("u-0", 0)}), Status.UNKNOWN)
    read_in_the_end(history, t=[(0, "a")], u=[])


def lost_of_committed(history: History) -> None:
    ended(history, transaction(history, {"a": ("t-0", 0)}), Status.OK)
    history.final("t-0", [])


def copied(history: History, copies: list[tuple[int, str, int]], sources: list[tuple[int, str]]) -> None:
    """Copies as offset, value and the offset of what they are copies of."""
    history.copied = ["t-0"], ["c-0"]
    for offset, value in sources:
        sent(history, value, offset)
    begun = history.begin("c1", "copier")
    for offset, value, source in copies:
        history.ok(history.send_in(begun, "c-0", value, ("t-0", source)), offset)
    ended(history, begun, Status.OK)
    read_in_the_end(history, t=sources, c=[(offset, value) for offset, value, _ in copies])


def duplicate_copy(history: History) -> None:
    copied(history, [(0, "A", 0), (1, "A again", 0)], [(0, "a")])


def lost_copy(history: History) -> None:
    copied(history, [(0, "A", 0)], [(0, "a"), (1, "b")])


def stray_copy(history: History) -> None:
    copied(history, [(0, "A", 0), (1, "B", 1)], [(0, "a")])


def zombie_writes(history: History) -> None:
    started(history, "w1", 0)
    started(history, "w2", 1)
    begun = transaction(history, {"a": ("t-0", 0)}, "w1")
    history.ended(begun, Status.FAIL)


def zombie_commits(history: History) -> None:
    started(history, "w1", 0)
    begun = transaction(history, {"a": ("t-0", 0)}, "w1")
    started(history, "w2", 1)
    ended(history, begun, Status.OK)


def zombie_sends_offsets(history: History) -> None:
    started(history, "w1", 0)
    started(history, "w2", 1)
    begun = history.begin("w1", "id")
    history.ok(history.send_offsets(begun, "g", {0: 5}))
    history.ended(begun, Status.FAIL)


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
    (aborted_read, "G1a"),
    (aborted_in_the_end, "G1a"),
    (read_in_a_circle, "G1c"),
    (read_what_it_wrote, "G1c"),
    (torn, "torn-transaction"),
    (lost_of_committed, "lost-write"),
    (duplicate_copy, "duplicate-copy"),
    (lost_copy, "lost-copy"),
    (stray_copy, "stray-copy"),
    (zombie_writes, "zombie-acknowledged"),
    (zombie_commits, "zombie-acknowledged"),
    (zombie_sends_offsets, "zombie-acknowledged"),
    (noticed, "noticed"),
]


@pytest.mark.parametrize(("happen", "kind"), BAD, ids=[happen.__name__ for happen, _ in BAD])
def test_each_anomaly_is_found(history: History, happen: Callable[[History], None], kind: str) -> None:
    happen(history)
    assert kinds(history) == {kind}


def test_good_transactions_have_no_anomaly(history: History) -> None:
    history.copied = ["t-0"], ["c-0"]
    started(history, "w1", 0)
    first = transaction(history, {"a": ("t-0", 0), "b": ("u-0", 0)}, "w1")
    ended(history, first, Status.OK)
    ended(history, transaction(history, {"aborted": ("t-0", 2)}, "w1"), Status.FAIL)
    ended(history, transaction(history, {"c": ("t-0", 4), "d": ("u-0", 2)}, "w1"), Status.UNKNOWN)
    ended(history, transaction(history, {"e": ("t-0", 6), "f": ("u-0", 4)}, "w1"), Status.UNKNOWN)
    late = transaction(history, {"g": ("t-0", 8)}, "w1")
    beside = history.end(late, commit=True)
    started(history, "w2", 1)
    # It was on its way when the successor started.
    history.ok(beside)
    history.ended(late, Status.OK)
    copy = history.begin("c1", "copier")
    for offset, source in enumerate((0, 4, 8)):
        history.ok(history.send_in(copy, "c-0", f"copy {source}", ("t-0", source)), offset)
    copy.reads += [("t-0", 0, "a"), ("t-0", 4, "c"), ("t-0", 8, "g")]
    ended(history, copy, Status.OK)
    # Of the two of unknown fate one was committed.
    read_in_the_end(
        history,
        t=[(0, "a"), (4, "c"), (8, "g")],
        u=[(0, "b"), (2, "d")],
        c=[(0, "copy 0"), (1, "copy 4"), (2, "copy 8")],
    )
    assert check(history) == []


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
