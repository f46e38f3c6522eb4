"""The partitions on this broker, kept in step with the committed metadata.

`follow` is called with every committed batch of metadata records and opens, reconfigures or removes partitions. A
topic's removal renames its directories at once and deletes them later, so that a crash in between leaves no half of
it. A directory whose topic the metadata does not know is set aside under another name, never deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.config.topic import BrokerDefaults, TopicSettings, topic_settings
from penstock.core.metadata.image import Image, PartitionState, ResourceType, Topic
from penstock.core.replica.leader import LeaderState
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition, Uuid, format_uuid
from penstock.runtime.env import Env
from penstock.runtime.log_directories import LogDirectory, begin_use, forget_partition
from penstock.runtime.partition import Partition, log_settings
from penstock.storage.files import File, Filesystem, StorageError
from penstock.storage.log import Log
from penstock.storage.metadata_files import read_partition_metadata, write_partition_metadata
from penstock.storage.names import deletion_directory_name
from penstock.wire.messages.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

STRAY_SUFFIX = "-stray"
EVERYTHING = 2**62

logger = logging.getLogger("penstock.runtime")


class Partitions:
    """Every partition this broker leads, by name and by topic id."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        image: Image,
        defaults: Callable[[], BrokerDefaults],
        directories: Sequence[LogDirectory],
        decompressed_bytes_max: int,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._image = image
        self._defaults = defaults
        self.directories = directories
        self._decompressed_bytes_max = decompressed_bytes_max
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[Uuid, int], Partition] = {}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        # Partitions that should be here and could not be opened, and why.
        self._unopened: dict[TopicPartition, tuple[Uuid, StorageError]] = {}
        self._on_change: list[Callable[[Partition], None]] = []
        self._on_removed: list[Callable[[Partition], object]] = []

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, topic: str, partition: int) -> Partition | None:
        """The partition by name, if this broker has it."""
        return self._by_name.get((topic, partition))

    def lookup(self, topic: str, topic_id: Uuid, partition: int, *, by_id: bool) -> Partition:
        """The partition a request means; raises the error that Kafka has for its absence."""
        found = self._by_id.get((topic_id, partition)) if by_id else self._by_name.get((topic, partition))
        if found is not None:
            return found
        if by_id and topic_id not in self._image.topics_by_id:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {format_uuid(topic_id)}")
        if not by_id:
            known = self._image.partition(topic, partition)
            if known is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of a topic {topic!r}"
                )
        elif partition >= len(self._image.topics_by_id[topic_id].partitions) or partition < 0:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic has no partition {partition}")
        name = topic if not by_id else self._image.topics_by_id[topic_id].name
        unopened = self._unopened.get(TopicPartition(name, partition))
        if unopened is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}-{partition} could not be opened: {unopened[1]}")
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead that partition")

    def home(self, partition: Partition) -> LogDirectory:
        """The directory a partition lies in."""
        return self._homes[partition.name]

    def settings_of(self, topic: str) -> TopicSettings:
        """What a topic runs with now."""
        return topic_settings(self._image.overrides(ResourceType.TOPIC, topic), self._defaults())

    def on_change(self, listener: Callable[[Partition], None]) -> None:
        """Have `listener` called when a partition was opened or its settings changed."""
        self._on_change.append(listener)

    def on_removed(self, listener: Callable[[Partition], object]) -> None:
        """Have `listener` called when a partition is gone."""
        self._on_removed.append(listener)

    # Start and stop.

    def open_all(self) -> None:
        """Open every partition that the metadata places here, and set strays aside."""
        for directory in self.directories:
            begin_use(self._env, directory)
        self._set_strays_aside()
        for topic in self._image.topics.values():
            self._open_topic(topic)

    async def close_all(self) -> None:
        """Close every log and sync it. A directory with a log that cannot be closed has failed."""
        for partition in self._by_name.values():
            home = self._homes[partition.name]
            if home.failure is None:
                try:
                    await partition.sync.stop()
                    partition.log.close(clean=True)
                except StorageError as error:
                    self.fail_directory(home, error)

    def wake_readers(self) -> None:
        """Have every long poll answered with what there is: nothing more will come."""
        for partition in self._by_name.values():
            partition.announce(EVERYTHING)

    def open_missing(self) -> None:
        """Try again to open the partitions that found the disk full or no free descriptor."""
        for topic_id, error in list(self._unopened.values()):
            if error.is_passing:
                self._open_topic(self._image.topics_by_id[topic_id])

    def fail_directory(self, directory: LogDirectory, error: StorageError) -> None:
        """A disk failed: nothing in this directory is written or acknowledged any more."""
        if directory.failure is not None:
            return
        directory.failure = error
        logger.critical("the data directory %s failed and goes offline: %s", directory.path, error)
        for name in directory.partitions:
            self._by_name[name].log.fail(error)

    # Following the metadata.

    def follow(self, records: Sequence[Any]) -> None:
        """Do what committed records say about this broker's partitions."""
        touched: set[str] = set()
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                self._remove_topic(record.topic_id)
            elif isinstance(record, TopicRecord):
                touched.add(record.name)
            elif isinstance(record, PartitionRecord):
                topic = self._image.topics_by_id.get(record.topic_id)
                if topic is not None:
                    touched.add(topic.name)
            elif isinstance(record, ConfigRecord) and record.resource_type == ResourceType.TOPIC:
                touched.add(record.resource_name)
            elif isinstance(record, ConfigRecord) and record.resource_type == ResourceType.BROKER:
                touched.update(self._image.topics)
        for name in touched:
            found = self._image.topics.get(name)
            if found is not None:
                self._open_topic(found)
                self._configure_topic(found)

    def _open_topic(self, topic: Topic) -> None:
        settings = None
        for index, state in enumerate(topic.partitions):
            if self._node_id in state.replicas and (topic.name, index) not in self._by_name:
                settings = settings or self.settings_of(topic.name)
                name = TopicPartition(topic.name, index)
                try:
                    self._open(topic, index, state, settings)
                    self._unopened.pop(name, None)
                except (StorageError, FileNotFoundError) as error:
                    if name not in self._unopened:
                        logger.error("cannot open %s: %s", name, error)
                    reason = error if isinstance(error, StorageError) else StorageError(str(error))
                    self._unopened[name] = topic.topic_id, reason

    def _open(self, topic: Topic, index: int, state: PartitionState, settings: TopicSettings) -> None:
        name = TopicPartition(topic.name, index)
        home = next((directory for directory in self.directories if name in directory.found), None)
        created = home is None
        if home is None:
            home = self._emptiest()
        path = home.path / str(name)
        if created:
            self._env.filesystem.make_directory(path)
            metadata_file = write_partition_metadata(self._env.filesystem, path, topic.topic_id)
            forget_partition(self._env, home, name)
        log = Log.open(
            self._env.filesystem,
            path,
            log_settings(settings),
            recovery_point=home.recovery_points.get(name, 0),
            clean=home.clean or created,
            now_ms=self._env.now_ms(),
            start_offset=home.start_offsets.get(name, 0),
        )
        leading = LeaderState(
            self._node_id,
            state.leader_epoch,
            state.replicas,
            state.in_sync_replicas,
            log.end_offset,
            # The checkpoint may be ahead of a log whose end was cut.
            min(home.high_watermarks.get(name, 0), log.end_offset),
            self._env.now_ms(),
        )
        partition = Partition(
            self._env,
            name,
            topic.topic_id,
            log,
            leading,
            len(state.replicas),
            settings,
            self._decompressed_bytes_max,
            lambda error: self.fail_directory(home, error),
        )
        if created:
            # Before records in it are acknowledged, neither a power cut may take the directory nor whose it is.
            partition.sync.owe(lambda: _make_durable(self._env.filesystem, metadata_file, path))
        self._by_name[name] = partition
        self._by_id[topic.topic_id, index] = partition
        self._homes[name] = home
        home.partitions.add(name)
        home.found.discard(name)
        for listener in self._on_change:
            listener(partition)

    def _configure_topic(self, topic: Topic) -> None:
        settings = self.settings_of(topic.name)
        for index in range(len(topic.partitions)):
            partition = self._by_name.get((topic.name, index))
            if partition is not None and partition.settings != settings:
                partition.configure(settings)
                for listener in self._on_change:
                    listener(partition)

    def _remove_topic(self, topic_id: Uuid) -> None:
        for key in [key for key in self._by_id if key[0] == topic_id]:
            partition = self._by_id.pop(key)
            self._by_name.pop(partition.name, None)
            home = self._homes.pop(partition.name)
            home.partitions.discard(partition.name)
            partition.sync.abandon()
            partition.announce(EVERYTHING)
            self._remove_files(partition)
            for listener in self._on_removed:
                listener(partition)
        for name in [name for name, (owner, _) in self._unopened.items() if owner == topic_id]:
            del self._unopened[name]
            self._remove_unopened(name)

    def _remove_unopened(self, name: TopicPartition) -> None:
        """Take what lies on disk of a partition that never opened out of the way of a namesake."""
        home = next((directory for directory in self.directories if name in directory.found), None)
        if home is None:
            return
        home.found.discard(name)
        target = home.path / deletion_directory_name(str(name), self._env.random.randbytes(16))
        try:
            self._env.filesystem.rename(home.path / str(name), target)
        except (StorageError, FileNotFoundError) as error:
            logger.error("cannot remove %s: %s", name, error)
            return
        self._env.spawn(self._unlink(target), f"remove {target.name}")

    def _remove_files(self, partition: Partition) -> None:
        try:
            target = partition.log.delete_directory(self._env.random.randbytes(16), durable=False)
        except (StorageError, FileNotFoundError) as error:
            logger.error("cannot remove %s: %s", partition.name, error)
            return
        self._env.spawn(self._unlink(target), f"remove {target.name}")

    async def _unlink(self, path: Path) -> None:
        def remove() -> None:
            self._env.filesystem.sync_directory(path.parent)
            self._env.filesystem.remove_directory(path)

        try:
            await self._env.run_blocking(remove)
        except StorageError as error:
            logger.error("cannot remove %s, the next start tries again: %s", path, error)

    def _emptiest(self) -> LogDirectory:
        working = [directory for directory in self.directories if directory.failure is None]
        if not working:
            raise StorageError("every data directory of this broker has failed")
        return min(working, key=lambda directory: len(directory.partitions))

    def _set_strays_aside(self) -> None:
        for directory in self.directories:
            for name in sorted(directory.found):
                path = directory.path / str(name)
                topic_id = read_partition_metadata(self._env.filesystem, path)
                topic = self._image.topics_by_id.get(topic_id) if topic_id is not None else None
                if topic is not None and topic.name == name.topic:
                    continue
                directory.found.discard(name)
                aside = path.with_name(f"{path.name}.{self._env.random.randbytes(16).hex()}{STRAY_SUFFIX}")
                self._env.filesystem.rename(path, aside)
                logger.warning("%s belongs to no topic of this cluster; it is kept as %s", path, aside.name)


def _make_durable(filesystem: Filesystem, metadata_file: File, directory: Path) -> None:
    """Sync what a new partition's directory begins with, and the entries that lead there."""
    metadata_file.sync()
    filesystem.sync_directory(directory)
    filesystem.sync_directory(directory.parent)
