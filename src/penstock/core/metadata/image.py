"""The cluster as the metadata log tells it: topics, partitions, brokers, settings, features.

`replay` is the only thing that changes an image; start-up and live traffic share it. `snapshot` gives the records that
rebuild the image from nothing, in an order in which they can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.model.ids import NO_LEADER, Uuid
from penstock.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

METADATA_VERSION = "metadata.version"
NO_LEADER_CHANGE = -2


class ResourceType(IntEnum):
    """What a setting belongs to."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class PartitionState(NamedTuple):
    """One partition's replicas and leader."""

    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_leader_replicas: tuple[int, ...] = ()


class Topic:
    """A topic and its partitions, numbered from 0 without gaps."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[PartitionState] = []


class Broker(NamedTuple):
    """A registered broker. A fenced one leads nothing and takes no new replicas before others do."""

    registration: RegisterBrokerRecord
    fenced: bool
    in_controlled_shutdown: bool = False

    @property
    def broker_id(self) -> int:
        """The broker's node id."""
        return self.registration.broker_id

    def endpoint(self, listener_name: str) -> tuple[str, int] | None:
        """The advertised host and port of one listener."""
        for endpoint in self.registration.end_points:
            if endpoint.name == listener_name:
                return endpoint.host, endpoint.port
        return None


class UnknownRecord(Exception):
    """The log holds a record that this version of Penstock cannot replay."""


class Image:
    """All cluster metadata up to one offset of the log."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[Uuid, Topic] = {}
        self.brokers: dict[int, Broker] = {}
        self.controllers: dict[int, RegisterControllerRecord] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0

    def replay(self, record: Any) -> None:
        """Take one record of the log into the image."""
        apply = _REPLAY.get(type(record))
        if apply is None:
            raise UnknownRecord(f"cannot replay a {type(record).__name__}; a newer Penstock or Kafka wrote this log")
        apply(self, record)

    def overrides(self, kind: ResourceType, name: str) -> dict[str, str]:
        """The settings made on one resource; empty when none were."""
        return self.configs.get((kind, name), {})

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """One partition's state, or None when there is no such partition."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def partition_count(self) -> int:
        """How many partitions the cluster has."""
        return sum(len(topic.partitions) for topic in self.topics.values())

    def snapshot(self) -> Iterator[Any]:
        """The records that rebuild this image."""
        # Features come first: they say how what follows is to be read.
        for name, level in sorted(self.features.items()):
            yield FeatureLevelRecord(name=name, feature_level=level)
        yield from self.controllers.values()
        for broker in self.brokers.values():
            yield broker.registration._replace(
                fenced=broker.fenced, in_controlled_shutdown=broker.in_controlled_shutdown
            )
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for index, state in enumerate(topic.partitions):
                yield partition_record(topic.topic_id, index, state)
        for (kind, name), settings in self.configs.items():
            for key, value in settings.items():
                yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        if self.next_producer_id:
            yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)

    # One function a record.

    def _topic(self, record: TopicRecord) -> None:
        topic = Topic(record.name, record.topic_id)
        self.topics[record.name] = topic
        self.topics_by_id[record.topic_id] = topic

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        self.configs.pop((ResourceType.TOPIC, topic.name), None)

    def _partition(self, record: PartitionRecord) -> None:
        partitions = self.topics_by_id[record.topic_id].partitions
        state = PartitionState(
            replicas=tuple(record.replicas),
            in_sync_replicas=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            leader_recovery_state=record.leader_recovery_state,
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_leader_replicas=tuple(record.last_known_elr or ()),
        )
        if record.partition_id < len(partitions):
            partitions[record.partition_id] = state
        else:
            assert record.partition_id == len(partitions), "partitions are numbered without gaps"
            partitions.append(state)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self.topics_by_id[record.topic_id].partitions
        old = partitions[record.partition_id]
        changes: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
        for source, target in _CHANGED_LISTS.items():
            value = getattr(record, source)
            if value is not None:
                changes[target] = tuple(value)
        if record.leader != NO_LEADER_CHANGE:
            changes["leader"] = record.leader
            changes["leader_epoch"] = old.leader_epoch + 1
        if record.leader_recovery_state != -1:
            changes["leader_recovery_state"] = record.leader_recovery_state
        partitions[record.partition_id] = old._replace(**changes)

    def _config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        settings = self.configs.setdefault(key, {})
        if record.value is None:
            settings.pop(record.name, None)
            if not settings:
                del self.configs[key]
        else:
            settings[record.name] = record.value

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = Broker(record, record.fenced, record.in_controlled_shutdown)

    def _broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers[record.broker_id]
        fenced = {1: True, -1: False}.get(record.fenced, broker.fenced)
        shutting_down = broker.in_controlled_shutdown or record.in_controlled_shutdown == 1
        registration = broker.registration
        if record.log_dirs:
            registration = registration._replace(log_dirs=record.log_dirs)
        self.brokers[record.broker_id] = Broker(registration, fenced, shutting_down)

    def _fence_broker(self, record: FenceBrokerRecord) -> None:
        self.brokers[record.id] = self.brokers[record.id]._replace(fenced=True)

    def _unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self.brokers[record.id] = self.brokers[record.id]._replace(fenced=False)

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _no_op(self, record: NoOpRecord) -> None:
        """Holds an offset, says nothing."""


_CHANGED_LISTS = {
    "isr": "in_sync_replicas",
    "replicas": "replicas",
    "removing_replicas": "removing_replicas",
    "adding_replicas": "adding_replicas",
    "directories": "directories",
    "eligible_leader_replicas": "eligible_leader_replicas",
    "last_known_elr": "last_known_leader_replicas",
}

_REPLAY: dict[type, Callable[[Image, Any], None]] = {
    TopicRecord: Image._topic,
    RemoveTopicRecord: Image._remove_topic,
    PartitionRecord: Image._partition,
    PartitionChangeRecord: Image._partition_change,
    ConfigRecord: Image._config,
    RegisterBrokerRecord: Image._register_broker,
    BrokerRegistrationChangeRecord: Image._broker_change,
    FenceBrokerRecord: Image._fence_broker,
    UnfenceBrokerRecord: Image._unfence_broker,
    UnregisterBrokerRecord: Image._unregister_broker,
    RegisterControllerRecord: Image._register_controller,
    FeatureLevelRecord: Image._feature,
    ProducerIdsRecord: Image._producer_ids,
    NoOpRecord: Image._no_op,
}


def partition_record(topic_id: Uuid, partition: int, state: PartitionState) -> PartitionRecord:
    """The record that states one partition whole."""
    return PartitionRecord(
        partition_id=partition,
        topic_id=topic_id,
        replicas=state.replicas,
        isr=state.in_sync_replicas,
        removing_replicas=state.removing_replicas,
        adding_replicas=state.adding_replicas,
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=state.directories,
        eligible_leader_replicas=state.eligible_leader_replicas or None,
        last_known_elr=state.last_known_leader_replicas or None,
    )


def new_partition(
    replicas: tuple[int, ...], in_sync_replicas: tuple[int, ...], directories: tuple[Uuid, ...]
) -> PartitionState:
    """A partition's first state: led by its first in-sync replica."""
    return PartitionState(
        replicas=replicas,
        in_sync_replicas=in_sync_replicas,
        leader=in_sync_replicas[0] if in_sync_replicas else NO_LEADER,
        leader_epoch=0,
        partition_epoch=0,
        directories=directories,
    )
