"""Moving a replica to another data directory of its broker: what comes next, and what a start finds.

A second log in the other directory, the future replica, is filled from the current one. When little is missing, the
controller is sent the new directory, and only then the future replica takes the current one's place: in one turn,
in which nothing else is appended, it gets the rest and the current one's name.

    COPY ──little is missing──▶ ASSIGN ──the controller knows──▶ SWAP ──the new log is durable──▶ the old one is removed
      ▲                            │
      └────much was appended───────┘

Until the new log is durable the old one stays, so a start may find two logs of one replica. Both came from one log, and
the later of them has everything that the other has: the one whose last leader epoch is higher, or of the same epoch the
longer one. A future replica counts only if there is no other log and the controller was told of its directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from penstock.model.ids import Uuid

# With less than this missing, the logs may change places.
REST_BYTES_MAX = 256 * 1024


class MoveStep(Enum):
    """What a move does next."""

    COPY = "copy"
    ASSIGN = "assign"
    SWAP = "swap"


def next_step(rest_bytes: int, is_assigned: bool) -> MoveStep:
    """The next step of a move whose future replica lacks this many bytes."""
    if rest_bytes > REST_BYTES_MAX:
        return MoveStep.COPY
    return MoveStep.SWAP if is_assigned else MoveStep.ASSIGN


class FoundLog(NamedTuple):
    """A log of a replica that a start finds in one of the data directories."""

    directory_id: Uuid
    is_future: bool = False
    latest_epoch: int = -1
    end_offset: int = 0


class Settled(NamedTuple):
    """Which log is the replica, which one continues to be filled, and which are removed."""

    current: FoundLog | None
    future: FoundLog | None
    superseded: tuple[FoundLog, ...]


def settle(found: Sequence[FoundLog], assigned: Uuid) -> Settled:
    """Decide between the logs of one replica; `assigned` is the directory that the controller has recorded."""

    def rank(log: FoundLog) -> tuple[int, int, bool]:
        return log.latest_epoch, log.end_offset, log.directory_id == assigned

    complete = [log for log in found if not log.is_future]
    current = max(complete, key=rank, default=None)
    futures = sorted((log for log in found if log.is_future), key=lambda log: log.directory_id != assigned)
    if current is None and futures and futures[0].directory_id == assigned:
        current = futures.pop(0)
    kept = next((log for log in futures if current is not None and log.directory_id != current.directory_id), None)
    gone = tuple(log for log in found if log is not current and log is not kept)
    assert len(gone) + (current is not None) + (kept is not None) == len(found), "each log has one fate"
    assert current is not None or kept is None, "a log is only filled from a current one"
    assert kept is None or kept.is_future
    assert current is None or kept is None or current.directory_id != kept.directory_id
    assert current is None or not current.is_future or not complete, "a complete log counts for more than a future one"
    return Settled(current, kept, gone)
