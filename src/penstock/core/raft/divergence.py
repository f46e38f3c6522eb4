"""Where a follower's log diverges from its leader's, on either side."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.raft.events import LogView
from penstock.core.raft.messages import LogEnd


class Divergence(NamedTuple):
    """A leader's answer to a follower whose log is not a prefix of its own; one of the two is set."""

    # The end of our largest epoch that is not after the follower's last one.
    diverging: LogEnd | None = None
    # The snapshot to start again from, because the log does not reach back far enough.
    snapshot: LogEnd | None = None


def find_divergence(log: LogView, theirs: LogEnd) -> Divergence | None:
    """How a follower's log diverges from its leader's; None when it is a prefix of it."""
    start = log.start()
    is_behind = theirs.offset < start.offset or theirs.epoch < start.epoch
    if is_behind or (theirs.offset == start.offset and theirs.epoch != start.epoch):
        return Divergence(snapshot=log.snapshot())
    ours = log.end_of_epoch(theirs.epoch)
    assert ours.epoch <= theirs.epoch, "an epoch after the follower's shows nothing"
    assert start.offset <= ours.offset
    if ours.epoch != theirs.epoch or ours.offset < theirs.offset:
        return Divergence(diverging=ours)
    return None


def common_end(log: LogView, diverging: LogEnd) -> int:
    """Up to where a follower's log can be a prefix of its leader's, given where the leader finds that they diverge."""
    ours = log.end_of_epoch(diverging.epoch)
    assert ours.offset <= log.end().offset
    return min(ours.offset, diverging.offset) if ours.epoch == diverging.epoch else ours.offset
