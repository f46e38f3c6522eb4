"""What a replica does for its followers as a leader: find where their logs diverge, track their progress and in-sync
state, and delete records.
"""

from __future__ import annotations

import asyncio

from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.partition import Partition
from penstock.storage.leader_epochs import UNDEFINED_EPOCH, EndOffset


def divergence(partition: Partition, offset: int, last_epoch: int) -> EndOffset | None:
    """Where a reader with everything before `offset`, the last of it from `last_epoch`, must truncate its log.

    None when its log does not diverge. Raises OFFSET_OUT_OF_RANGE when nothing is known of such an epoch.
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
    """A follower has everything before `offset`; returns whether to propose it as in sync."""
    leading = partition.leading
    assert leading is not None
    if leading.fetched(
        replica, offset, now_ms, broker_epoch=broker_epoch, start_offset=start_offset, is_eligible=is_eligible
    ):
        partition.committed_more()
    partition.check_deleted()
    return leading.may_join(replica)


def exclude(partition: Partition, replica: int) -> None:
    """The controller would not accept this follower now."""
    if partition.leading is not None and partition.leading.excluded(replica):
        partition.committed_more()


def isr_to_propose(partition: Partition, now_ms: int) -> frozenset[int] | None:
    """The in-sync replicas to propose; None when they are right."""
    leading = partition.leading
    if leading is None or not leading.has_followers:
        return None
    if leading.expire_joining(now_ms):
        partition.committed_more()
    return leading.proposal(now_ms)


def delete_records(partition: Partition, offset: int) -> int:
    """Move the log start offset up to `offset` (-1: the high watermark); returns it."""
    high_watermark = partition.high_watermark
    wanted = high_watermark if offset == -1 else offset
    if wanted < 0 or wanted > high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"records can be deleted up to the high watermark {high_watermark}, not up to {offset}",
        )
    partition.log.advance_start_offset(wanted)
    # Followers learn of it with their next response.
    partition.tell_watchers()
    return partition.log.start_offset


def deleted(partition: Partition, offset: int) -> asyncio.Future[None]:
    """Completes when every in-sync replica has deleted what is before `offset`."""
    waiting = partition.start_waiters.wait(offset, sync=False)
    partition.check_deleted()
    return waiting
