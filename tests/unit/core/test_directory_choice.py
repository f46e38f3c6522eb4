"""Which data directory gets a new replica."""

from __future__ import annotations

from dataclasses import replace

from penstock.core.placement.directories import Candidate, choose_directory

GB = 10**9


def spread(candidates: list[Candidate], count: int) -> list[int]:
    """How many of some new replicas each directory gets."""
    for _ in range(count):
        index = choose_directory(candidates)
        one = candidates[index]
        candidates[index] = replace(one, replicas=one.replicas + 1, new_replicas=one.new_replicas + 1)
    return [one.new_replicas for one in candidates]


def test_the_most_free_space_is_chosen_however_many_replicas_are_there() -> None:
    busy, quiet = Candidate(800 * GB, 1000 * GB, replicas=500), Candidate(100 * GB, 1000 * GB, replicas=3)
    assert choose_directory([quiet, busy]) == 1


def test_new_replicas_are_shared_out_by_space() -> None:
    assert spread([Candidate(600 * GB, 1000 * GB, 0), Candidate(300 * GB, 1000 * GB, 0)], 30) == [20, 10]


def test_equal_disks_get_as_many_and_a_few_bytes_make_no_difference() -> None:
    disks = [Candidate(500 * GB + 3, 1000 * GB, 0), Candidate(500 * GB, 1000 * GB, 0)]
    assert spread(disks, 10) == [5, 5]
    assert choose_directory([Candidate(500 * GB + 3, 1000 * GB, 9), Candidate(500 * GB, 1000 * GB, 2)]) == 1


def test_cordoned_and_full_directories_come_last() -> None:
    full = Candidate(900 * GB, 1000 * GB, 0, is_full=True)
    cordoned = Candidate(900 * GB, 1000 * GB, 0, is_cordoned=True)
    small = Candidate(10 * GB, 1000 * GB, 99)
    assert choose_directory([full, cordoned, small]) == 2
    assert choose_directory([cordoned, full]) == 1
    assert choose_directory([cordoned]) == 0


def test_disks_without_known_space_are_ranked_by_their_replicas() -> None:
    assert spread([Candidate(0, 0, 0), Candidate(0, 0, 0)], 4) == [2, 2]
