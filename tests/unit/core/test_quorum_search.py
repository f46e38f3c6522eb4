"""How soon an observer finds the leader: a new controller waits 1.5 s for the brokers that it inherits."""

from __future__ import annotations

from random import Random

import pytest
from test_quorum import TIMES, FakeLog

from penstock.core.raft.events import Election, Received, Started, Tick
from penstock.core.raft.messages import NO_NODE, FetchRequest, FetchResponse
from penstock.core.raft.quorum import Quorum
from penstock.core.raft.voters import VoterSet

PATIENCE_MS = 600


@pytest.mark.parametrize("seed", range(10))
def test_an_observer_that_learns_of_no_leader_queries_again_soon(seed: int) -> None:
    quorum = Quorum(4, VoterSet.of_ids((1, 2, 3)), Election(), FakeLog(), TIMES, Random(seed))
    quorum.step(Started(), 0)
    now_ms = 1_000
    for epoch in (1, 1, 2, 3, 3):
        sent = quorum.step(Tick(), max(now_ms, quorum.deadline_ms)).send
        assert [type(message) for _, message in sent] == [FetchRequest]
        now_ms = max(now_ms, quorum.deadline_ms - PATIENCE_MS) + 10
        quorum.step(Received(sent[0][0], FetchResponse(epoch, NO_NODE, is_refused=True)), now_ms)
        assert quorum.deadline_ms - now_ms <= PATIENCE_MS
