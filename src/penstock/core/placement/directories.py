"""Which data directory of a broker gets a new replica: the one with the most free space for it.

New replicas are empty, so a directory's free space does not reflect yet those that it got a moment ago. It is shared
out among them: of two disks the one with twice the space gets twice as many. Disks that are about equally free are told
apart by how many replicas they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Space below this part of the largest disk makes no difference.
SPACE_STEPS = 100


@dataclass(frozen=True, slots=True)
class Candidate:
    """One directory that works: its disk, its replicas, and how many of them are so new that they are still empty."""

    free_bytes: int
    total_bytes: int
    replicas: int
    new_replicas: int = 0
    is_cordoned: bool = False
    is_full: bool = False


def choose_directory(candidates: Sequence[Candidate]) -> int:
    """The index of the directory for one more replica. Cordoned or full ones are chosen only if there is no other."""
    assert candidates
    step = max(1, max(candidate.total_bytes for candidate in candidates) // SPACE_STEPS)

    def rank(index: int) -> tuple[bool, bool, float, int, int]:
        one = candidates[index]
        room = (one.free_bytes // step) / (1 + one.new_replicas)
        return one.is_cordoned, one.is_full, -room, one.replicas, index

    assert step > 0
    return min(range(len(candidates)), key=rank)
