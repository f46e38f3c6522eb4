"""What a replica does as a follower: append the leader's batches, and truncate where its log diverges."""

from __future__ import annotations

import logging

from penstock.core.replica.follower import FollowerState, beginning_of_batch, truncation_offset, whole_batches
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.tier_start import TierStart
from penstock.storage.files import StorageError
from penstock.storage.leader_epochs import EndOffset

logger = logging.getLogger("penstock.replication")


def replicate(partition: Partition, data: memoryview, now_ms: int) -> None:
    """Append the leader's batches; one that is cut short at the end is left for the next fetch.

    An empty log may begin within a batch, as the leader's does after records were deleted. Then the log starts again
    with all of that batch; what is before its log start offset stays unreadable.

    Raises CorruptBatch, and appends nothing, when a batch is damaged or does not continue the log.
    """
    assert not partition.is_leader
    log = partition.log
    start_offset, fits_at = log.start_offset, log.end_offset
    if start_offset == fits_at:
        fits_at = beginning_of_batch(data, fits_at)
    headers, first, end = whole_batches(data, fits_at)
    if not headers:
        return
    if fits_at < start_offset:
        start_again_at(partition, fits_at, now_ms)
    try:
        log.append(headers, data[first:end], now_ms)
    except StorageError as error:
        if not error.is_disk_full:
            partition.on_failure(error)
        raise
    if fits_at < start_offset:
        log.advance_start_offset(start_offset)
        _state(partition).high_watermark = start_offset
    partition.appended_bytes += end - first
    if log.has_unsynced_segment:
        partition.sync.request()
    partition.counters.followed(end - first)


def take_watermarks(partition: Partition, high_watermark: int, log_start_offset: int) -> None:
    """Update high watermark and log start offset from the leader's response."""
    state = _state(partition)
    log = partition.log
    if state.update_high_watermark(high_watermark, log.end_offset):
        partition.committed_more()
    if log_start_offset > log.start_offset:
        log.advance_start_offset(min(log_start_offset, state.high_watermark))


def cut(partition: Partition, leader_end: EndOffset, now_ms: int) -> None:
    """Truncate what the leader does not have; `leader_end` says where the logs diverge."""
    log = partition.log
    local = log.epochs.end_offset_for(leader_end.epoch, log.end_offset)
    truncate_to(partition, truncation_offset(*leader_end, *local, log.end_offset), now_ms)


def truncate_to(partition: Partition, offset: int, now_ms: int) -> None:
    """Truncate the log here, following a leader that has less."""
    state, log = _state(partition), partition.log
    level = logging.INFO
    if offset < state.high_watermark:
        level = logging.ERROR
        logger.error("%s: the leader lacks committed records; it was elected uncleanly", partition.name)
    logger.log(
        level,
        "%s: truncating from %d to %d, following broker %d in epoch %d",
        partition.name,
        log.end_offset,
        offset,
        state.leader_id,
        state.leader_epoch,
    )
    log.truncate_to(offset, now_ms)
    state.high_watermark = min(state.high_watermark, log.end_offset)
    partition.forget_recalled()


def start_again_at(partition: Partition, offset: int, now_ms: int) -> None:
    """Delete everything: the leader's log begins after our end."""
    state = _state(partition)
    partition.log.truncate_fully_and_start_at(offset, now_ms)
    # A tiered log would go on to start where it did.
    partition.log.advance_start_offset(offset)
    state.high_watermark = offset
    partition.forget_recalled()


def start_from_tier(partition: Partition, start: TierStart, now_ms: int) -> None:
    """Delete everything, and continue after what is in object storage."""
    state = _state(partition)
    logger.info("%s: starting at %d, as the rest is in object storage", partition.name, start.offset)
    partition.log.start_from_tier(start.offset, start.start_offset, start.history, now_ms)
    state.high_watermark = start.offset
    partition.forget_recalled()


def _state(partition: Partition) -> FollowerState:
    state = partition.state
    assert isinstance(state, FollowerState)
    return state
