"""Readers and leaders must agree on the leader's epoch: one that does not has old news of the other, or newer."""

from __future__ import annotations

from penstock.model.errors import ApiError, ErrorCode

# Of a reader that does not say which epoch it knows.
ANY_EPOCH = -1


def check_leader_epoch(asked: int, epoch: int) -> None:
    """Refuse a reader whose idea of the leader is older or newer than ours."""
    if asked in (ANY_EPOCH, epoch):
        return
    if asked < epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {asked} is over, it is {epoch}")
    raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {asked} has not reached this broker")
