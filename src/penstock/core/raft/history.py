"""Two logs with a common beginning: where they part, as the leader of one and the follower with the other see it."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.raft.events import LogView
from penstock.core.raft.messages import LogEnd


class Parting(NamedTuple):
    """What a leader answers to a follower whose log is no beginning of its own; one of the two is set."""

    # The end of the largest epoch of ours that is not after the follower's last one.
    diverging: LogEnd | None = None
    # What the follower has to begin again with: the log does not reach back that far.
    snapshot: LogEnd | None = None


def parting(log: LogView, theirs: LogEnd) -> Parting | None:
    """How a follower's log parts from its leader's; None when it is a beginning of it."""
    start = log.start()
    is_behind = theirs.offset < start.offset or theirs.epoch < start.epoch
    if is_behind or (theirs.offset == start.offset and theirs.epoch != start.epoch):
        return Parting(snapshot=log.snapshot())
    ours = log.end_of_epoch(theirs.epoch)
    if ours.epoch != theirs.epoch or ours.offset < theirs.offset:
        return Parting(diverging=ours)
    return None


def common_end(log: LogView, diverging: LogEnd) -> int:
    """Up to where a follower's log can be its leader's, which diverges there."""
    ours = log.end_of_epoch(diverging.epoch)
    return min(ours.offset, diverging.offset) if ours.epoch == diverging.epoch else ours.offset
