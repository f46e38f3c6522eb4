"""The replicas on this broker, kept in step with the committed metadata.

`follow` is called with every committed batch of metadata records and opens, reconfigures, promotes, demotes or removes
replicas. Small changes are done at once; many replicas are opened off the loop, a few at a time. The result depends on
the image alone, so a record may come twice. A removed replica's directory is renamed at once and deleted later, so that
a crash in between leaves no partial replica. A directory that the metadata does not know is renamed and kept, never
deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from penstock.config.topic import TopicSettings, running_settings
from penstock.core.metadata.image import Image, PartitionState, ResourceType, Topic
from penstock.core.metrics.counters import ReplicaCounters
from penstock.core.replica.follower import FollowerState
from penstock.core.replica.leader import LAG_MS_MAX
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import NO_LEADER, TopicPartition, Uuid, format_uuid
from penstock.runtime.env import Env
from penstock.runtime.logs.checkpoints import CheckpointWriter
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.logs.open_logs import OpenLogs
from penstock.runtime.replication.absence import not_served, unknown_partition
from penstock.runtime.replication.leadership import Leadership
from penstock.runtime.replication.leading import exclude
from penstock.runtime.replication.partition import PRODUCER_IDS_MAX, Partition
from penstock.runtime.replication.partition_events import Listener, PartitionEvents
from penstock.runtime.replication.replica_opener import Answers, Placed, ReplicaOpener
from penstock.runtime.replication.replica_store import Opened, Placement, ReplicaStore, log_settings, open_replica
from penstock.runtime.replication.watcher import EVERYTHING
from penstock.storage.files import CorruptLogError, StorageError
from penstock.storage.log import Log
from penstock.storage.metadata_files import sync_partition_metadata
from penstock.storage.names import parse_partition_directory
from penstock.storage.settings import LogSettings
from penstock.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from penstock.wire.record_types import CorruptBatch

# How many replicas are opened on the loop where they are few, so that a small topic is there as soon as it is known;
# and how many change their role before the loop gets its turn.
OPENED_AT_ONCE = 8
CHANGED_PER_TURN = 128
# Between attempts to bring a partition in line with the metadata that failed unexpectedly.
ADOPT_AGAIN_S = 5.0
# Between attempts to make a truncation durable while the disk is full.
RETRY_S = 0.5

logger = logging.getLogger("penstock.runtime")


class Partitions(PartitionEvents):
    """Every partition that this broker holds a replica of, by name and by topic id."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        image: Image,
        defaults: Callable[[], TopicSettings],
        directories: Sequence[LogDirectory],
        decompressed_bytes_max: int,
        *,
        lag_ms_max: int = LAG_MS_MAX,
        counters: ReplicaCounters | None = None,
        producer_ids_max: int = PRODUCER_IDS_MAX,
    ) -> None:
        super().__init__()
        self._env = env
        self.counters = counters or ReplicaCounters()
        self.node_id = node_id
        self.image = image
        self._defaults = defaults
        self.directories = directories
        self._decompressed_bytes_max = decompressed_bytes_max
        self._lag_ms_max = lag_ms_max
        self._producer_ids_max = producer_ids_max
        self._checkpoints = {
            directory.path: CheckpointWriter(env, directory, self.fail_directory, self._starts_durable)
            for directory in directories
        }
        self._store = ReplicaStore(env, directories, self.checkpoints, self.check_disk)
        self._open_logs = OpenLogs(env.open_logs_max)
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[Uuid, int], Partition] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        # Where replicas that have moved were before, as long as their former logs are there.
        self._former_homes: dict[Partition, LogDirectory] = {}
        # Replicas that are being moved to another directory. Their logs must not be compacted meanwhile: the copy would
        # keep a deleted key of which the source has neither the record nor the tombstone any more.
        self.moving: set[TopicPartition] = set()
        # Partitions that should be here but could not be opened, and why.
        self._unopened: dict[TopicPartition, tuple[Uuid, StorageError]] = {}
        # Those of them that were closed because they are damaged, and whose directory could not be set aside yet.
        self._condemned: set[tuple[Uuid, int]] = set()
        # Partitions that were here before they were opened, with everything that was durable.
        self.whole: set[TopicPartition] = set()
        # Partitions that the metadata changed and that have not been processed yet.
        self._changed: dict[tuple[Uuid, int], None] = {}
        self._working: asyncio.Task[None] | None = None
        # Partitions that are opened once no checkpoint has former ones of their names, and what sees to that.
        self._stale: set[tuple[Uuid, int]] = set()
        self._dropping: set[asyncio.Task[None]] = set()
        # Partitions that the metadata changed while their logs were being truncated.
        self._deferred: set[tuple[Uuid, int]] = set()
        # None where no other broker could lead, or followers are not served yet.
        self.leadership: Leadership | None = None
        self._opener = ReplicaOpener(env, self._opened)
        # What the metadata changed of partitions that are being opened, also in topics of the same name, by that name.
        self._held: dict[TopicPartition, dict[tuple[Uuid, int], None]] = {}
        # Partitions about to be led that producers wait for.
        self._awaited: dict[tuple[Uuid, int], asyncio.Future[None]] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def unopened_count(self) -> int:
        """How many partitions should be here but could not be opened."""
        return len(self._unopened)

    @property
    def are_all_open(self) -> bool:
        """Whether every partition that should be here is open, and was checked when it was opened."""
        return not (self._unopened or self._changed or self._opener or self._stale)

    @property
    def is_behind(self) -> bool:
        """Whether the metadata has changes that were not applied to this broker's partitions yet."""
        return self._working is not None or bool(self._opener or self._deferred or self._stale)

    def opening(self, topic: str, topic_id: Uuid, partition: int, *, by_id: bool) -> asyncio.Future[None] | None:
        """Completes when a partition is led here that is about to be, by the metadata, or could not be opened.

        None for all others. Clients may know of their new leader from another broker before it is ready.
        """
        known = self.image.topics_by_id.get(topic_id) if by_id else self.image.topics.get(topic)
        if known is None or not self.is_behind or not self._is_to_be_led(known.topic_id, partition):
            return None
        key = known.topic_id, partition
        if key not in self._awaited:
            self._awaited[key] = asyncio.get_running_loop().create_future()
        return self._awaited[key]

    def _is_to_be_led(self, topic_id: Uuid, index: int) -> bool:
        known = self.state_of("", topic_id, index, by_id=True)
        if known is None or known.leader != self.node_id:
            return False
        found = self._by_id.get((topic_id, index))
        name = TopicPartition(self.image.topics_by_id[topic_id].name, index)
        return (found is None or found.leading is None) and name not in self._unopened

    def _complete_opened(self) -> None:
        for key in [key for key in self._awaited if not self._is_to_be_led(*key)]:
            self._awaited.pop(key).set_result(None)

    def get(self, topic: str, partition: int) -> Partition | None:
        """The partition by name, if this broker has a replica of it."""
        return self._by_name.get((topic, partition))

    def lookup(self, topic: str, topic_id: Uuid, partition: int, *, by_id: bool) -> Partition:
        """The partition in a request, which this broker must lead; otherwise raises Kafka's error for it."""
        found = self._by_id.get((topic_id, partition)) if by_id else self._by_name.get((topic, partition))
        if found is not None and found.leading is not None:
            return found
        raise self._absence(topic, topic_id, partition, by_id)

    def replica(self, topic: str, topic_id: Uuid, partition: int, *, by_id: bool) -> Partition:
        """The same, whether this broker leads the partition or follows its leader."""
        found = self._by_id.get((topic_id, partition)) if by_id else self._by_name.get((topic, partition))
        if found is not None and found.leader_id != NO_LEADER:
            return found
        raise self._absence(topic, topic_id, partition, by_id)

    def _absence(self, topic: str, topic_id: Uuid, partition: int, by_id: bool) -> ApiError:
        known = self.image.topics_by_id.get(topic_id) if by_id else self.image.topics.get(topic)
        if known is None and by_id:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {format_uuid(topic_id)}")
        if known is None or not 0 <= partition < len(known.partitions):
            return unknown_partition(known.name if known is not None else topic, partition)
        name = TopicPartition(known.name, partition)
        unopened, home = self._unopened.get(name), self._homes.get(name)
        return not_served(name, unopened[1] if unopened is not None else home.failure if home is not None else None)

    def state_of(self, topic: str, topic_id: Uuid, partition: int, *, by_id: bool) -> PartitionState | None:
        """The metadata of a partition, wherever its replicas are."""
        known = self.image.topics_by_id.get(topic_id) if by_id else self.image.topics.get(topic)
        return known.partitions[partition] if known is not None and 0 <= partition < len(known.partitions) else None

    def home(self, partition: Partition) -> LogDirectory:
        """The directory of a partition."""
        return self._homes[partition.name]

    def checkpoints(self, directory: LogDirectory) -> CheckpointWriter:
        """What writes the checkpoints of a directory."""
        return self._checkpoints[directory.path]

    def note_progress(self, partition: Partition) -> CheckpointWriter:
        """Have the checkpoints of a partition's directory contain how far it is; returns what writes them."""
        log, writer = partition.log, self.checkpoints(self._homes[partition.name])
        if not partition.is_truncating:
            writer.note(partition.name, log.flushed_offset, log.start_offset, partition.high_watermark)
        return writer

    def _starts_durable(self, directory: LogDirectory, starts: Mapping[TopicPartition, int]) -> None:
        for name, start_offset in starts.items():
            partition = self._by_name.get(name)
            if partition is not None and self._homes[name] is directory:
                partition.log.note_durable_start(start_offset)

    def settings_of(self, topic: str) -> TopicSettings:
        """The current settings of a topic."""
        return running_settings(self.image.overrides(ResourceType.TOPIC, topic), self._defaults())

    def open_all(self) -> None:
        """Open every partition that the metadata places here, and set strays aside.

        The metadata must be up to date: a directory that it does not know yet would be taken for a stray.
        """
        self._store.begin_use()
        for key in self._all_here():
            self._adopt(*key)

    async def begin_use(self) -> None:
        """Start using the directories: the first step, before `follow` and `open_gradually`."""
        await self._env.run_blocking(self._store.begin_use)

    async def open_gradually(self) -> None:
        """The same after `begin_use`, yielding to other work."""
        self._changed.update(dict.fromkeys(self._all_here()))
        self._work_on_changes()
        while self._working is not None or self._dropping or self._opener:
            if self._working is not None:
                await self._working
            elif self._dropping:
                await asyncio.wait(self._dropping)
            else:
                await self._opener.wait()

    def _all_here(self) -> list[tuple[Uuid, int]]:
        self._store.set_strays_aside(self.image, self.node_id)
        return [
            (topic.topic_id, index)
            for topic in self.image.topics.values()
            for index, state in enumerate(topic.partitions)
            if self.node_id in state.replicas
        ]

    async def close_all(self) -> None:
        """Close every log and sync it. A directory with a log that cannot be closed has failed."""
        if self._working is not None:
            self._working.cancel()
        self._opener.stop()
        for partition in list(self._by_name.values()):
            home = self._homes.get(partition.name)
            if home is not None and home.failure is None:
                try:
                    if partition.log.is_failed and self._by_name.get(partition.name) is partition:
                        # The next start must not trust it.
                        raise StorageError(f"{partition.name} accepts no more writes and cannot be closed cleanly")
                    # Topics are deleted, and partitions moved away, also meanwhile.
                    await partition.sync.close()
                except StorageError as error:
                    self.fail_directory(home, error)

    def wake_readers(self) -> None:
        """Answer every long poll now: no more records will come."""
        for partition in self._by_name.values():
            partition.announce(EVERYTHING)

    def open_missing(self) -> None:
        """Retry partitions that could not be opened because of a full disk or missing descriptors."""
        self.report_unopened()
        due = [(topic_id, name.partition) for name, (topic_id, error) in self._unopened.items() if error.is_passing]
        if due:
            self._changed.update(dict.fromkeys(due))
            self._work_on_changes()

    def report_unopened(self) -> None:
        """Tell of the partitions that cannot be opened: other brokers can lead them."""
        for name, (topic_id, error) in list(self._unopened.items()):
            if not error.is_passing:
                self._tell_unopened(topic_id, name.partition)

    def _tell_unopened(self, topic_id: Uuid, index: int) -> None:
        for listener in self._on_unopened:
            listener(topic_id, index)

    def fail_directory(self, directory: LogDirectory, error: StorageError) -> None:
        """A disk failed: nothing in this directory is written or acknowledged any more."""
        if directory.failure is not None:
            return
        directory.failure = error
        logger.critical("the data directory %s failed and goes offline: %s", directory.path, error)
        for name in sorted(directory.partitions):
            self._by_name[name].log.fail(error)
        for future in directory.futures.values():
            future.fail(error)
        for listener in self._on_directory_failed:
            listener(directory)

    def note_damage(self, partition: Partition, error: CorruptLogError) -> None:
        """A replica here seems to be damaged: those who listen find out whether it is, and what to do."""
        for listener in self._on_damage:
            listener(partition, error)

    @property
    def damaged_unopened(self) -> list[tuple[TopicPartition, Uuid, CorruptLogError]]:
        """The replicas that could not be opened because they are damaged, and their topics."""
        return [
            (name, topic_id, error)
            for name, (topic_id, error) in self._unopened.items()
            if isinstance(error, CorruptLogError)
        ]

    def has_no_room_for_another(self, name: TopicPartition) -> bool:
        """Whether a replica's directory is full, or is about to get another copy of it."""
        return any(
            name in directory.futures
            or (directory.is_full and (name in directory.found or name in directory.partitions))
            for directory in self.directories
        )

    def begin_anew(self, name: TopicPartition, topic_id: Uuid, damage: CorruptLogError) -> Path:
        """Keep a damaged replica's directory under another name, which is returned, and start with an empty log.

        Only where the replica is neither in sync nor eligible: from then on its records are not here. Raises
        StorageError; the replica is one that could not be opened then, and this can be called again.
        """
        home = self._homes.get(name) or next((one for one in self.directories if name in one.found), None)
        if home is None or home.failure is not None:
            raise StorageError(f"{name} is in no data directory that works")
        partition = self._by_name.get(name)
        if partition is not None:
            # The metadata has another leader, which may not have been applied here yet.
            was_leader = self._detach(partition)
            partition.log.close(clean=False)
            home.found.add(name)
            self._unopened[name] = topic_id, damage
            self._condemned.add((topic_id, name.partition))
            self._tell_detached(partition, was_leader=was_leader)
        aside = self._store.set_damaged_aside(name, home)
        self._condemned.discard((topic_id, name.partition))
        del self._unopened[name]
        self._changed[topic_id, name.partition] = None
        self._work_on_changes()
        return aside

    def check_disk(self, error: StorageError) -> None:
        """Take the directory offline in which a disk failed, if that is what an error is about.

        A full disk is not, and a damaged segment is only the matter of its replica.
        """
        if isinstance(error, CorruptLogError) and error.path is not None:
            name = parse_partition_directory(error.path.parent.name)
            partition = self._by_name.get(name) if name is not None else None
            if partition is not None and partition.log.directory == error.path.parent:
                self.note_damage(partition, error)
        if not error.is_disk_failure or error.path is None:
            return
        for directory in self.directories:
            if error.path.is_relative_to(directory.path):
                self.fail_directory(directory, error)

    def prefer(self, name: TopicPartition, directory: LogDirectory) -> None:
        """Create this replica there, if it comes to this broker."""
        self._store.prefer(name, directory)

    def replace_log(self, partition: Partition, directory: LogDirectory, log: Log) -> Callable[[], None]:
        """Have a replica be served from its copy in another directory, which ends at the same offset.

        Nothing changes if StorageError is raised. The former log stays on disk until the returned function is called.
        """
        name, former = partition.name, partition.log
        log.take_place_of(former)
        for entry in former.epochs.entries:
            # The last one may have no batch yet.
            log.assign_epoch(*entry)
        log.close_files()
        filesystem, path = self._env.filesystem, log.directory
        partition.replace_log(log, lambda: sync_partition_metadata(filesystem, path))
        self._open_logs.forget(former)
        self._open_logs.add(log)
        home = self._homes[name]
        home.partitions.discard(name)
        self._homes[name] = directory
        directory.partitions.add(name)
        former.close(clean=False)
        self._former_homes[partition] = home
        _tell(self._on_moved, partition)
        return lambda: self._retire_former(partition)

    def _retire_former(self, partition: Partition) -> None:
        """Remove the log that a replica had before it moved, unless that is done: another one may be there by now."""
        home = self._former_homes.pop(partition, None)
        if home is not None:
            self._store.retire(partition.name, partition.topic_id, home)

    def carry_out(
        self,
        partition: Partition,
        steps: Iterator[int],
        completion: Callable[[], None] | None = None,
        start_offset: int = 0,
    ) -> Coroutine[object, object, None]:
        """Carry out the steps of a truncation (`Log.truncation`), each durable before the next, checkpoints included.

        From this call on, not only from when the result is awaited, until all is durable nothing may be appended, and
        the replica keeps its role: changes of the metadata wait, also for `completion`, which is called then. After a
        crash the log starts no earlier than at `start_offset`. Raises ApiError or CorruptBatch; unless the log is as it
        was, its directory has failed or it is closed.
        """
        if partition.is_truncating:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.name} is already being truncated")
        partition.is_truncating = True
        return self._carry_out(partition, steps, completion, start_offset)

    async def _carry_out(
        self,
        partition: Partition,
        steps: Iterator[int],
        completion: Callable[[], None] | None,
        start_offset: int,
    ) -> None:
        name, log, generation = partition.name, partition.log, partition.log.generation
        try:
            for offset in steps:
                partition.state.high_watermark = min(partition.state.high_watermark, log.end_offset)
                partition.forget_recalled()
                await self._make_durable(partition, log, offset, start_offset)
            if completion is not None:
                completion()
        except FileNotFoundError as error:
            missing = StorageError(f"a file of {log.directory} is missing: {error}")
            self._fail_truncation(partition, log, generation, missing)
            raise missing from error
        except (ApiError, CorruptBatch) as error:
            self._fail_truncation(partition, log, generation, error)
            raise
        except Exception as error:
            # It is unknown what has become of this log; that of others is not in doubt.
            unknown = StorageError(f"{name} could not be truncated: {error!r}")
            log.fail(unknown)
            self._end_truncation(partition)
            raise unknown from error
        self._end_truncation(partition)

    def _fail_truncation(self, partition: Partition, log: Log, generation: int, error: ApiError) -> None:
        if isinstance(error, StorageError) and log.generation != generation and not log.is_failed:
            # It is neither what it was nor what it should be, and might be appended to.
            partition.on_failure(error)
        self._end_truncation(partition)

    def _end_truncation(self, partition: Partition) -> None:
        partition.is_truncating = False
        key = partition.topic_id, partition.name.partition
        if key in self._deferred:
            self._deferred.discard(key)
            self._adopt_or_retry(*key)
            self._complete_opened()

    async def _make_durable(self, partition: Partition, log: Log, offset: int, start_offset: int) -> None:
        """Make one step of a truncation durable, with checkpoints that are not past `offset`."""
        name = partition.name
        while True:
            await partition.sync.barrier()
            home = self._homes.get(name)
            if home is None or self._by_name.get(name) is not partition:
                raise unknown_partition(name.topic, name.partition)
            writer = self.checkpoints(home)
            writer.note(name, log.flushed_offset, max(log.start_offset, start_offset), partition.high_watermark)
            writer.lower(name, offset)
            try:
                await writer.write()
            except StorageError as error:
                if not error.is_passing:
                    raise
            else:
                if not log.has_unsaved_epochs:
                    return
            # The disk is full; what was removed makes room.
            await asyncio.sleep(RETRY_S)

    def follow(self, records: Sequence[object]) -> None:
        """Apply committed records to this broker's partitions."""
        configured: dict[str, None] = {}
        changed: dict[tuple[Uuid, int], None] = {}
        for record in records:
            if isinstance(record, PartitionChangeRecord | PartitionRecord):
                changed[record.topic_id, record.partition_id] = None
            elif isinstance(record, RemoveTopicRecord):
                self._remove_topic(record.topic_id)
            elif isinstance(record, TopicRecord):
                configured[record.name] = None
            elif isinstance(record, ConfigRecord) and record.resource_type == ResourceType.TOPIC:
                configured[record.resource_name] = None
            elif isinstance(record, ConfigRecord) and record.resource_type == ResourceType.BROKER:
                configured.update(dict.fromkeys(self.image.topics))
            elif isinstance(record, FenceBrokerRecord):
                self._note_broker(record.id)
            elif isinstance(record, BrokerRegistrationChangeRecord | RegisterBrokerRecord | UnregisterBrokerRecord):
                self._note_broker(record.broker_id)
        for name in configured:
            found = self.image.topics.get(name)
            if found is not None:
                self._configure_topic(found)
        missing = sum(self._is_missing(*key) for key in changed)
        if len(changed) <= CHANGED_PER_TURN and missing <= OPENED_AT_ONCE:
            # Even while others are being opened: they may be thousands.
            for key in changed:
                self._changed.pop(key, None)
                self._adopt_or_retry(*key)
            self._complete_opened()
            return
        self._changed.update(changed)
        self._work_on_changes()

    def _work_on_changes(self) -> None:
        if self._working is None:
            self._working = self._env.spawn(self._adopt_rest(), "follow metadata")

    def _next_to_open(self) -> list[tuple[Uuid, int]]:
        """The next changed partitions to open; changes of already open ones are applied on the way."""
        found: list[tuple[Uuid, int]] = []
        for _ in range(min(CHANGED_PER_TURN, len(self._changed))):
            key = next(iter(self._changed))
            del self._changed[key]
            if self._is_missing(*key):
                found.append(key)
            else:
                self._adopt_or_retry(*key)
        return found

    def _adopt_or_retry(self, topic_id: Uuid, index: int) -> None:
        """Bring one partition in line with the image; one that fails unexpectedly holds up no others."""
        try:
            self._adopt(topic_id, index)
        except Exception as error:  # noqa: BLE001 - it is the matter of this partition alone
            loop = asyncio.get_running_loop()
            text = f"partition {index} of topic {format_uuid(topic_id)} is not in line with the metadata"
            loop.call_exception_handler({"message": text, "exception": error})
            loop.call_later(ADOPT_AGAIN_S, self._adopt_soon, topic_id, index)

    def _adopt_soon(self, topic_id: Uuid, index: int) -> None:
        self._changed[topic_id, index] = None
        self._work_on_changes()

    async def _adopt_rest(self) -> None:
        try:
            while self._changed:
                await asyncio.sleep(0)
                self._open_off_loop(self._next_to_open())
                self._complete_opened()
        finally:
            self._working = None
            for key in [key for key in self._awaited if not self._is_under_way(key)]:
                self._awaited.pop(key).set_result(None)

    def _is_under_way(self, key: tuple[Uuid, int]) -> bool:
        return key in self._deferred or key in self._stale or self._is_being_opened(*key)

    def _open_off_loop(self, keys: list[tuple[Uuid, int]]) -> None:
        """Open some replicas off the loop; the metadata may have changed by the time they are open."""
        stale: list[tuple[Uuid, int]] = []
        for topic_id, index in keys:
            topic = self.image.topics_by_id[topic_id]
            with self._noting_failure(topic, index):
                placement = self._place(topic, index)
                if placement is None:
                    stale.append((topic_id, index))
                else:
                    self._opener.add((topic_id, index), Placed(placement, self._log_settings(topic)))
        self._open_without_stale(stale)

    def _opened(self, answers: Answers) -> None:
        """Replicas were opened off the loop, or could not be."""
        for (topic_id, index), (placement, opened) in answers.items():
            if self._is_missing(topic_id, index):
                topic = self.image.topics_by_id[topic_id]
                with self._noting_failure(topic, index):
                    if isinstance(opened, Exception):
                        raise opened
                    if placement.home.failure is not None:
                        opened.log.close(clean=False)
                        raise placement.home.failure
                    self._add(topic, placement.name, topic.partitions[index], opened)
                    self._adopt(topic_id, index)
            elif isinstance(opened, Opened):
                opened.home.found.discard(placement.name)
                self._store.remove(placement.name, topic_id, opened.home, opened.log)
            held = self._held.pop(placement.name, None)
            if held is not None:
                self._changed.update(held)
                self._work_on_changes()
        self._complete_opened()

    def _log_settings(self, topic: Topic) -> LogSettings:
        return log_settings(self.settings_of(topic.name))

    def _open_without_stale(self, keys: Iterable[tuple[Uuid, int]]) -> None:
        """Open replicas when no checkpoint has former ones of their names. A disk that stalls holds up no others."""
        groups: dict[tuple[Path, ...], list[tuple[Uuid, int]]] = {}
        for topic_id, index in keys:
            topic = self.image.topics_by_id.get(topic_id)
            if topic is None or (topic_id, index) in self._stale:
                continue
            name = TopicPartition(topic.name, index)
            paths = tuple(
                one.path for one in self.directories if one.failure is None and self.checkpoints(one).has_stale(name)
            )
            groups.setdefault(paths, []).append((topic_id, index))
        for stale_in, group in groups.items():
            self._stale.update(group)
            task = self._env.spawn(self._drop_stale(stale_in, group), "drop former replicas from checkpoints")
            self._dropping.add(task)
            task.add_done_callback(self._dropping.discard)

    async def _drop_stale(self, paths: Sequence[Path], keys: Sequence[tuple[Uuid, int]]) -> None:
        try:
            await asyncio.gather(*(self._checkpoints[path].write() for path in paths))
        except StorageError as error:
            for topic_id, index in keys:
                topic = self.image.topics_by_id.get(topic_id)
                if topic is not None:
                    with self._noting_failure(topic, index):
                        raise error
        else:
            self._changed.update(dict.fromkeys(keys))
        finally:
            self._stale.difference_update(keys)
        self._work_on_changes()

    def _is_stale(self, topic_id: Uuid, index: int) -> bool:
        """Whether a checkpoint still has a former replica of a partition's name."""
        name = TopicPartition(self.image.topics_by_id[topic_id].name, index)
        return any(self.checkpoints(one).has_stale(name) for one in self.directories if one.failure is None)

    def _is_missing(self, topic_id: Uuid, index: int) -> bool:
        """Whether a partition should be here and is not open."""
        topic = self.image.topics_by_id.get(topic_id)
        return (
            topic is not None
            and index < len(topic.partitions)
            and self.node_id in topic.partitions[index].replicas
            and (topic_id, index) not in self._by_id
            and not self._is_being_opened(topic_id, index)
            and not self._is_to_begin_anew(topic_id, index)
        )

    def _is_to_begin_anew(self, topic_id: Uuid, index: int) -> bool:
        """Whether a partition was closed because it is damaged, and is not to be used as it is while others lead."""
        known = self.state_of("", topic_id, index, by_id=True)
        return (
            (topic_id, index) in self._condemned
            and known is not None
            and known.leader
            not in (
                NO_LEADER,
                self.node_id,
            )
        )

    def _is_being_opened(self, topic_id: Uuid, index: int) -> bool:
        """Whether a worker is opening a partition of this name, of this topic or of one that was deleted since."""
        topic = self.image.topics_by_id.get(topic_id)
        return topic is not None and TopicPartition(topic.name, index) in self._opener

    def _adopt(self, topic_id: Uuid, index: int) -> None:
        """Bring one partition in line with the image."""
        if self._is_being_opened(topic_id, index):
            name = TopicPartition(self.image.topics_by_id[topic_id].name, index)
            self._held.setdefault(name, {})[topic_id, index] = None
            return
        if self._is_missing(topic_id, index):
            topic = self.image.topics_by_id[topic_id]
            with self._noting_failure(topic, index):
                placement = self._place(topic, index)
                if placement is None:
                    self._changed[topic_id, index] = None
                    self._work_on_changes()
                    return
                home, settings = placement.home, self._log_settings(topic)
                if self._opener.is_at_work(home) or self.checkpoints(home).is_stalled:
                    # Its disk may be slow, or have stalled.
                    self._opener.add((topic_id, index), Placed(placement, settings), is_first=True)
                    return
                opened = open_replica(placement, settings)
                self._add(topic, TopicPartition(topic.name, index), topic.partitions[index], opened)
        partition = self._by_id.get((topic_id, index))
        known = self.state_of("", topic_id, index, by_id=True)
        if partition is None or known is None:
            return
        if self.node_id in known.replicas:
            if partition.is_truncating:
                self._deferred.add((topic_id, index))
            else:
                self._assign_role(partition, known)
        else:
            logger.info("%s was moved to other brokers", partition.name)
            self._remove(partition)

    def lead(self, partition: Partition) -> None:
        """Lead a restored partition that has started from object storage."""
        self._adopt(partition.topic_id, partition.name.partition)

    def _assign_role(self, partition: Partition, known: PartitionState) -> None:
        if known.leader == self.node_id and partition.log.end_offset < known.restored_offset:
            logger.info("%s starts from object storage before it has a leader", partition.name)
            known = known._replace(leader=NO_LEADER)
        if known.leader == self.node_id:
            if partition.make_leader(self.node_id, known, self._env.monotonic_ms()):
                _tell(self._on_leader, partition)
            elif partition.must_confirm:
                _tell(self._on_joinable, partition)
            return
        was_leader = partition.is_leader
        if partition.make_follower(known):
            if was_leader:
                _tell(self._on_resigned, partition)
            _tell(self._on_follower, partition)

    @contextmanager
    def _noting_failure(self, topic: Topic, index: int) -> Iterator[None]:
        """Remember that a partition could not be opened, and why; or that it could."""
        name = TopicPartition(topic.name, index)
        try:
            yield
        except (StorageError, FileNotFoundError) as error:
            is_first = name not in self._unopened
            if is_first:
                logger.error("cannot open %s: %s", name, error)
            reason = error if isinstance(error, StorageError) else StorageError(str(error))
            self._unopened[name] = topic.topic_id, reason
            self.check_disk(reason)
            # What passes may have passed at the next attempt, and what is new here has no records that others lack.
            if not reason.is_passing or (not is_first and any(name in one.found for one in self.directories)):
                self._tell_unopened(topic.topic_id, index)
        else:
            self._unopened.pop(name, None)

    def _place(self, topic: Topic, index: int) -> Placement | None:
        """The location of a replica; None while a checkpoint still has a former one of its name."""
        if self._is_stale(topic.topic_id, index):
            return None
        name = TopicPartition(topic.name, index)
        wanted = topic.partitions[index].directory(self.node_id)
        placement = self._store.place(name, topic.topic_id, wanted, self._log_settings(topic))
        # To find a place for it, what is left of the former one may only just have been removed.
        return None if placement.is_new and self._is_stale(topic.topic_id, index) else placement

    def _add(self, topic: Topic, name: TopicPartition, known: PartitionState, opened: Opened) -> None:
        settings = self.settings_of(topic.name)
        home = opened.home
        home.found.discard(name)
        if opened.is_whole:
            self.whole.add(name)
        partition = Partition(
            self._env,
            name,
            topic.topic_id,
            opened.log,
            FollowerState(NO_LEADER, -1, opened.high_watermark),
            len(known.replicas),
            settings,
            self._decompressed_bytes_max,
            lambda error: self.fail_directory(self._homes[name], error),
            lag_ms_max=self._lag_ms_max,
            counters=self.counters.topic(topic.name),
            producer_ids_max=self._producer_ids_max,
        )
        partition.on_damage = partial(self.note_damage, partition)
        if opened.owed is not None:
            # Before records in it are acknowledged, the directory and its topic id must survive a power failure.
            partition.sync.owe(opened.owed)
        if self.checkpoints(home).lower(name, opened.log.end_offset):
            # A truncation was interrupted before its checkpoints were lowered.
            self.checkpoints(home).write()
        self._open_logs.add(opened.log)
        self._by_name[name] = partition
        self._by_id[topic.topic_id, name.partition] = partition
        self._homes[name] = home
        home.partitions.add(name)
        _tell(self._on_change, partition)
        for damage in opened.log.recovery.damaged[:1]:
            self.note_damage(partition, damage)

    def _configure_topic(self, topic: Topic) -> None:
        settings = None
        for index in range(len(topic.partitions)):
            partition = self._by_name.get((topic.name, index))
            if partition is not None:
                settings = settings or self.settings_of(topic.name)
                if partition.settings != settings:
                    partition.configure(settings)
                    _tell(self._on_change, partition)
                    if partition.must_confirm:
                        _tell(self._on_joinable, partition)

    def _note_broker(self, broker_id: int) -> None:
        """A broker that is fenced, shutting down or new cannot be in sync: the high watermark does not wait for it.

        An unfenced one can, and may have shown that it has everything before that.
        """
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            for partition in self._by_name.values():
                exclude(partition, broker_id)
            return
        now_ms = self._env.monotonic_ms()
        for partition in list(self._by_name.values()):
            if partition.leading is not None and partition.leading.admitted(broker_id, broker.epoch, now_ms):
                _tell(self._on_joinable, partition)

    def _remove_topic(self, topic_id: Uuid) -> None:
        for partition in [partition for key, partition in self._by_id.items() if key[0] == topic_id]:
            self._remove(partition)
            self.counters.forget(partition.name.topic)
        for name in [name for name, (owner, _) in self._unopened.items() if owner == topic_id]:
            del self._unopened[name]
            self._condemned.discard((topic_id, name.partition))
            self._store.retire_unopened(name, topic_id)

    def _remove(self, partition: Partition) -> None:
        home = self._homes[partition.name]
        was_leader = self._detach(partition)
        self._store.remove(partition.name, partition.topic_id, home, partition.log)
        self._tell_detached(partition, was_leader=was_leader)

    def _detach(self, partition: Partition) -> bool:
        """Stop serving a replica; returns whether it led."""
        name = partition.name
        self._by_name.pop(name, None)
        self._by_id.pop((partition.topic_id, name.partition), None)
        self._homes.pop(name).partitions.discard(name)
        self.whole.discard(name)
        partition.sync.abandon()
        was_leader = partition.is_leader
        partition.fence()
        self._open_logs.forget(partition.log)
        # A new replica of this name may be placed there next.
        self._retire_former(partition)
        return was_leader

    def _tell_detached(self, partition: Partition, *, was_leader: bool = False) -> None:
        if was_leader:
            _tell(self._on_resigned, partition)
        _tell(self._on_removed, partition)


def _tell(listeners: list[Listener], partition: Partition) -> None:
    for listener in listeners:
        listener(partition)
