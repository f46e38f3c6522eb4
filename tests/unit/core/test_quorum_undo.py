"""What happens to the quorum's state when its disk could not keep a step."""

from __future__ import annotations

from random import Random

from penstock.core.raft.events import Election, QuorumTimes, Received, Role, Started, Tick
from penstock.core.raft.messages import LogEnd, VoteResponse
from penstock.core.raft.quorum import Quorum
from penstock.core.raft.voters import VoterSet

EMPTY = LogEnd(0, 0)


class EmptyLog:
    def end(self) -> LogEnd:
        return EMPTY

    def synced_offset(self) -> int:
        return 0

    def end_of_epoch(self, epoch: int) -> LogEnd:  # noqa: ARG002
        return EMPTY

    def start(self) -> LogEnd:
        return EMPTY

    def snapshot(self) -> LogEnd:
        return EMPTY


def test_a_step_that_could_not_be_kept_did_not_happen() -> None:
    quorum = Quorum(1, VoterSet.of_ids((1, 2, 3)), Election(), EmptyLog(), QuorumTimes(), Random(1))
    quorum.step(Started(), 0)
    quorum.step(Tick(), 1_000)
    saved = quorum.save()
    stood = quorum.step(Received(2, VoteResponse(0, -1, granted=True, pre_vote=True)), 1_001)
    assert stood.persist == Election(1, -1, 1)
    quorum.restore(saved)
    assert (quorum.role, quorum.epoch, quorum.save()) == (Role.PROSPECTIVE, 0, saved)
    # The vote is forgotten as well: together with a refusal it decides nothing.
    assert quorum.step(Received(3, VoteResponse(0, -1, granted=False, pre_vote=True)), 1_002).persist is None
    assert quorum.step(Received(2, VoteResponse(0, -1, granted=True, pre_vote=True)), 1_003).persist == stood.persist
