"""What a replica does for its followers while it leads: say where their history parts from its own, note how far they
are and who of them is in sync, and delete records with them.
"""

from __future__ import annotations

import asyncio

from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.partition import Partition
from penstock.storage.leader_epochs import UNDEFINED_EPOCH, EndOffset


def divergence(partition: Partition, offset: int, last_epoch: int) -> EndOffset | None:
    """Where a reader that has everything before `offset`, the last of it from `last_epoch`, must cut its log.

    None when its history is ours. Raises OFFSET_OUT_OF_RANGE when nothing is known of such a history.
    """
    if last_epoch < 0:
        return None
    end = partition.end_of_epoch(last_epoch)
    if end.epoch == UNDEFINED_EPOCH:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.name} knows nothing of epoch {last_epoch}")
    return end if end.epoch < last_epoch or end.end_offset < offset else None


def note_fetch(
    partition: Partition,
    replica: int,
    offset: int,
    start_offset: int,
    broker_epoch: int,
    *,
    is_eligible: bool,
    now_ms: int,
) -> bool:
    """A follower has everything before `offset`; returns whether it is worth proposing as in sync."""
    leading = partition.leading
    assert leading is not None
    if leading.fetched(
        replica, offset, now_ms, broker_epoch=broker_epoch, start_offset=start_offset, is_eligible=is_eligible
    ):
        partition.committed_more()
    partition.check_deleted()
    return leading.may_join(replica)


def exclude(partition: Partition, replica: int) -> None:
    """The controller would not let this follower join now."""
    if partition.leading is not None and partition.leading.excluded(replica):
        partition.committed_more()


def keep_pace(partition: Partition, now_ms: int) -> frozenset[int] | None:
    """Who should be in sync instead of those who are; None when that is right."""
    leading = partition.leading
    if leading is None or not leading.has_followers:
        return None
    if leading.expire_joining(now_ms):
        partition.committed_more()
    return leading.proposal(now_ms)


def delete_records(partition: Partition, offset: int) -> int:
    """Move the log's start up to `offset` (-1: the high watermark); returns the start."""
    high_watermark = partition.high_watermark
    wanted = high_watermark if offset == -1 else offset
    if wanted < 0 or wanted > high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"records can be deleted up to the high watermark {high_watermark}, not up to {offset}",
        )
    partition.log.advance_start_offset(wanted)
    # Followers hear of it with their next answer.
    partition.tell_watchers()
    return partition.log.start_offset


def deleted(partition: Partition, offset: int) -> asyncio.Future[None]:
    """Done when every in-sync replica has dropped what lies before `offset`."""
    waiting = partition.start_waiters.wait(offset, sync=False)
    partition.check_deleted()
    return waiting
