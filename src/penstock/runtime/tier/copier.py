"""Copies one segment to object storage, and removes segments from there.

The order is Kafka's: a copy is announced in the metadata, then its objects are written, the manifest last, and then it
is announced as finished. Whatever ends this half-way leaves a segment that no broker reads and that the leader removes:
this one at once, if it can, or the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from crc32c import crc32c

from penstock.config.node import NodeSettings
from penstock.core.replica.throttle import Throttle
from penstock.core.tier.metadata_records import TierKey, begun, changed
from penstock.core.tier.segments import EpochStart, RemoteSegment, SegmentState
from penstock.model.errors import ApiError
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.replication.absence import note_read_failure
from penstock.runtime.replication.partition import Partition
from penstock.runtime.tier.counters import TierCounters
from penstock.runtime.tier.metadata import RemoteLogMetadata
from penstock.storage.files import CorruptLogError
from penstock.storage.segment_copy import TierCopy
from penstock.storage.tier.layout import LOG, Manifest, PartitionLocation, Seal, SealedObject, StoredObject
from penstock.storage.tier.object_store import ObjectStore, StoreError
from penstock.storage.tier.sealing import Seals, seal_bytes, seal_file

logger = logging.getLogger("penstock.tier")


class Copier:
    """Writes to and deletes from the store, and keeps the metadata in step."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        store: ObjectStore,
        metadata: RemoteLogMetadata,
        settings: Callable[[], NodeSettings],
        counters: TierCounters,
        seals: Seals,
        outgoing: Path,
    ) -> None:
        """Segments that are compressed or encrypted lie in `outgoing` until they are sent."""
        self._seals = seals
        self._outgoing = outgoing
        self._env = env
        self._node_id = node_id
        self._store = store
        self._metadata = metadata
        self._counters = counters
        self._quota = Throttle(lambda: settings().remote_log_manager_copy_max_bytes_per_second)
        # Copies that are being made, so that they are not taken for abandoned ones.
        self.under_way: set[Uuid] = set()

    async def copy(self, partition: Partition, place: PartitionLocation, base_offset: int) -> None:
        """Copy a rolled segment; raises ApiError or TimeoutError if that fails."""
        epoch = partition.leader_epoch
        source = partition.log.tier_copy(base_offset)
        if source is None:
            return
        await asyncio.sleep(self._quota.wait_s(self._env.monotonic_ms()))
        self._quota.spent(source.size_bytes)
        try:
            crc = await self._env.run_blocking(source.checked_crc)
        except CorruptLogError as error:
            note_read_failure(partition, error)
            raise
        source = source._replace(snapshot=await self._env.run_blocking(source.sound_snapshot))
        key = TierKey(place.topic_id, place.partition)
        segment = RemoteSegment(
            self._env.random.randbytes(16),
            source.base_offset,
            source.end_offset - 1,
            source.size_bytes,
            source.max_timestamp_ms,
            tuple(EpochStart(*entry) for entry in source.epochs),
            broker_id=self._node_id,
            event_timestamp_ms=self._env.now_ms(),
            has_aborted_transactions=bool(source.transaction_index),
            is_sealed=not self._seals.is_plain,
        )
        self.under_way.add(segment.segment_id)
        try:
            await self._metadata.write(key, begun(place.topic, key, segment))
            await self._send(place, segment, source, crc)
            if not self.is_led(partition, epoch):
                raise StoreError(f"{partition.name} is no longer led here; the copy of {base_offset} is given up")
            await self._note(place, segment.segment_id, SegmentState.COPY_SEGMENT_FINISHED)
            if self._state(place, segment.segment_id) is not SegmentState.COPY_SEGMENT_FINISHED:
                raise StoreError(f"another leader of {partition.name} gave up the copy of {base_offset}")
        except (ApiError, TimeoutError, OSError) as error:
            self._counters.copy_errors += 1
            await self._give_up(place, segment)
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise StoreError(f"the segment {base_offset} of {partition.name} cannot be read: {error}") from error
            raise
        finally:
            self.under_way.discard(segment.segment_id)
        self._counters.copies += 1
        self._counters.copied_bytes += source.size_bytes
        logger.info("%s: offsets %d to %d are in object storage", partition.name, base_offset, segment.end_offset)

    @staticmethod
    def is_led(partition: Partition, epoch: int) -> bool:
        """Whether this broker, as far as it knows, still is the leader that began a copy."""
        return partition.leading is not None and partition.leader_epoch == epoch and not partition.log.is_failed

    async def _send(self, place: PartitionLocation, segment: RemoteSegment, source: TierCopy, crc: int) -> None:
        start, segment_id = segment.start_offset, segment.segment_id
        seal: Seal | None = None
        if self._seals.is_plain:
            await self._store.put(place.object(start, segment_id, LOG), source.log_path)
            objects = {LOG: StoredObject(source.size_bytes, crc)}
            companions = source.companions()
        else:
            objects, seal, companions = await self._send_sealed(place, segment, source)
        for kind, content in companions.items():
            await self._store.put(place.object(start, segment_id, kind), content)
            objects[kind] = StoredObject(len(content), crc32c(content))
        manifest = Manifest(
            place,
            segment_id,
            start,
            segment.end_offset,
            segment.max_timestamp_ms,
            segment.epochs,
            self._node_id,
            self._env.now_ms(),
            objects,
            seal,
        )
        await self._store.put(place.manifest(start, segment_id), manifest.to_bytes())

    async def _send_sealed(
        self, place: PartitionLocation, segment: RemoteSegment, source: TierCopy
    ) -> tuple[dict[str, StoredObject], Seal, Mapping[str, bytes]]:
        """Send the log compressed or encrypted; returns its entry in the manifest, and its companions alike."""
        sealer, seal = self._seals.begin(segment.segment_id)
        path = self._outgoing / segment.segment_id.hex()
        filesystem = self._env.filesystem

        def work() -> tuple[StoredObject, SealedObject]:
            filesystem.make_directory(self._outgoing)
            return seal_file(sealer, source.log, source.size_bytes, filesystem.open(path, create=True))

        try:
            stored, described = await self._env.run_blocking(work)
            await self._store.put(place.object(segment.start_offset, segment.segment_id, LOG), path)
        finally:
            filesystem.unlink(path)
        small = {kind: seal_bytes(sealer, kind, content) for kind, content in source.companions().items()}
        sealed = {LOG: described, **{kind: one.described for kind, one in small.items()}}
        return {LOG: stored}, seal._replace(objects=sealed), {kind: one.data for kind, one in small.items()}

    async def remove(self, place: PartitionLocation, segment: RemoteSegment) -> None:
        """Delete a segment's objects; raises ApiError or TimeoutError if that fails, and it can be tried again.

        A copy that turns out to be finished after all stays.
        """
        is_unfinished = segment.state is SegmentState.COPY_SEGMENT_STARTED
        try:
            if segment.state is not SegmentState.DELETE_SEGMENT_STARTED:
                state = SegmentState.DELETE_SEGMENT_STARTED
                await self._note(place, segment.segment_id, state, only_unfinished=is_unfinished)
            after = self._state(place, segment.segment_id)
            if after is None:
                # The next leader has removed it, perhaps before the last objects of a slow copy were written.
                await self._store.delete(place.paths(segment.start_offset, segment.segment_id))
            if after is not SegmentState.DELETE_SEGMENT_STARTED:
                return
            await self._store.delete(place.paths(segment.start_offset, segment.segment_id))
            await self._note(place, segment.segment_id, SegmentState.DELETE_SEGMENT_FINISHED)
        except (ApiError, TimeoutError):
            self._counters.delete_errors += 1
            raise
        self._counters.deletes += 1

    async def _give_up(self, place: PartitionLocation, segment: RemoteSegment) -> None:
        """Remove what there is of a copy that failed; if the store is away, a later look does.

        The metadata comes first: it may have been told that the copy is finished, and only the answer was lost.
        """
        try:
            await self.remove(place, segment)
        except (ApiError, TimeoutError) as error:
            logger.info("%s is left for later: %s", place.stem(segment.start_offset, segment.segment_id), error)

    def _state(self, place: PartitionLocation, segment_id: Uuid) -> SegmentState | None:
        known = self._metadata.get(TierKey(place.topic_id, place.partition))
        segment = known.get(segment_id) if known is not None else None
        return segment.state if segment is not None else None

    async def _note(
        self, place: PartitionLocation, segment_id: Uuid, state: SegmentState, *, only_unfinished: bool = False
    ) -> None:
        key, now_ms = TierKey(place.topic_id, place.partition), self._env.now_ms()
        record = changed(place.topic, key, segment_id, state, self._node_id, now_ms, only_unfinished=only_unfinished)
        await self._metadata.write(key, record)
