"""What a leader of the metadata quorum knows of its followers."""

from __future__ import annotations

from penstock.core.raft.progress import Progress
from penstock.core.raft.voters import Voter, VoterSet

DISK = {number: bytes([number]) * 16 for number in (1, 2, 3)}
NEW_DISK = b"n" * 16


def progress() -> Progress:
    """Node 1 leads 2 and 3."""
    voters = VoterSet(Voter(number, directory_id) for number, directory_id in DISK.items())
    return Progress(1, DISK[1], voters, 0, 0)


def test_only_a_voters_own_directory_counts_as_the_voter() -> None:
    found = progress()
    found.contacted(2, NEW_DISK, 1_000)
    found.contacted(9, DISK[2], 1_000)
    assert found.majority_contacted_at(1_000) == 0
    found.contacted(2, DISK[2], 1_000)
    assert found.majority_contacted_at(1_000) == 1_000


def test_a_voter_whose_disk_was_replaced_acknowledges_nothing() -> None:
    found = progress()
    found.synced(10, 10, 100)
    found.fetched(2, NEW_DISK, 10, 10, 100)
    assert found.majority_end() == -1
    assert [(one.replica_id, one.directory_id) for one in found.live_observers(100)] == [(2, NEW_DISK)]
    found.fetched(3, DISK[3], 7, 10, 100)
    assert (found.majority_end(), found.committed_end()) == (7, 7)
    assert found.successors() == (3, 2)
    assert found.silent_voters(100, 1_000) == [2]
