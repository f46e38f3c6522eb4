"""The cluster as the metadata log describes it: topics, partitions, brokers, settings, features, security.

`replay` is the only thing that changes an image; start-up and live traffic share it. `snapshot` yields the records that
rebuild the image from nothing, in an order in which they can be replayed.

A big cluster has far fewer different partition states than partitions, so equal states are one object: a million
partitions cost little more than a million references, and the garbage collector has little to traverse.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.core.metadata import links, security
from penstock.core.metadata.topic_names import folded
from penstock.model.ids import NO_LEADER, Uuid
from penstock.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
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
# The metadata version from which registrations say which directories are cordoned (KIP-1066).
CORDONED_DIRECTORIES_NEED = 30
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
NO_LEADER_CHANGE = -2

RECOVERED = 0
RECOVERING = 1

# Reserved directory ids that don't name a directory.
UNASSIGNED_DIRECTORY: Uuid = bytes(16)
LOST_DIRECTORY: Uuid = bytes(15) + b"\x01"
MIGRATING_DIRECTORY: Uuid = bytes(15) + b"\x02"

# Beyond this many, equal states are no longer shared; that only costs memory.
SHARED_STATES_MAX = 200_000


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
    leader_recovery_state: int = RECOVERED
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_leader_replicas: tuple[int, ...] = ()
    # A log that ends before this offset has to start from object storage before it leads, and keeps the state only of
    # producers with at least this id; see `restore`.
    restored_offset: int = 0
    kept_producer_id: int = 0

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, broker_id: int) -> Uuid:
        """The log directory of one replica, if known."""
        if broker_id in self.replicas and len(self.directories) == len(self.replicas):
            return self.directories[self.replicas.index(broker_id)]
        return UNASSIGNED_DIRECTORY


class Topic:
    """A topic and its partitions, numbered from 0 without gaps."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[PartitionState] = []


class Broker(NamedTuple):
    """A registered broker. A fenced one leads nothing and gets new replicas only if there are no others."""

    registration: RegisterBrokerRecord
    fenced: bool
    in_controlled_shutdown: bool = False

    @property
    def broker_id(self) -> int:
        """The broker's node id."""
        return self.registration.broker_id

    @property
    def epoch(self) -> int:
        """The epoch of this incarnation: the offset of its registration in the metadata log."""
        return self.registration.broker_epoch

    @property
    def active(self) -> bool:
        """Whether it may lead partitions and be in sync."""
        return not (self.fenced or self.in_controlled_shutdown)

    def has_online_directory(self, directory: Uuid) -> bool:
        """Whether a replica in `directory` can be served."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        online = self.registration.log_dirs
        return directory != LOST_DIRECTORY and (not online or directory in online)

    @property
    def is_cordoned(self) -> bool:
        """Whether every directory that works is cordoned, so that the broker gets no new replicas."""
        cordoned = self.registration.cordoned_log_dirs
        return bool(cordoned) and set(self.registration.log_dirs) <= set(cordoned or ())

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
        # By their names in metrics: two topics must not differ only in '.' and '_'.
        self.folded_names: dict[str, str] = {}
        # Topics by what comes before the first dot of their names, which may be a tenant.
        self.topics_by_prefix: dict[str, dict[str, Topic]] = {}
        self.brokers: dict[int, Broker] = {}
        self.controllers: dict[int, RegisterControllerRecord] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        # The groups that have settings, in order, so that those of one prefix are counted without looking at others.
        self.configured_groups: list[str] = []
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.security = security.SecurityState()
        self.links = links.LinkState()
        # How many partitions refer to each broker, so that no lookup scans a million partitions in vain.
        self.leader_counts: dict[int, int] = {}
        self.in_sync_counts: dict[int, int] = {}
        self.eligible_counts: dict[int, int] = {}
        self.not_preferred_count = 0
        # Usually few, and needed quickly. Dicts keep insertion order.
        self.leaderless: dict[tuple[Uuid, int], None] = {}
        self.reassigning: dict[tuple[Uuid, int], None] = {}
        self._states: dict[PartitionState, PartitionState] = {}
        self._tuples: dict[tuple[object, ...], tuple[object, ...]] = {}

    def replay(self, record: object) -> None:
        """Apply one record of the log."""
        apply = _REPLAY.get(type(record))
        if apply is None:
            secure = security.REPLAY.get(type(record))
            if secure is not None:
                secure(self.security, record)
                return
            link = links.REPLAY.get(type(record))
            if link is not None:
                link(self.links, record)
                return
            raise UnknownRecord(f"cannot replay a {type(record).__name__}; a newer Penstock or Kafka wrote this log")
        apply(self, record)

    def become(self, other: Image) -> None:
        """Take over the content of another image, which must not be used any more."""
        vars(self).clear()
        vars(self).update(vars(other))

    def default_directory(self, broker_id: int) -> Uuid:
        """The directory of a new replica: known if the broker has only one; a broker with several chooses itself."""
        broker = self.brokers.get(broker_id)
        if broker is None or len(broker.registration.log_dirs) != 1:
            return UNASSIGNED_DIRECTORY
        return broker.registration.log_dirs[0]

    def overrides(self, kind: ResourceType, name: str) -> dict[str, str]:
        """The settings of one resource; empty when it has none."""
        return self.configs.get((kind, name), {})

    def count_configured_groups(self, prefix: str) -> int:
        """How many groups whose names begin like this have settings."""
        first = bisect_left(self.configured_groups, prefix)
        size = len(prefix)
        return bisect_right(self.configured_groups, prefix, lo=first, key=lambda name: name[:size]) - first

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """One partition's state, or None when there is no such partition."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def state(self, topic_id: Uuid, partition: int) -> PartitionState:
        """The state of a partition that exists."""
        return self.topics_by_id[topic_id].partitions[partition]

    def partition_count(self) -> int:
        """How many partitions the cluster has."""
        return sum(len(topic.partitions) for topic in self.topics.values())

    @property
    def cordoned_directories_enabled(self) -> bool:
        """Whether every node can read which directories are cordoned."""
        return self.features.get(METADATA_VERSION, 0) >= CORDONED_DIRECTORIES_NEED

    @property
    def eligible_leader_replicas_enabled(self) -> bool:
        """Whether replicas that left the ISR below its minimum are remembered as safe leaders (KIP-966)."""
        return self.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0

    def snapshot(self) -> Iterator[object]:
        """The records that rebuild this image."""
        # Features come first: they say how to read what follows.
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
        yield from self.security.snapshot()
        yield from self.links.snapshot()

    # One function per record type.

    def _topic(self, record: TopicRecord) -> None:
        topic = Topic(record.name, record.topic_id)
        self.topics[record.name] = topic
        self.topics_by_id[record.topic_id] = topic
        alike = folded(record.name)
        if alike is not None:
            self.folded_names[alike] = record.name
        prefix, dot, _ = record.name.partition(".")
        if dot:
            self.topics_by_prefix.setdefault(prefix, {})[record.name] = topic

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        self.links.forget_topic(record.topic_id)
        for index, state in enumerate(topic.partitions):
            self._count(state, -1)
            self.leaderless.pop((topic.topic_id, index), None)
            self.reassigning.pop((topic.topic_id, index), None)
        del self.topics[topic.name]
        self.folded_names.pop(folded(topic.name) or "", None)
        prefix, dot, _ = topic.name.partition(".")
        if dot:
            siblings = self.topics_by_prefix[prefix]
            del siblings[topic.name]
            if not siblings:
                del self.topics_by_prefix[prefix]
        self.configs.pop((ResourceType.TOPIC, topic.name), None)

    def _partition(self, record: PartitionRecord) -> None:
        partitions = self.topics_by_id[record.topic_id].partitions
        replicas = self._shared(record.replicas)
        state = PartitionState(
            replicas,
            self._shared(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            self._shared(record.directories),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            record.leader_recovery_state,
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            record.restored_offset,
            record.kept_producer_id,
        )
        index = record.partition_id
        if index < len(partitions):
            self._put(record.topic_id, partitions, index, state)
            return
        assert index == len(partitions), "partitions are numbered without gaps"
        state = self._states.setdefault(state, state)
        partitions.append(state)
        self._count(state, 1)
        self._note(record.topic_id, index, state)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self.topics_by_id[record.topic_id].partitions
        old = partitions[record.partition_id]
        self._put(record.topic_id, partitions, record.partition_id, changed_state(old, record))

    def _clear_eligible(self, record: ClearElrRecord) -> None:
        for topic in [self.topics[record.topic_name]] if record.topic_name else list(self.topics.values()):
            for index, old in enumerate(topic.partitions):
                if old.eligible_leader_replicas or old.last_known_leader_replicas:
                    change = PartitionChangeRecord(eligible_leader_replicas=(), last_known_elr=())
                    self._put(topic.topic_id, topic.partitions, index, changed_state(old, change))

    def _put(self, topic_id: Uuid, partitions: list[PartitionState], index: int, state: PartitionState) -> None:
        old = partitions[index]
        state = self._states.setdefault(state, state)
        if len(self._states) > SHARED_STATES_MAX:
            self._states.clear()
        partitions[index] = state
        self._recount(old, state)
        if old.leader < 0:
            self.leaderless.pop((topic_id, index), None)
        if old.adding_replicas or old.removing_replicas:
            self.reassigning.pop((topic_id, index), None)
        self._note(topic_id, index, state)

    def _recount(self, old: PartitionState, new: PartitionState) -> None:
        """Like `_count` with the old state removed and the new one added; most changes touch little of it."""
        if old.leader != new.leader or old.replicas != new.replicas:
            self.leader_counts[old.leader] -= 1
            self.leader_counts[new.leader] = self.leader_counts.get(new.leader, 0) + 1
            self.not_preferred_count += ((new.leader,) != new.replicas[:1]) - ((old.leader,) != old.replicas[:1])
        if old.in_sync_replicas != new.in_sync_replicas:
            _count_replicas(self.in_sync_counts, old.in_sync_replicas, new.in_sync_replicas)
        if old.eligible_leader_replicas != new.eligible_leader_replicas:
            _count_replicas(self.eligible_counts, old.eligible_leader_replicas, new.eligible_leader_replicas)

    def _note(self, topic_id: Uuid, index: int, state: PartitionState) -> None:
        if state.leader < 0:
            self.leaderless[topic_id, index] = None
        if state.adding_replicas or state.removing_replicas:
            self.reassigning[topic_id, index] = None

    def _count(self, state: PartitionState, step: int) -> None:
        """Count the brokers that a partition refers to when it is added (1) or removed (-1)."""
        self.leader_counts[state.leader] = self.leader_counts.get(state.leader, 0) + step
        self.not_preferred_count += step * ((state.leader,) != state.replicas[:1])
        for counts, replicas in (
            (self.in_sync_counts, state.in_sync_replicas),
            (self.eligible_counts, state.eligible_leader_replicas),
        ):
            for broker_id in replicas:
                counts[broker_id] = counts.get(broker_id, 0) + step

    def _shared(self, values: Any) -> tuple[Any, ...]:
        found = tuple(values)
        return self._tuples.setdefault(found, found)

    def _config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        had_any = key in self.configs
        settings = self.configs.setdefault(key, {})
        if record.value is None:
            settings.pop(record.name, None)
            if not settings:
                del self.configs[key]
        else:
            settings[record.name] = record.value
        if record.resource_type == ResourceType.GROUP and had_any != bool(settings):
            position = bisect_left(self.configured_groups, record.resource_name)
            if had_any:
                del self.configured_groups[position]
            else:
                self.configured_groups.insert(position, record.resource_name)

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = Broker(record, record.fenced, record.in_controlled_shutdown)

    def _broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers[record.broker_id]
        fenced = {1: True, -1: False}.get(record.fenced, broker.fenced)
        shutting_down = broker.in_controlled_shutdown or record.in_controlled_shutdown == 1
        registration = broker.registration
        if record.log_dirs:
            registration = registration._replace(log_dirs=record.log_dirs)
        if record.cordoned_log_dirs is not None:
            registration = registration._replace(cordoned_log_dirs=record.cordoned_log_dirs)
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
        # A feature that is turned off stays in the map: one without a record has a default level.
        self.features[record.name] = record.feature_level

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _no_op(self, record: NoOpRecord) -> None:
        """Takes up an offset and changes nothing."""


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
    ClearElrRecord: Image._clear_eligible,
}


def _count_replicas(counts: dict[int, int], old: tuple[int, ...], new: tuple[int, ...]) -> None:
    for broker_id in old:
        if broker_id not in new:
            counts[broker_id] -= 1
    for broker_id in new:
        if broker_id not in old:
            counts[broker_id] = counts.get(broker_id, 0) + 1


def changed_state(old: PartitionState, change: PartitionChangeRecord) -> PartitionState:
    """A partition after a change. Naming a leader starts a new leader epoch, even when it is the same one."""
    led = change.leader != NO_LEADER_CHANGE
    recovery = change.leader_recovery_state
    eligible, last_known = change.eligible_leader_replicas, change.last_known_elr
    return PartitionState(
        old.replicas if change.replicas is None else tuple(change.replicas),
        old.in_sync_replicas if change.isr is None else tuple(change.isr),
        change.leader if led else old.leader,
        old.leader_epoch + led,
        old.partition_epoch + 1,
        old.directories if change.directories is None else tuple(change.directories),
        old.removing_replicas if change.removing_replicas is None else tuple(change.removing_replicas),
        old.adding_replicas if change.adding_replicas is None else tuple(change.adding_replicas),
        old.leader_recovery_state if recovery == -1 else recovery,
        old.eligible_leader_replicas if eligible is None else tuple(eligible),
        old.last_known_leader_replicas if last_known is None else tuple(last_known),
        old.restored_offset,
        old.kept_producer_id,
    )


def partition_record(topic_id: Uuid, partition: int, state: PartitionState) -> PartitionRecord:
    """The record with the whole state of one partition."""
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
        restored_offset=state.restored_offset,
        kept_producer_id=state.kept_producer_id,
    )


def new_partition(
    replicas: tuple[int, ...], in_sync_replicas: tuple[int, ...], directories: tuple[Uuid, ...]
) -> PartitionState:
    """A partition's initial state: led by its first in-sync replica."""
    return PartitionState(
        replicas=replicas,
        in_sync_replicas=in_sync_replicas,
        leader=in_sync_replicas[0] if in_sync_replicas else NO_LEADER,
        leader_epoch=0,
        partition_epoch=0,
        directories=directories,
    )
