"""Decisions about topics: create, delete, add partitions.

Each function reads the image and returns records and a response; it changes nothing itself. An error only affects its
own topic, never the others of a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.core.metadata.image import (
    Image,
    PartitionState,
    ResourceType,
    Topic,
    new_partition,
    partition_record,
)
from penstock.core.metadata.result import Result
from penstock.core.metadata.tenants import TenantRoom
from penstock.core.metadata.topic_names import (
    FIXED_PARTITIONS,
    METADATA_TOPIC,
    check_tierable,
    check_topic_name,
    folded,
)
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid
from penstock.wire.messages.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

# Kafka's limit on what one request may create, so that one record batch of the log can hold it.
PARTITIONS_PER_REQUEST_MAX = 10_000

PlaceReplicas = Callable[[int, int], Sequence[tuple[int, ...]]]
# Called with a new topic's name, partitions, replication factor and settings; raises ApiError to refuse it.
Admit = Callable[[str, int, int, Mapping[str, str]], None]


class NewTopic(NamedTuple):
    """A requested topic; -1 stands for the cluster's default, `assignments` names the brokers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}


class TopicDefaults(NamedTuple):
    """What a topic gets where the request leaves it open."""

    partitions: int
    replication_factor: int


class TopicOutcome(NamedTuple):
    """The result for one topic of a request."""

    name: str
    topic_id: Uuid = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


def create_topics(
    image: Image,
    wanted: Sequence[NewTopic],
    defaults: TopicDefaults,
    place: PlaceReplicas,
    check_configs: Callable[[Mapping[str, str]], None],
    new_id: Callable[[], Uuid],
    admit: Admit,
    partitions_max: int = PARTITIONS_PER_REQUEST_MAX,
) -> Result[list[TopicOutcome]]:
    """Decide on a CreateTopics request, which may create so many partitions.

    `place(partitions, replication_factor)` chooses brokers.
    """
    records: list[object] = []
    times_named = Counter(topic.name for topic in wanted)
    # In order, and quick to look up: all may be there twice.
    twice = dict.fromkeys(name for name, times in times_named.items() if times > 1)
    outcomes = [
        TopicOutcome(name, error=ErrorCode.INVALID_REQUEST, message="the request names it twice") for name in twice
    ]
    added: dict[str, str] = {}
    budget = partitions_max
    room = TenantRoom(image)
    for topic in wanted:
        if topic.name in twice:
            continue
        try:
            configs = check_new_topic(image, added, topic)
            check_configs(configs)
            replicas = _choose_replicas(image, topic, defaults, place, budget)
            admit(topic.name, len(replicas), len(replicas[0]), configs)
            created, outcome = _create_topic(image, topic.name, new_id(), replicas, configs)
            # Last, for a topic that is refused takes no room.
            room.take(topic.name, outcome.partitions, is_new=True)
        except ApiError as error:
            outcomes.append(TopicOutcome(topic.name, error=error.code, message=error.message))
            continue
        assert outcome.error is ErrorCode.NONE
        assert outcome.partitions == len(replicas) > 0
        assert topic.name not in image.topics
        records.extend(created)
        outcomes.append(outcome)
        added[folded(topic.name) or topic.name] = topic.name
        budget -= outcome.partitions
        assert budget >= 0, "one request creates no more than one batch of the log holds"
    return Result(records, outcomes)


def check_new_topic(image: Image, added: Mapping[str, str], topic: NewTopic) -> dict[str, str]:
    """The settings of a topic that may have its name."""
    check_topic_name(topic.name)
    if topic.name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} exists already")
    if topic.name == METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{METADATA_TOPIC} is the cluster's own log")
    alike = folded(topic.name)
    twin = None if alike is None else image.folded_names.get(alike) or added.get(alike)
    if twin is not None:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic.name!r} and the existing {twin!r} differ only in '.' and '_', which metrics cannot tell apart",
        )
    configs = {name: value for name, value in topic.configs.items() if value is not None}
    missing = sorted(set(topic.configs) - set(configs))
    if missing:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"no value was given for {', '.join(missing)}")
    check_tierable(topic.name, configs)
    return configs


def _create_topic(
    image: Image, name: str, topic_id: Uuid, replicas: Sequence[tuple[int, ...]], configs: Mapping[str, str]
) -> tuple[list[object], TopicOutcome]:
    records = topic_records(name, topic_id, new_partition_records(image, topic_id, 0, replicas), configs)
    return records, TopicOutcome(
        name, topic_id, partitions=len(replicas), replication_factor=len(replicas[0]), configs=configs
    )


def topic_records(
    name: str, topic_id: Uuid, partitions: Sequence[PartitionRecord], configs: Mapping[str, str]
) -> list[object]:
    """Everything that is recorded of a new topic."""
    settings = [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=key, value=value)
        for key, value in configs.items()
    ]
    return [TopicRecord(name=name, topic_id=topic_id), *partitions, *settings]


def _choose_replicas(
    image: Image, topic: NewTopic, defaults: TopicDefaults, place: PlaceReplicas, budget: int
) -> Sequence[tuple[int, ...]]:
    if topic.assignments:
        if topic.partitions != -1 or topic.replication_factor != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "give either the brokers of each partition or the numbers of partitions and replicas, not both",
            )
        if sorted(topic.assignments) != list(range(len(topic.assignments))):
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without gaps")
        _check_budget(len(topic.assignments), budget)
        chosen: Sequence[tuple[int, ...]] = [tuple(topic.assignments[index]) for index in range(len(topic.assignments))]
        _check_assignment(image, chosen, len(chosen[0]))
    else:
        partitions = defaults.partitions if topic.partitions == -1 else topic.partitions
        factor = defaults.replication_factor if topic.replication_factor == -1 else topic.replication_factor
        if partitions < 1:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions were asked for; at least 1 is needed"
            )
        _check_budget(partitions, budget)
        chosen = place(partitions, factor)
    return chosen


def _check_budget(partitions: int, budget: int) -> None:
    if partitions > budget:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"one request may create {PARTITIONS_PER_REQUEST_MAX} partitions; split it, or add partitions later",
        )


def _check_assignment(image: Image, replicas: Sequence[tuple[int, ...]], replication_factor: int) -> None:
    for index, brokers in enumerate(replicas):
        problem = ""
        unknown = sorted(set(brokers) - set(image.brokers))
        if not brokers:
            problem = f"partition {index} was given no broker"
        elif unknown:
            problem = f"partition {index} names broker {unknown[0]}, which is not registered"
        elif len(set(brokers)) != len(brokers):
            problem = f"partition {index} names a broker twice"
        elif len(brokers) != replication_factor:
            problem = f"partition {index} has {len(brokers)} replicas where partition 0 has {replication_factor}"
        if problem:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def new_partition_records(
    image: Image, topic_id: Uuid, first: int, replicas: Sequence[tuple[int, ...]]
) -> list[PartitionRecord]:
    """The records of new partitions, numbered from `first` on; raises ApiError if one would have no broker."""
    records = []
    for index, brokers in enumerate(replicas, first):
        active = tuple(broker for broker in brokers if image.brokers[broker].active)
        if not active:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"every broker of partition {index} is fenced or shutting down"
            )
        assert len(set(brokers)) == len(brokers), "a broker has one replica of a partition"
        assert set(active) <= set(brokers)
        directories = tuple(image.default_directory(broker) for broker in brokers)
        state: PartitionState = new_partition(tuple(brokers), active, directories)
        records.append(partition_record(topic_id, index, state))
    return records


def delete_topic(topic: Topic) -> list[object]:
    """The record that removes a topic with its partitions and settings."""
    return [RemoveTopicRecord(topic_id=topic.topic_id)]


def add_partitions(
    image: Image, name: str, total: int, assignments: Sequence[Sequence[int]] | None, place: PlaceReplicas
) -> list[PartitionRecord]:
    """The records that grow a topic to `total` partitions; raises ApiError when that is not possible."""
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    present = len(topic.partitions)
    if name in FIXED_PARTITIONS:
        text = (
            f"{name} keeps its {present} partitions: with more, brokers would look for its entries in others than now"
        )
        raise ApiError(ErrorCode.INVALID_PARTITIONS, text)
    if total <= present:
        again = "that number already" if total == present else f"{present}; partitions cannot be taken away"
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{total} partitions were asked for, and the topic has {again}")
    added = total - present
    if added > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"one request may create {PARTITIONS_PER_REQUEST_MAX} partitions")
    TenantRoom(image).take(name, added, is_new=False)
    assert 0 < added <= PARTITIONS_PER_REQUEST_MAX
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        replicas = place(added, factor)
    else:
        if len(assignments) != added:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partitions would be added, and brokers were given for {len(assignments)}",
            )
        replicas = [tuple(brokers) for brokers in assignments]
        _check_assignment(image, replicas, factor)
    assert len(replicas) == added
    assert all(len(brokers) == factor for brokers in replicas), "all partitions have one replication factor"
    return new_partition_records(image, topic.topic_id, present, replicas)
