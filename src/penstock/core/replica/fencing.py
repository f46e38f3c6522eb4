"""Readers and leaders must agree on the leader epoch; if they don't, one of them has outdated metadata."""

from __future__ import annotations

from penstock.model.errors import ApiError, ErrorCode

# For a reader that does not send its epoch.
ANY_EPOCH = -1


def check_leader_epoch(asked: int, epoch: int) -> None:
    """Reject a reader that knows an older or newer leader epoch than ours."""
    if asked in (ANY_EPOCH, epoch):
        return
    if asked < epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {asked} is outdated, {epoch} is current")
    raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {asked} is not known to this broker yet")
