"""For every anomaly of the public Kafka workload a history that has it, and one almost the same that has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.jepsen.checker import ANOMALIES, check, summary
from support.jepsen.graph import Graph, components, cycle_through
from support.jepsen.operations import Operation, from_json, read_history, write_edn
from support.jepsen.recorder import Recorder

Micro = list[Any]
# A process, its outcome, and what it did: operations one after the other.
Entry = tuple[int, str, str, Any]


def send(key: int, offset: int | None, value: int) -> Micro:
    return ["send", key, [offset, value]]


def poll(key: int, *pairs: tuple[int, int]) -> Micro:
    return ["poll", {key: [list(pair) for pair in pairs]}]


def sequence(*entries: Entry) -> list[Operation]:
    """Each operation ends before the next one starts."""
    recorder = Recorder()
    for process, outcome, f, value in entries:
        recorder.invoke(process, f, value)
        recorder.complete(process, outcome, f, value)
    return recorder.operations


def concurrent(*entries: Entry) -> list[Operation]:
    """All operations start before any ends."""
    recorder = Recorder()
    for process, _, f, value in entries:
        recorder.invoke(process, f, value)
    for process, outcome, f, value in entries:
        recorder.complete(process, outcome, f, value)
    return recorder.operations


def sends(*pairs: tuple[int, int], process: int = 0, key: int = 0) -> list[Entry]:
    return [(process, "ok", "send", [send(key, offset, value)]) for offset, value in pairs]


def polls(*pairs: tuple[int, int], process: int = 1, key: int = 0) -> Entry:
    return (process, "ok", "poll", [poll(key, *pairs)])


def rebalanced(history: list[Operation], index: int, *keys: int) -> list[Operation]:
    one = history[index]
    history[index] = Operation(one.index, one.process, one.type, one.f, one.value, one.time, keys)
    return history


ABC = sends((0, 1), (1, 2), (3, 3))

# The kinds of each history must be these, no more and no fewer.
CASES: dict[str, tuple[list[Operation], set[str]]] = {
    "lost-write": (
        sequence(*ABC, polls((0, 1), (3, 3))),
        {"lost-write", "unseen", "int-poll-skip"},
    ),
    "lost-write, no poll so far": (sequence(*ABC, polls((0, 1), (1, 2))), {"unseen"}),
    "lost-write of a transaction of unknown fate that was seen": (
        sequence(
            (0, "info", "txn", [send(0, 0, 1), send(1, 0, 2)]),
            *sends((1, 3), process=2),
            polls((0, 2), key=1),
            polls((1, 3)),
        ),
        {"lost-write"},
    ),
    "the same, not seen at all": (
        sequence((0, "info", "txn", [send(0, 0, 1), send(1, 0, 2)]), *sends((1, 3), process=2), polls((1, 3))),
        set(),
    ),
    "lost-write, overwritten by another": (
        sequence(*sends((0, 1), (1, 2)), *sends((1, 3), (2, 4), process=2), polls((0, 1), (1, 3), (2, 4))),
        {"lost-write", "unseen", "inconsistent-offsets"},
    ),
    "nothing is wrong": (sequence(*ABC, polls((0, 1), (1, 2), (3, 3))), set()),
    "unseen": (sequence(*ABC, polls((0, 1), (1, 2))), {"unseen"}),
    "unseen, but perhaps never written": (
        sequence(*ABC[:2], (0, "info", "send", [["send", 0, 3]]), polls((0, 1), (1, 2))),
        set(),
    ),
    "duplicate": (sequence(*ABC, polls((0, 1), (1, 2), (3, 3), (4, 2), process=1)), {"duplicate"}),
    "two values": (sequence(*ABC, *sends((4, 4)), polls((0, 1), (1, 2), (3, 3), (4, 4))), set()),
    "inconsistent-offsets": (
        sequence(*ABC, polls((0, 1), (1, 2), (3, 3)), *sends((3, 4), process=3), polls((3, 4), process=2)),
        {"inconsistent-offsets"},
    ),
    "consistent offsets": (
        sequence(*ABC, polls((0, 1), (1, 2), (3, 3)), *sends((4, 4), process=3), polls((4, 4), process=2)),
        set(),
    ),
    "phantom": (sequence(*ABC, polls((0, 1), (1, 2), (3, 3), (4, 9))), {"phantom"}),
    "nonmonotonic-poll": (
        sequence(*ABC, polls((0, 1), (1, 2)), polls((1, 2), (3, 3))),
        {"nonmonotonic-poll"},
    ),
    "polls of two processes": (sequence(*ABC, polls((0, 1), (1, 2)), polls((1, 2), (3, 3), process=2)), set()),
    "poll-skip": (
        sequence(*ABC, polls((0, 1), (1, 2), (3, 3), process=2), polls((0, 1)), polls((3, 3))),
        {"poll-skip"},
    ),
    "poll-skip of a mere gap": (sequence(*ABC, polls((0, 1), (1, 2)), polls((3, 3))), set()),
    "poll-skip after a failed poll": (
        sequence(
            *ABC,
            polls((0, 1), (1, 2), (3, 3), process=2),
            polls((0, 1)),
            (1, "fail", "txn", [poll(0, (1, 2))]),
            polls((3, 3)),
        ),
        {"poll-skip"},
    ),
    "polled again after a failed poll": (
        sequence(*ABC, polls((0, 1)), (1, "fail", "txn", [poll(0, (1, 2))]), polls((1, 2), (3, 3))),
        set(),
    ),
    "polls on after a rebalance": (
        rebalanced(sequence(*ABC, polls((0, 1), (1, 2)), polls((1, 2), (3, 3))), 9, 0),
        set(),
    ),
    "polls on after a rebalance of another key": (
        rebalanced(sequence(*ABC, polls((0, 1), (1, 2)), polls((1, 2), (3, 3))), 9, 1),
        {"nonmonotonic-poll"},
    ),
    "polls anew after an assignment": (
        sequence(
            *ABC,
            polls((0, 1), (1, 2), (3, 3)),
            (1, "ok", "assign", [1]),
            (1, "ok", "assign", [0, 1]),
            polls((0, 1)),
        ),
        set(),
    ),
    "polls anew after an assignment that left the key": (
        sequence(*ABC, polls((0, 1), (1, 2), (3, 3)), (1, "ok", "assign", [0, 1]), polls((0, 1))),
        {"nonmonotonic-poll"},
    ),
    "int-nonmonotonic-poll": (
        sequence(*ABC, polls((0, 1), (3, 3), (1, 2)), polls((0, 1), (1, 2), (3, 3), process=2)),
        {"int-nonmonotonic-poll", "int-poll-skip"},
    ),
    "int-nonmonotonic-poll of one value": (
        sequence(*ABC, (1, "ok", "txn", [poll(0, (0, 1), (1, 2)), poll(0, (1, 2), (3, 3))])),
        {"int-nonmonotonic-poll"},
    ),
    "int-poll-skip": (
        sequence(*ABC, polls((0, 1), (3, 3)), polls((0, 1), (1, 2), (3, 3), process=2)),
        {"int-poll-skip"},
    ),
    "int-poll-skip after a rebalance": (
        rebalanced(sequence(*ABC, polls((0, 1), (3, 3)), polls((0, 1), (1, 2), (3, 3), process=2)), 7, 0),
        set(),
    ),
    "nonmonotonic-send": (
        sequence(*sends((1, 1), (0, 2)), polls((0, 2), (1, 1))),
        {"nonmonotonic-send", "G0-process"},
    ),
    "nonmonotonic-send, offset learned from a poll": (
        sequence(*sends((1, 1)), (0, "info", "send", [["send", 0, 2]]), polls((0, 2), (1, 1))),
        {"nonmonotonic-send", "G0-process"},
    ),
    "sends of two processes at once": (
        concurrent((0, "ok", "send", [send(0, 1, 1)]), (2, "ok", "send", [send(0, 0, 2)]), polls((0, 2), (1, 1))),
        set(),
    ),
    "int-nonmonotonic-send": (
        sequence((0, "ok", "txn", [send(0, 1, 1), send(0, 0, 2)]), polls((0, 2), (1, 1))),
        {"int-nonmonotonic-send"},
    ),
    "sends in order": (sequence((0, "ok", "txn", [send(0, 0, 1), send(0, 1, 2)]), polls((0, 1), (1, 2))), set()),
    "G0-realtime": (
        sequence(*sends((1, 1)), *sends((0, 2), process=2), polls((0, 2), (1, 1))),
        {"G0-realtime"},
    ),
    "sends in the order of time": (
        sequence(*sends((0, 1)), *sends((1, 2), process=2), polls((0, 1), (1, 2))),
        set(),
    ),
    "G1a": (
        sequence((0, "fail", "txn", [["send", 0, 1]]), polls((0, 1))),
        {"G1a"},
    ),
    "not G1a": (sequence((0, "info", "txn", [["send", 0, 1]]), polls((0, 1))), set()),
    "G1c": (
        concurrent(
            (0, "ok", "txn", [send(0, 0, 1), poll(1, (0, 2))]),
            (1, "ok", "txn", [send(1, 0, 2), poll(0, (0, 1))]),
        ),
        {"G1c"},
    ),
    "not G1c": (
        concurrent(
            (0, "ok", "txn", [send(0, 0, 1)]),
            (1, "ok", "txn", [send(1, 0, 2), poll(0, (0, 1))]),
            (2, "ok", "poll", [poll(1, (0, 2))]),
        ),
        set(),
    ),
    "G1c-process": (
        sequence((1, "ok", "poll", [poll(0, (0, 1))]), (1, "ok", "send", [send(0, 0, 1)])),
        {"G1c-process"},
    ),
    "G1c-realtime": (
        sequence((1, "ok", "poll", [poll(0, (0, 1))]), (0, "ok", "send", [send(0, 0, 1)])),
        {"G1c-realtime"},
    ),
    "polled after it was sent": (
        sequence((0, "ok", "send", [send(0, 0, 1)]), (1, "ok", "poll", [poll(0, (0, 1))])),
        set(),
    ),
    "polled while it was sent": (
        concurrent((1, "ok", "poll", [poll(0, (0, 1))]), (0, "ok", "send", [send(0, 0, 1)])),
        set(),
    ),
    "precommitted-read": (
        sequence((0, "ok", "txn", [send(0, 0, 1), poll(0, (0, 1))])),
        {"precommitted-read"},
    ),
    "polled in the next transaction": (
        sequence((0, "ok", "txn", [send(0, 0, 1)]), (0, "ok", "txn", [poll(0, (0, 1))])),
        set(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_exactly_these_anomalies_are_found(name: str) -> None:
    history, kinds = CASES[name]
    found = check(history)
    assert {one.kind for one in found} == kinds, "\n".join(map(str, found))
    assert all(one.operations for one in found)


def test_there_is_a_case_for_every_anomaly() -> None:
    """Operations of one record each make cycles of writes only together with another order."""
    assert {kind for _, kinds in CASES.values() for kind in kinds} | {"G0"} == set(ANOMALIES)


def two_transactions(*offsets: int) -> list[Operation]:
    """Both send to two keys: where the first one's records are, and where the second one's."""
    one, two, three, four = offsets
    return concurrent(
        (0, "ok", "txn", [send(0, one, 1), send(1, two, 2)]),
        (2, "ok", "txn", [send(0, three, 3), send(1, four, 4)]),
        (1, "ok", "poll", [poll(0, *sorted([(one, 1), (three, 3)])), poll(1, *sorted([(two, 2), (four, 4)]))]),
    )


def test_writes_of_transactions_make_a_cycle_only_where_they_are_isolated() -> None:
    assert check(two_transactions(0, 1, 1, 0)) == []
    assert summary(check(two_transactions(0, 1, 1, 0), isolated_writes=True)) == {"G0": 1}
    assert check(two_transactions(0, 0, 1, 1), isolated_writes=True) == []


def test_reads_and_writes_make_a_cycle_only_where_the_order_of_writes_counts() -> None:
    """Each value lies behind one of the other operation in one log, and one polled the other's in a second log."""
    history = concurrent(
        (0, "ok", "txn", [send(0, 1, 1), send(1, 0, 2)]),
        (1, "ok", "txn", [send(0, 0, 3), poll(1, (0, 2))]),
        (2, "ok", "poll", [poll(0, (0, 3), (1, 1))]),
    )
    assert check(history) == []
    assert summary(check(history, write_order=True)) == {"G1c": 1}


def test_an_operation_without_an_end_may_have_taken_effect() -> None:
    recorder = Recorder()
    recorder.invoke(0, "send", [["send", 0, 1]])
    recorder.invoke(1, "poll", [["poll"]])
    assert check(recorder.operations) == []
    recorder.complete(1, "ok", "poll", [poll(0, (0, 1))])
    assert check(recorder.operations) == []


def test_faults_are_no_operations_of_clients() -> None:
    recorder = Recorder()
    recorder.fault("kill", 1)
    assert check([*recorder.operations, *sequence(*ABC, polls((0, 1), (1, 2), (3, 3)))]) == []


def test_a_knot_is_reported_once_with_a_short_cycle() -> None:
    graph = Graph()
    for source, target in ((1, 2), (2, 3), (3, 1), (2, 1), (3, 4), (5, 6), (6, 5)):
        graph.add(source, target, "ww")
    knots = components(graph.of_kinds(("ww",)))
    assert sorted(map(sorted, knots)) == [[1, 2, 3], [5, 6]]
    assert cycle_through((2, 3), graph.of_kinds(("ww",)), (1, 2, 3)) == [2, 3, 1]
    assert cycle_through((1, 2), graph.of_kinds(("ww",)), (1, 2, 3)) == [1, 2]


def test_a_long_chain_needs_no_recursion() -> None:
    chain = {number: [number + 1] for number in range(50_000)} | {50_000: [0]}
    assert len(components(chain)[0]) == 50_001


def test_a_history_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with Recorder(path) as recorder:
        recorder.invoke(3, "txn", [["poll"], ["send", 1, 7]])
        recorder.complete(3, "info", "txn", [poll(0, (4, 6)), ["send", 1, 7]], (0, 1), "timed out")
        recorder.fault("kill", [2])
    assert read_history(path) == recorder.operations
    assert from_json(recorder.operations[1].to_json()).reads() == {0: [(4, 6)]}


def test_histories_are_written_in_the_form_that_jepsen_reads(tmp_path: Path) -> None:
    one = Operation(1, 3, "ok", "txn", [poll(0, (4, 6)), send(1, 9, 7)], 12, (0,), 'a "reason"')
    assert one.to_edn() == (
        "{:index 1, :time 12, :process 3, :type :ok, :f :txn, :value [[:poll {0 [[4 6]]}] [:send 1 [9 7]]], "
        ':rebalance-log [{:keys [0]}], :error "a \\"reason\\""}'
    )
    nothing = Operation(0, "nemesis", "info", "heal", None)
    assert nothing.to_edn() == "{:index 0, :time 0, :process :nemesis, :type :info, :f :heal, :value nil}"
    write_edn([nothing, one], tmp_path / "history.edn")
    assert (tmp_path / "history.edn").read_text().splitlines() == [nothing.to_edn(), one.to_edn()]
