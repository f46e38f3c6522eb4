"""The decision to bring back topics of a lost cluster from object storage.

A restored topic has its old id. Its partitions begin in a leader epoch that is higher than all in the tier, and where
the tier ends: a replica whose log ends before that has lost it, or never had it, and starts from the tier before it
leads. Producers of the lost cluster keep their state, so their ids are not given out again; if the new cluster has
already given some out, the state under those ids is dropped, as it would belong to another producer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.core.metadata.image import Image
from penstock.core.metadata.result import Result
from penstock.core.metadata.topic_names import REMOTE_STORAGE_ENABLE, folded
from penstock.core.metadata.topics import (
    PARTITIONS_PER_REQUEST_MAX,
    Admit,
    NewTopic,
    PlaceReplicas,
    check_new_topic,
    new_partition_records,
    topic_records,
)
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import METADATA_TOPIC_ID, ZERO_UUID, Uuid, format_uuid
from penstock.wire.messages.metadata_records import ProducerIdsRecord


class RestoredPartition(NamedTuple):
    """Where the tier ends, and the leader epoch to begin with."""

    restored_offset: int
    leader_epoch: int


class RestoredTopic(NamedTuple):
    """A topic as the bucket describes it."""

    name: str
    topic_id: Uuid
    replication_factor: int
    partitions: Sequence[RestoredPartition]
    configs: Mapping[str, str]


class RestoreOutcome(NamedTuple):
    """The result for one topic. `kept_producer_id` is the lowest id of a producer that keeps its state."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    kept_producer_id: int = 0


def restore_topics(
    image: Image,
    wanted: Sequence[RestoredTopic],
    next_producer_id: int,
    place: PlaceReplicas,
    check_configs: Callable[[Mapping[str, str]], None],
    admit: Admit,
) -> Result[list[RestoreOutcome]]:
    """Decide on a RestoreTopics request; new producers get ids from `next_producer_id` on."""
    records: list[object] = []
    outcomes = []
    taken: set[Uuid] = set()
    names: set[str] = set()
    added: dict[str, str] = {}
    kept_producer_id = image.next_producer_id
    for topic in wanted:
        try:
            if topic.name in names or topic.topic_id in taken:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the request names it twice")
            configs = _check(image, topic, added)
            check_configs(configs)
            replicas = place(len(topic.partitions), topic.replication_factor)
            admit(topic.name, len(replicas), len(replicas[0]), configs)
            partitions = [
                record._replace(
                    leader_epoch=one.leader_epoch,
                    restored_offset=one.restored_offset,
                    kept_producer_id=kept_producer_id,
                )
                for record, one in zip(
                    new_partition_records(image, topic.topic_id, 0, replicas), topic.partitions, strict=True
                )
            ]
        except ApiError as error:
            outcomes.append(RestoreOutcome(topic.name, error.code, error.message))
            continue
        records += topic_records(topic.name, topic.topic_id, partitions, configs)
        added[folded(topic.name) or topic.name] = topic.name
        names.add(topic.name)
        taken.add(topic.topic_id)
        outcomes.append(RestoreOutcome(topic.name, kept_producer_id=kept_producer_id))
    if records and next_producer_id > image.next_producer_id:
        records.append(ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=next_producer_id))
    return Result(records, outcomes)


def _check(image: Image, topic: RestoredTopic, added: Mapping[str, str]) -> dict[str, str]:
    """The settings of a topic that may come back."""
    if topic.topic_id in image.topics_by_id or topic.topic_id in (ZERO_UUID, METADATA_TOPIC_ID):
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"a topic has the id {format_uuid(topic.topic_id)} already")
    configs = check_new_topic(image, added, NewTopic(topic.name, configs=topic.configs))
    if configs.get(REMOTE_STORAGE_ENABLE) != "true":
        raise ApiError(ErrorCode.INVALID_CONFIG, f"a topic without {REMOTE_STORAGE_ENABLE} cannot be restored")
    if not 0 < len(topic.partitions) <= PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"a topic cannot have {len(topic.partitions)} partitions")
    if any(one.restored_offset < 0 or one.leader_epoch < 0 for one in topic.partitions):
        raise ApiError(ErrorCode.INVALID_REQUEST, "offsets and leader epochs are not negative")
    return configs
