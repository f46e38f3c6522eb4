"""Which messages show a leader of the metadata quorum that a voter is there."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.core.raft.events import Election, QuorumTimes, Received, Started, Tick
from penstock.core.raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    FetchRequest,
    LogEnd,
    SnapshotRequest,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from penstock.core.raft.quorum import Quorum
from penstock.core.raft.voters import VoterSet

TIMES = QuorumTimes(election_ms=1_000, fetch_ms=2_000, backoff_max_ms=500)


class EmptyLog:
    def end(self) -> LogEnd:
        return LogEnd(0, 0)

    start = snapshot = end

    def synced_offset(self) -> int:
        return 0

    def end_of_epoch(self, _: int) -> LogEnd:
        return LogEnd(0, 0)


def leader() -> tuple[Quorum, int]:
    """Node 1, elected by 2 and 3, and the time."""
    quorum = Quorum(1, VoterSet.of_ids([1, 2, 3]), Election(), EmptyLog(), TIMES, Random(1))
    quorum.step(Started(), 0)
    now_ms = quorum.deadline_ms
    asked = list(quorum.step(Tick(), now_ms).send)
    while asked and not quorum.is_leader:
        peer, message = asked.pop(0)
        if isinstance(message, VoteRequest):
            answer = VoteResponse(message.epoch, -1, True, message.pre_vote)
            asked += quorum.step(Received(peer, answer), now_ms).send
    assert quorum.is_leader
    return quorum, now_ms


@pytest.mark.parametrize(
    ("kind", "late", "is_heard"),
    [("fetch", False, True), ("snapshot", False, True), ("fetch", True, False), ("snapshot", True, False)],
)
def test_a_voter_that_fetches_in_this_epoch_is_heard(kind: str, late: bool, is_heard: bool) -> None:
    quorum, now_ms = leader()
    assert quorum.is_in_contact(100, now_ms)
    now_ms += 1_000
    assert not quorum.is_in_contact(100, now_ms)
    epoch = quorum.epoch - 1 if late else quorum.epoch
    message: Any = FetchRequest(epoch, 2, LogEnd(0, 0)) if kind == "fetch" else SnapshotRequest(epoch, 2)
    reply = quorum.step(Received(2, message), now_ms).reply
    assert quorum.is_in_contact(100, now_ms) is is_heard
    if kind == "snapshot":
        assert reply == SnapshotResponse(quorum.epoch, 1, is_refused=late)


@pytest.mark.parametrize(("epoch", "becomes_candidate"), [(6, False), (7, True)])
def test_only_the_leader_of_this_epoch_can_resign(epoch: int, becomes_candidate: bool) -> None:
    quorum = Quorum(1, VoterSet.of_ids([1, 2, 3]), Election(), EmptyLog(), TIMES, Random(1))
    quorum.step(Started(), 0)
    quorum.step(Received(2, BeginEpochRequest(7, 2)), 10)
    quorum.step(Received(3, EndEpochRequest(epoch, 3 if epoch == 6 else 2, (1,))), 20)
    assert (quorum.epoch, quorum.leader_id) == ((8, -1) if becomes_candidate else (7, 2))


def test_a_candidate_does_not_start_over_when_the_leader_before_it_resigns() -> None:
    quorum = Quorum(1, VoterSet.of_ids([1, 2, 3]), Election(), EmptyLog(), TIMES, Random(1))
    quorum.step(Started(), 0)
    quorum.step(Received(2, BeginEpochRequest(7, 2)), 10)
    quorum.step(Received(2, EndEpochRequest(7, 2, (1,))), 20)
    assert quorum.epoch == 8
    quorum.step(Received(3, EndEpochRequest(8, -1, (1,))), 30)
    assert quorum.epoch == 8
