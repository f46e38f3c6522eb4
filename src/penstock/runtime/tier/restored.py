"""Starts the partitions of restored topics: their records are in object storage, and no disk has anything of them.

A restored partition has no leader until the broker that the metadata names has told `__remote_log_metadata` of the
segments that lie in the bucket, and begins where the last of them ends. Whatever interrupts this is repeated, here or
by the next leader: what was already told of is not told again.
"""

from __future__ import annotations

import logging

from penstock.core.metadata.image import PartitionState
from penstock.core.replica.producer_state import NO_OFFSET, EndMarker
from penstock.core.tier.metadata_records import TierKey, begun, changed
from penstock.core.tier.segments import EpochStart, RemotePartition, RemoteSegment, SegmentState
from penstock.runtime.env import Env
from penstock.runtime.replication.following import starting_from_tier
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.replication.tier_start import TierStart
from penstock.runtime.tier.metadata import RemoteLogMetadata
from penstock.storage.segment_copy import TierHistory
from penstock.storage.tier.layout import PartitionLocation
from penstock.storage.tier.object_store import ObjectStore, StoreError
from penstock.storage.tier.recovery import find_end, list_partition, recoverable
from penstock.storage.tier.sealing import Seals

# Producers of the lost cluster had no other end of their transactions.
PLAIN_MARKER = 0

logger = logging.getLogger("penstock.tier")


class RestoredPartitions:
    """Those of this broker."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        partitions: Partitions,
        store: ObjectStore,
        metadata: RemoteLogMetadata,
        seals: Seals,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._partitions = partitions
        self._store = store
        self._metadata = metadata
        self._seals = seals

    def is_waiting(self, partition: Partition) -> bool:
        """Whether a partition would be led here if it had started."""
        known = self._known(partition)
        return (
            known is not None
            and known.leader == self._node_id
            and not partition.is_leader
            and partition.log.end_offset < known.restored_offset
        )

    async def start(self, partition: Partition, place: PartitionLocation) -> None:
        """Have a partition begin where the tier ends, and lead it; raises ApiError or TimeoutError."""
        known = self._known(partition)
        if known is None or not self.is_waiting(partition):
            return
        remote = await self._tell(place)
        readable = [segment for segment in remote.segments() if segment.is_readable]
        end = await find_end(self._store, place, readable, self._seals)
        start = TierStart(known.restored_offset, known.restored_offset, TierHistory((), ()))
        if end.offset >= known.restored_offset:
            lineage = [EpochStart(*entry) for entry in end.history.epochs]
            earliest = min(segment.first_offset for segment in remote.along(lineage))
            kept = [entry for entry in end.history.producers if entry.producer_id >= known.kept_producer_id]
            start = TierStart(end.offset, earliest, TierHistory(end.history.epochs, kept))
        elif not remote.has_deleted:
            raise StoreError(
                f"{place.directory} has no segment that ends at {known.restored_offset}, as one did before"
            )
        if self.is_waiting(partition):
            await self._partitions.carry_out(partition, starting_from_tier(partition, start, self._env.now_ms()))
            self._partitions.lead(partition)
            self.end_transactions(partition)

    async def _tell(self, place: PartitionLocation) -> RemotePartition:
        """Have the metadata know of every whole segment that the bucket has of a partition."""
        key = TierKey(place.topic_id, place.partition)
        found = await recoverable(self._store, await list_partition(self._store, place))
        for problem in found.problems:
            logger.warning("%s %s", problem.path, problem.what)
        known = await self._metadata.up_to_date(key)
        for segment in found.segments:
            if known.get(segment.segment_id) is None:
                await self._metadata.write(key, begun(place.topic, key, segment))
            await self._finish(place, key, segment)
        return await self._metadata.up_to_date(key)

    async def _finish(self, place: PartitionLocation, key: TierKey, segment: RemoteSegment) -> None:
        known = self._metadata.get(key)
        current = known.get(segment.segment_id) if known is not None else None
        if current is not None and current.state is SegmentState.COPY_SEGMENT_STARTED:
            state, now_ms = SegmentState.COPY_SEGMENT_FINISHED, self._env.now_ms()
            await self._metadata.write(key, changed(place.topic, key, segment.segment_id, state, self._node_id, now_ms))

    def end_transactions(self, partition: Partition) -> None:
        """Abort what was open where the tier ends: its producers' coordinator is lost. Raises ApiError."""
        known = self._known(partition)
        if known is None or not partition.is_leader:
            return
        for entry in list(partition.log.producers.entries):
            if NO_OFFSET < entry.transaction_first_offset < known.restored_offset:
                marker = EndMarker(True, entry.coordinator_epoch, PLAIN_MARKER)
                partition.append_marker(entry.producer_id, entry.producer_epoch, marker, self._env.now_ms())

    def _known(self, partition: Partition) -> PartitionState | None:
        return self._partitions.state_of("", partition.topic_id, partition.name.partition, by_id=True)
