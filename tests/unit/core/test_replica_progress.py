"""How far voters have come, as their fetches show."""

from __future__ import annotations

from penstock.core.raft.progress import ReplicaProgress
from penstock.core.raft.voters import VoterHistory, VoterSet


def test_a_voter_has_caught_up_with_the_end_at_its_last_fetch() -> None:
    one = ReplicaProgress(2, b"d" * 16)
    assert (one.end_offset, one.fetched_at_ms, one.caught_up_at_ms) == (-1, -1, -1)
    one.fetched(5, 10, 100)
    assert one.caught_up_at_ms == -1
    one.fetched(9, 12, 200)
    assert one.caught_up_at_ms == -1
    one.fetched(12, 20, 300)
    assert one.caught_up_at_ms == 200
    one.fetched(20, 20, 400)
    assert (one.caught_up_at_ms, one.end_offset, one.fetched_at_ms, one.leader_end_offset) == (400, 20, 400, 20)


def test_the_history_of_voters_is_cut_with_the_log() -> None:
    fixed, first, second = (VoterSet.of_ids(ids) for ids in ([1], [1, 2], [1, 2, 3]))
    history = VoterHistory(fixed)
    assert (history.voters, history.offset, history.kraft_version) == (fixed, -1, 0)
    history.add_version(3, 1)
    history.add_voters(4, first)
    history.add_voters(9, second)
    assert (history.voters, history.offset, history.kraft_version) == (second, 9, 1)
    history.truncate_to(9)
    assert (history.voters, history.offset) == (first, 4)
    history.truncate_to(3)
    assert (history.voters, history.offset, history.kraft_version) == (fixed, -1, 0)
