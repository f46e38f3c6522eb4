"""What a replica does as a follower: append the leader's batches, and truncate where its log diverges.

A truncation is an iterator of steps, which `Partitions.carry_out` makes durable one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from penstock.core.replica.follower import FollowerState, beginning_of_batch, truncation_offset, whole_batches
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.tier_start import TierStart
from penstock.storage.files import StorageError
from penstock.storage.leader_epochs import EndOffset

logger = logging.getLogger("penstock.replication")


def batch_before_start(partition: Partition, data: memoryview) -> int | None:
    """Where the leader's first batch begins, if that is before this log, which is empty.

    The log may begin within a batch, as the leader's does after records were deleted. Then it must start again at the
    batch's beginning (`starting_again`) to have all of it; what is before its log start offset stays unreadable.
    """
    log = partition.log
    if log.start_offset != log.end_offset:
        return None
    fits_at = beginning_of_batch(data, log.end_offset)
    headers, _, _ = whole_batches(data, fits_at)
    return fits_at if headers and fits_at < log.start_offset else None


def replicate(partition: Partition, data: memoryview, now_ms: int, start_offset: int = 0) -> None:
    """Append the leader's batches; one that is cut short at the end is left for the next fetch.

    The log starts no earlier than at `start_offset` then. Raises CorruptBatch, and appends nothing, when a batch is
    damaged or does not continue the log.
    """
    assert not partition.is_leader
    log = partition.log
    headers, first, end = whole_batches(data, log.end_offset)
    if not headers:
        return
    try:
        log.append(headers, data[first:end], now_ms)
    except StorageError as error:
        if not error.is_passing:
            partition.on_failure(error)
        raise
    if log.advance_start_offset(start_offset):
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


def divergence(partition: Partition, leader_end: EndOffset) -> int:
    """Where to truncate what the leader does not have; `leader_end` is where the logs diverge."""
    log = partition.log
    local = log.epochs.end_offset_for(leader_end.epoch, log.end_offset)
    return truncation_offset(*leader_end, *local, log.end_offset)


def truncation(partition: Partition, offset: int, now_ms: int) -> Iterator[int]:
    """The steps that truncate the log here, following a leader that has less."""
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
    return log.truncation(offset, now_ms)


def starting_again(partition: Partition, offset: int, now_ms: int) -> Iterator[int]:
    """The steps that delete everything: the leader's log begins after our end."""
    for step in partition.log.restart(offset, now_ms):
        # A tiered log would keep its former start.
        partition.log.advance_start_offset(offset)
        _state(partition).high_watermark = offset
        yield step


def starting_from_tier(partition: Partition, start: TierStart, now_ms: int) -> Iterator[int]:
    """The steps that delete everything, to continue after what is in object storage."""
    logger.info("%s: starting at %d, as the rest is in object storage", partition.name, start.offset)
    for step in partition.log.restart_from_tier(start.offset, start.start_offset, start.history, now_ms):
        _state(partition).high_watermark = start.offset
        yield step


def _state(partition: Partition) -> FollowerState:
    state = partition.state
    assert isinstance(state, FollowerState)
    return state
