"""What a leader of the metadata quorum knows of its followers."""

from __future__ import annotations

import pytest

from penstock.core.raft.progress import OBSERVER_MS_MAX, Progress
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


def test_observers_that_are_silent_are_forgotten_when_another_comes() -> None:
    found = progress()
    found.fetched(8, NEW_DISK, 1, 10, 0)
    found.fetched(9, NEW_DISK, 1, 10, OBSERVER_MS_MAX)
    assert [replica for replica, _ in found.observers] == [8, 9]
    found.fetched(10, NEW_DISK, 1, 10, OBSERVER_MS_MAX + 1)
    assert [replica for replica, _ in found.observers] == [9, 10]
    assert [one.replica_id for one in found.live_observers(2 * OBSERVER_MS_MAX + 1)] == [10]


def test_observers_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.raft.progress.OBSERVERS_MAX", 5)
    found = progress()
    for replica in range(100, 120):
        found.fetched(replica, NEW_DISK, 1, 10, 100)
    assert len(found.observers) <= 5
    assert (119, NEW_DISK) in found.observers
