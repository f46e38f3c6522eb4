"""Whether a vote may be granted, by the rules of Raft."""

from __future__ import annotations

from penstock.core.raft.events import Election
from penstock.core.raft.messages import NO_NODE, VoteRequest
from penstock.core.raft.voters import VoterSet
from penstock.model.ids import ZERO_UUID


def may_vote(request: VoteRequest, election: Election) -> bool:
    """One vote per epoch, and none while a leader is known."""
    if request.epoch != election.epoch or election.leader_id != NO_NODE:
        return False
    return election.voted_id == NO_NODE or (
        election.voted_id == request.candidate_id and election.voted_directory_id in (ZERO_UUID, request.directory_id)
    )


def are_voters(request: VoteRequest, voters: VoterSet, is_voter: bool) -> bool:
    """Whether both the candidate and this node are voters, as far as this node knows.

    Where the set of voters is in the log, a replica that is behind may not know the newest one: a candidate with a
    newer log knows better who the voters are.
    """
    if any(voter.directory_id != ZERO_UUID for voter in voters.voters):
        return True
    return is_voter and request.candidate_id in voters
