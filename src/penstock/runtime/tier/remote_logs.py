"""Tiered storage of this broker: looks after the partitions it leads, and serves what is only in object storage.

At an interval every led partition that is tiered gets a turn: what is rolled and decided is copied, what retention no
longer keeps is removed. Nothing here is waited for by produces or by reads of what is on disk. What a deleted topic, or
one that is no longer tiered, has left in the store is removed by the broker that leads its partition of
`__remote_log_metadata`, so that it is removed even if its last leader is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from penstock.config.node import NodeSettings
from penstock.core.backoff import pause_after
from penstock.core.metadata.image import Image, ResourceType
from penstock.core.tier.metadata_records import TierKey, partition_deletion
from penstock.core.tier.plans import plan_expiry, segments_to_copy
from penstock.core.tier.segments import NOTHING_COPIED, EpochStart, PartitionDeleteState, RemotePartition
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.tier.copier import Copier
from penstock.runtime.tier.counters import TierCounters
from penstock.runtime.tier.metadata import RemoteLogMetadata
from penstock.runtime.tier.reader import TierReader
from penstock.runtime.tier.restored import RestoredPartitions
from penstock.storage.indexes import DamagedIndexError
from penstock.storage.producers.transaction_index import AbortedTransaction
from penstock.storage.segment_copy import TierHistory
from penstock.storage.tier.layout import PartitionLocation, TopicDocument
from penstock.storage.tier.object_store import ObjectStore, StoreError
from penstock.storage.tier.sealing import Seals
from penstock.storage.timestamps import TimestampOffset
from penstock.wire.messages.metadata_records import RemoveTopicRecord
from penstock.wire.record_types import Buffer

T = TypeVar("T")

# A topic that the metadata does not know for this long was deleted, not just created elsewhere.
ABSENT_MS = 30_000
COPIES_PER_TURN = 16

logger = logging.getLogger("penstock.tier")


class TierRead(NamedTuple):
    """What was read for a consumer: whole batches, and the aborted transactions among them."""

    data: Buffer
    aborted: Sequence[AbortedTransaction]


class RemoteLogs:
    """The tier of this broker's partitions."""

    def __init__(
        self,
        env: Env,
        cluster_id: str,
        node_id: int,
        image: Image,
        partitions: Partitions,
        metadata: RemoteLogMetadata,
        store: ObjectStore,
        reader: TierReader,
        settings: Callable[[], NodeSettings],
        counters: TierCounters,
        seals: Seals,
        outgoing: Path,
    ) -> None:
        """`seals` compresses and encrypts copies, which then lie in `outgoing` until they are sent."""
        self._env = env
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._metadata = metadata
        self._store = store
        self._reader = reader
        self._settings = settings
        self.counters = counters
        self._copier = Copier(env, node_id, store, metadata, settings, counters, seals, outgoing)
        self._restored = RestoredPartitions(env, node_id, partitions, store, metadata, seals)
        self._copies = _Places(lambda: settings().remote_log_manager_copier_thread_pool_size)
        self._removals = _Places(lambda: settings().remote_log_manager_expiration_thread_pool_size)
        self._busy: set[TierKey] = set()
        # By partition: failures in a row, and when the next try is due.
        self._resting: dict[TierKey, tuple[int, int]] = {}
        # The leader epoch in which everything that was written before is known.
        self._settled: dict[TierKey, int] = {}
        self._lag: dict[TierKey, tuple[int, int]] = {}
        self._topics_written: dict[Uuid, bytes] = {}
        self._absent_since: dict[Uuid, int] = {}
        self._removed: set[Uuid] = set()
        self._pending = 0

    def start(self) -> None:
        """Begin to look after partitions, once this broker answers requests."""
        self._metadata.start()
        self._partitions.on_follower(self._start_restored)
        for partition in list(self._partitions):
            self._start_restored(partition)
        keep_running(self._env, self._repeat, "tiered storage")

    def follow(self, records: Sequence[object]) -> None:
        """Note topics that were deleted."""
        self._removed.update(record.topic_id for record in records if isinstance(record, RemoveTopicRecord))

    def copied_offset(self, partition: Partition) -> int:
        """The last offset up to which the tier has this replica's log; -1 when it has nothing, or that is unknown."""
        remote = self._metadata.get(_key(partition))
        return NOTHING_COPIED if remote is None else remote.highest_offset(lineage_of(partition))

    def only_there_bytes(self, partition: Partition) -> int:
        """How much of a log is in the tier and no longer on disk, as far as it is known."""
        remote = self._metadata.get(_key(partition))
        return 0 if remote is None else remote.size_before(partition.log.local_start_offset)

    def is_loaded(self, partition: Partition) -> bool:
        """Whether it is known what the tier has of a partition."""
        return self._metadata.is_loaded(_key(partition))

    def segments(self) -> list[tuple[TierKey, RemotePartition]]:
        """What is known of all partitions, for the metrics."""
        return self._metadata.all()

    async def read(self, partition: Partition, offset: int, size_max: int, *, committed_only: bool) -> TierRead | None:
        """Batches from `offset` on; None if that takes too long, and then what arrives late is cached."""

        async def read() -> TierRead:
            place, remote = self._place(partition), self._known(partition)
            lineage = remote.extended(lineage_of(partition), partition.log.start_offset)
            found = await self._reader.read(place, remote, lineage, offset, size_max)
            aborted: list[AbortedTransaction] = []
            if committed_only:
                aborted, complete = await self._reader.aborted(place, remote, lineage, offset, found.end_offset)
                if not complete:
                    here = partition.log.aborted.overlapping(offset, found.end_offset)
                    aborted += [one for one in here if one not in aborted]
            return TierRead(found.data, aborted)

        self.counters.fetches += 1
        done = await self._within(read(), self._settings().remote_fetch_max_wait_ms)
        if done is not None:
            self.counters.fetched_bytes += len(done.data)
        return done

    async def find_time(self, partition: Partition, timestamp: int) -> TimestampOffset | None:
        """The first record in the tier that is not older than `timestamp`; raises ApiError, also if it takes long."""
        start_offset = partition.log.start_offset

        async def find() -> TimestampOffset | None:
            place, remote = self._place(partition), self._known(partition)
            lineage = remote.extended(lineage_of(partition), start_offset)
            return await self._reader.find_time(place, remote, lineage, timestamp, start_offset)

        try:
            async with asyncio.timeout(self._settings().remote_list_offsets_request_timeout_ms / 1000):
                return await _as_store_errors(find())
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "object storage takes too long to answer") from None

    async def history(self, partition: Partition, epoch: int, offset: int) -> tuple[int, TierHistory]:
        """Where the copied segment with an epoch's `offset` ends, and the epochs and producers there.

        Raises ApiError or TimeoutError.
        """
        remote = await self._metadata.up_to_date(_key(partition))
        segment = remote.find_in_epoch(epoch, offset)
        if segment is None:
            raise StoreError(f"{partition.name}: object storage does not have {offset} of epoch {epoch}")
        return segment.end_offset + 1, await _as_store_errors(self._reader.history(self._place(partition), segment))

    def _known(self, partition: Partition) -> RemotePartition:
        remote = self._metadata.get(_key(partition))
        if remote is None:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition.name}: its metadata is still being loaded")
        return remote

    async def _within(self, work: Coroutine[object, object, T], wait_ms: int) -> T | None:
        """The result; None if it takes longer, or if too many others wait already."""
        if self._pending >= self._settings().remote_log_reader_max_pending_tasks:
            self.counters.rejected_fetches += 1
            work.close()
            return None
        self._pending += 1
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await _as_store_errors(work)
        except TimeoutError:
            self.counters.fetch_timeouts += 1
            return None
        except ApiError as error:
            self.counters.fetch_errors += 1
            logger.warning("a read of object storage failed: %s", error.message)
            raise
        finally:
            self._pending -= 1

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._settings().remote_log_manager_task_interval_ms / 1000)
            led = set()
            for partition in list(self._partitions):
                if not partition.settings.remote_storage_enable:
                    continue
                key = _key(partition)
                # Followers need to know what was copied, to trim their disks.
                self._metadata.is_loaded(key)
                if partition.is_leader:
                    led.add(key)
                    self._begin(key, f"tier {partition.name}", partial(self._tend, partition))
                self._start_restored(partition)
            self._lag = {key: lag for key, lag in self._lag.items() if key in led}
            self.counters.lag_segments = sum(lag[0] for lag in self._lag.values())
            self.counters.lag_bytes = sum(lag[1] for lag in self._lag.values())
            for key, remote in self._metadata.led_here():
                if self._is_gone(key):
                    self._begin(key, f"clear tier {remote.topic}", partial(self._clear, key, remote))

    def _start_restored(self, partition: Partition) -> None:
        if self._restored.is_waiting(partition):
            start = partial(self._restored.start, partition, self._place(partition))
            self._begin(_key(partition), f"restore {partition.name}", start)

    def _begin(self, key: TierKey, name: str, work: Callable[[], Coroutine[Any, object, None]]) -> None:
        """Start work on a partition, unless some is under way or it failed a moment ago."""
        failures, due_ms = self._resting.get(key, (0, 0))
        if key in self._busy or self._env.monotonic_ms() < due_ms:
            return
        self._busy.add(key)

        async def run() -> None:
            try:
                await work()
                self._resting.pop(key, None)
            except (ApiError, TimeoutError) as error:
                settings = self._settings()
                backoff_ms = pause_after(
                    failures + 1,
                    settings.remote_log_manager_task_retry_backoff_ms,
                    settings.remote_log_manager_task_retry_backoff_max_ms,
                )
                self._resting[key] = failures + 1, self._env.monotonic_ms() + backoff_ms
                reason = error.message if isinstance(error, ApiError) else "it takes too long"
                logger.warning("%s failed, next try in %d ms: %s", name, backoff_ms, reason)
            finally:
                self._busy.discard(key)

        self._env.spawn(run(), name)

    async def _tend(self, partition: Partition) -> None:
        """Copy and expire what is due of a led partition."""
        key, place = _key(partition), self._place(partition)
        epoch = partition.leader_epoch
        remote = self._metadata.get(key)
        if self._settled.get(key) != epoch or remote is None:
            remote = await self._metadata.up_to_date(key)
            self._restored.end_transactions(partition)
            self._settled[key] = epoch
        self._adjust_start(partition, remote)
        await self._copy_due(partition, place, epoch)
        remote = self._metadata.get(key)
        if remote is not None and partition.is_leader and partition.leader_epoch == epoch:
            await self._expire(partition, place, remote)

    def _adjust_start(self, partition: Partition, remote: RemotePartition) -> None:
        """The start offset here may be older than what was deleted from the tier, also by a leader before, just now."""
        log = partition.log
        earliest = remote.earliest_offset()
        start = log.local_start_offset if earliest is None else min(earliest, log.local_start_offset)
        if log.advance_start_offset(start):
            partition.tell_watchers()

    async def _copy_due(self, partition: Partition, place: PartitionLocation, epoch: int) -> None:
        key, log = _key(partition), partition.log
        for _ in range(COPIES_PER_TURN):
            if partition.settings.remote_log_copy_disable or partition.leader_epoch != epoch:
                self._lag.pop(key, None)
                return
            due = segments_to_copy(
                log.segment_facts(), self.copied_offset(partition), partition.last_stable_offset, log.start_offset
            )
            self._lag[key] = len(due), sum(segment.size_bytes for segment in due)
            if not due:
                return
            async with self._copies:
                await self._write_topic(partition)
                if not self._copier.is_led(partition, epoch):
                    return
                await self._copier.copy(partition, place, due[0].base_offset)

    async def _write_topic(self, partition: Partition) -> None:
        """Keep the document about the topic up to date."""
        topic = self._image.topics.get(partition.name.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return
        document = TopicDocument(
            self._cluster_id,
            topic.name,
            topic.topic_id,
            len(topic.partitions),
            len(topic.partitions[0].replicas),
            self._image.overrides(ResourceType.TOPIC, topic.name),
        )
        content = document.to_bytes()
        if self._topics_written.get(topic.topic_id) != content:
            await self._store.put(document.path, content)
            self._topics_written[topic.topic_id] = content

    async def _expire(self, partition: Partition, place: PartitionLocation, remote: RemotePartition) -> None:
        log, settings = partition.log, partition.settings
        plan = plan_expiry(
            remote.segments(),
            lineage_of(partition),
            log.segment_facts(),
            start_offset=log.start_offset,
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
            now_ms=self._env.now_ms(),
            own_copies=frozenset(self._copier.under_way),
        )
        # Readers are notified first, and find nothing missing.
        if log.advance_start_offset(min(plan.start_offset, partition.high_watermark)):
            partition.tell_watchers()
        for segment in plan.delete:
            async with self._removals:
                await self._copier.remove(place, segment)

    def _is_gone(self, key: TierKey) -> bool:
        """Whether nothing of a partition belongs into the tier any more."""
        topic = self._image.topics_by_id.get(key.topic_id)
        if topic is not None:
            self._absent_since.pop(key.topic_id, None)
            overrides = self._image.overrides(ResourceType.TOPIC, topic.name)
            settings = self._partitions.settings_of(topic.name)
            return "remote.log.delete.on.disable" in overrides and not settings.remote_storage_enable
        if key.topic_id in self._removed:
            return True
        since_ms = self._absent_since.setdefault(key.topic_id, self._env.monotonic_ms())
        return self._env.monotonic_ms() - since_ms > ABSENT_MS

    async def _clear(self, key: TierKey, remote: RemotePartition) -> None:
        """Remove everything of a partition whose topic was deleted, or is no longer tiered."""
        if not len(remote) and key.topic_id in self._image.topics_by_id:
            return
        place = PartitionLocation(self._cluster_id, remote.topic, *key)
        is_deleted = key.topic_id not in self._image.topics_by_id
        if is_deleted and remote.deletion is None:
            await self._note_deletion(key, remote.topic, PartitionDeleteState.DELETE_PARTITION_MARKED)
            await self._note_deletion(key, remote.topic, PartitionDeleteState.DELETE_PARTITION_STARTED)
        for segment in remote.segments():
            async with self._removals:
                await self._copier.remove(place, segment)
        if is_deleted:
            await self._store.delete([f"{place.topic_directory}/topic.json"])
            await self._note_deletion(key, remote.topic, PartitionDeleteState.DELETE_PARTITION_FINISHED)

    async def _note_deletion(self, key: TierKey, topic: str, state: PartitionDeleteState) -> None:
        await self._metadata.write(key, partition_deletion(topic, key, state, self._node_id, self._env.now_ms()))

    def _place(self, partition: Partition) -> PartitionLocation:
        return PartitionLocation(self._cluster_id, partition.name.topic, partition.topic_id, partition.name.partition)


class _Places:
    """A number of places that may change while some are taken."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._taken = 0
        self._freed = asyncio.Condition()

    async def __aenter__(self) -> None:
        async with self._freed:
            await self._freed.wait_for(lambda: self._taken < self._count())
            self._taken += 1

    async def __aexit__(self, *_: object) -> None:
        async with self._freed:
            self._taken -= 1
            self._freed.notify()


def lineage_of(partition: Partition) -> list[EpochStart]:
    """The leader epochs of a replica's log."""
    return [EpochStart(*entry) for entry in partition.log.epochs.entries]


def _key(partition: Partition) -> TierKey:
    return TierKey(partition.topic_id, partition.name.partition)


async def _as_store_errors(work: Coroutine[object, object, T]) -> T:
    try:
        return await work
    except DamagedIndexError as error:
        raise StoreError(f"an index in object storage is damaged: {error}") from error
