"""Who may have a vote, as the rules of Raft say it."""

from __future__ import annotations

from penstock.core.raft.events import Election
from penstock.core.raft.messages import NOBODY, VoteRequest
from penstock.core.raft.voters import VoterSet
from penstock.model.ids import ZERO_UUID


def may_vote(request: VoteRequest, election: Election) -> bool:
    """One vote an epoch, and none where a leader is known."""
    if request.epoch != election.epoch or election.leader_id != NOBODY:
        return False
    return election.voted_id == NOBODY or (
        election.voted_id == request.candidate_id and election.voted_directory_id in (ZERO_UUID, request.directory_id)
    )


def has_part_in(request: VoteRequest, voters: VoterSet, is_voter: bool) -> bool:
    """Whether candidate and voter are what they say, as far as the voter knows.

    Where the log carries the voters, one that is behind may not have heard of the newest set: whoever has a newer
    log knows better who may stand, and who may vote.
    """
    if any(voter.directory_id != ZERO_UUID for voter in voters.voters):
        return True
    return is_voter and request.candidate_id in voters
