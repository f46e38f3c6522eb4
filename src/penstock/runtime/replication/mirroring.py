"""What the leader of a mirror partition does: append the source's batches as they are, and follow the source's start.

Offsets, timestamps, producers and checksums stay; only the leader epoch in a batch's header, which its checksum does
not cover, becomes the one of this cluster. Followers here replicate the result like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.link.mirror import SourceBatch
from penstock.core.replica.follower import whole_batches
from penstock.core.replica.producer_state import NO_OFFSET, EndMarker, ProducerEntry
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.following import batch_before_start
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import StorageError
from penstock.wire.records import BatchHeader, CorruptBatch, patch, read_header

PRODUCER_EPOCH_MAX = 2**15 - 1

logger = logging.getLogger("penstock.links")


class Mirrored(NamedTuple):
    """What was appended of an answer of the source. `last_epoch` is the source's leader epoch of the last batch."""

    records: int
    size_bytes: int
    last_epoch: int
    highest_producer_id: int


NOTHING = Mirrored(0, 0, -1, -1)


def append_mirrored(partition: Partition, data: memoryview, source_end: int, now_ms: int) -> Mirrored:
    """Append the source's batches, which continue the log; one that is cut short at the end is left out.

    `data` may be patched in place. Raises BatchError, and appends nothing, when a batch is damaged, does not continue
    the log, or is past the end that the source reported; NOT_LEADER_OR_FOLLOWER; and POLICY_VIOLATION when the first
    batch is of one producer more than the partition may have. Later ones of such producers are left out.
    """
    if partition.is_truncating:
        raise _not_led(partition)
    return _append(partition, data, source_end, now_ms, partition.log.start_offset)


def start_within_batch(partition: Partition, data: memoryview, source_end: int) -> int | None:
    """Where the source's first batch begins, if that is before this log, which has no batch; otherwise None.

    The source starts within that batch since records were deleted. Raises what `append_mirrored` does.
    """
    if partition.log.size_bytes:
        return None
    offset = batch_before_start(partition, data)
    if offset is None or offset < 0:
        return None
    if partition.leading is None or partition.is_truncating:
        raise _not_led(partition)
    _check_end(whole_batches(data, offset)[0], source_end)
    return offset


def restarting_before(partition: Partition, offset: int, now_ms: int) -> Iterator[int]:
    """The steps that have the empty log begin at `offset`, for `append_within` to be called with the same data.

    For the leader's state the log stays as it was, empty: there is nothing in it to commit.
    """
    epoch = partition.leader_epoch
    for step in partition.log.restart(offset, now_ms):
        # A tiered log would keep its former start.
        partition.log.advance_start_offset(offset)
        partition.log.assign_epoch(epoch, offset)
        yield step


def append_within(partition: Partition, data: memoryview, source_end: int, now_ms: int, start_offset: int) -> Mirrored:
    """Append batches of which the first begins before `start_offset`, where the log started and starts again."""
    if partition.leading is None:
        raise _not_led(partition)
    # Of what is before it no replica can lack anything.
    partition.leading.high_watermark = start_offset
    mirrored = _append(partition, data, source_end, now_ms, start_offset)
    restarted(partition)
    return mirrored


def _append(partition: Partition, data: memoryview, source_end: int, now_ms: int, start_offset: int) -> Mirrored:
    leading, log = partition.leading, partition.log
    if leading is None:
        raise _not_led(partition)
    found, first, end = whole_batches(data, log.end_offset)
    if not found:
        return NOTHING
    _check_end(found, source_end)
    admitted = _admitted(partition, found)
    end -= sum(header.size_bytes for header in found[len(admitted) :])
    found, data = admitted, data[first:end]
    if data.readonly:
        data = memoryview(bytearray(data))
    headers = []
    position = 0
    for header in found:
        patch(data, position, header.base_offset, leading.leader_epoch)
        headers.append(header._replace(partition_leader_epoch=leading.leader_epoch))
        position += header.size_bytes
    try:
        log.append(headers, data, now_ms)
    except StorageError as error:
        if not error.is_passing:
            partition.on_failure(error)
        raise
    log.advance_start_offset(start_offset)
    size = len(data)
    partition.appended_bytes += size
    if log.has_unsynced_segment or leading.is_sole_replica:
        partition.sync.request()
    if leading.appended(log.end_offset):
        partition.committed_more()
    for watcher in partition.watchers:
        watcher.grown(size)
    return Mirrored(
        sum(header.records_count for header in found),
        size,
        found[-1].partition_leader_epoch,
        max(header.producer_id for header in found),
    )


def _not_led(partition: Partition) -> ApiError:
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is not led here now")


def _check_end(found: list[BatchHeader], source_end: int) -> None:
    if found[-1].next_offset > source_end:
        raise CorruptBatch(f"a batch ends at {found[-1].next_offset}, and the source at {source_end}")


def _admitted(partition: Partition, found: list[BatchHeader]) -> list[BatchHeader]:
    """Of the batches those before the first of a producer for which there is no room.

    Forgetting another producer instead would have the partition store repeated batches once it is promoted.
    """
    producers, producer_ids_max = partition.log.producers, partition.producer_ids_max
    new: set[int] = set()
    for number, header in enumerate(found):
        if header.producer_id < 0 or header.producer_id in new or producers.get(header.producer_id) is not None:
            continue
        new.add(header.producer_id)
        if len(producers) + len(new) <= producer_ids_max:
            continue
        if number:
            return found[:number]
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{partition.name} has had {len(producers)} idempotent producers within producer.id.expiration.ms, as many "
            "as it may have (penstock.partition.producer.ids.max): raise that, or wait until some have expired",
        )
    return found


def last_batch(partition: Partition) -> SourceBatch | None:
    """The log's last batch; None if it has none, or none that can be read any more. Reads from disk."""
    log = partition.log
    if log.end_offset <= log.local_start_offset:
        return None
    found = log.read(log.end_offset - 1, 1, minimum_one_batch=True)
    return first_batch(memoryview(found.read())) if found.size else None


def first_batch(data: memoryview) -> SourceBatch | None:
    """The first batch in an answer."""
    if len(data) < 61:
        return None
    header = read_header(data)
    return SourceBatch(header.base_offset, header.next_offset - 1, header.crc, header.partition_leader_epoch)


def restarting_at(partition: Partition, offset: int, now_ms: int) -> Iterator[int]:
    """The steps that delete everything, as the source has: its log begins after the mirror's end.

    The log is still led here in the same epoch, which begins again at `offset` then.
    """
    logger.warning("%s: starting again at %d, where the source's log begins", partition.name, offset)
    epoch = partition.leader_epoch
    for step in partition.log.restart(offset, now_ms):
        partition.log.advance_start_offset(offset)
        partition.log.assign_epoch(epoch, offset)
        if partition.leading is not None:
            partition.leading.started_again(offset)
        yield step


def restarted(partition: Partition) -> None:
    """What a leader does once its log begins anew: followers learn of it with their next fetch."""
    partition.committed_more()
    partition.tell_watchers()


def follow_start(partition: Partition, source_start: int) -> None:
    """Delete what the source has deleted, as far as it is committed here."""
    wanted = min(source_start, partition.high_watermark)
    if partition.leading is not None and wanted > partition.log.start_offset:
        partition.log.advance_start_offset(wanted)
        partition.tell_watchers()


def mirrored_end(partition: Partition, stopped_epoch: int) -> int:
    """Where what was mirrored of a promoted partition ends: at the start of the epoch in which it became writable."""
    end = partition.end_of_epoch(stopped_epoch - 1).end_offset
    return partition.log.start_offset if end < 0 else end


def check_own_producer(partition: Partition, producer_id: int, kept_producer_id: int, stopped_epoch: int) -> None:
    """Raises UNKNOWN_PRODUCER_ID for a producer that this cluster and the source may both have named so.

    Ids below `kept_producer_id` were given out here before the link was made. What was mirrored under such an id is
    some other producer's: by its sequences a new batch would pass for a repeated one, and be lost.
    """
    if not 0 <= producer_id < kept_producer_id:
        return
    entry = partition.log.producers.get(producer_id)
    if entry is not None and entry.batches and entry.last_offset < mirrored_end(partition, stopped_epoch):
        raise ApiError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"producer id {producer_id} belongs to a producer of the mirrored cluster in {partition.name}: start the "
            "producer anew, which gives it another id",
        )


def open_transactions(partition: Partition, before: int) -> list[ProducerEntry]:
    """The producers whose transactions were open when a promoted mirror was cut off."""
    return [
        entry
        for entry in partition.log.producers.entries
        if entry.transaction_first_offset != NO_OFFSET and entry.transaction_first_offset < before
    ]


def abort_transaction(partition: Partition, entry: ProducerEntry, now_ms: int) -> None:
    """End a transaction of the source, as no coordinator here will. Its producer is fenced by the next epoch."""
    epoch = min(entry.producer_epoch + 1, PRODUCER_EPOCH_MAX)
    marker = EndMarker(
        aborted=True,
        coordinator_epoch=max(0, entry.coordinator_epoch),
        transaction_version=1,
        first_offset=entry.transaction_first_offset,
    )
    partition.append_marker(entry.producer_id, epoch, marker, now_ms)
