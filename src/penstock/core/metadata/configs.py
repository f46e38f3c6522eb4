"""Changes of settings, and what they mean for elections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.metadata.features import ALL_BROKERS
from penstock.core.metadata.image import Image, ResourceType
from penstock.core.metadata.rules import MIN_INSYNC_REPLICAS
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.metadata_records import ClearElrRecord, ConfigRecord, PartitionChangeRecord


def change_configs(image: Image, kind: ResourceType, name: str, after: Mapping[str, str]) -> list[Any]:
    """The records that make a resource's settings what `after` says; raises INVALID_CONFIG for what cannot be."""
    before = image.overrides(kind, name)
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    records: list[Any] = [ConfigRecord(kind, name, key, after.get(key)) for key in changed]
    if MIN_INSYNC_REPLICAS in changed and image.eligible_leader_replicas_enabled:
        if kind is ResourceType.TOPIC:
            records += clear_eligible(image, name)
        elif kind is ResourceType.BROKER:
            _check_minimum(name, after)
            records += clear_eligible(image)
    return records


def _check_minimum(name: str, after: Mapping[str, str]) -> None:
    problem = ""
    if name != ALL_BROKERS and MIN_INSYNC_REPLICAS in after:
        problem = "it must be the same for all brokers; set it as the cluster's default"
    elif name == ALL_BROKERS and MIN_INSYNC_REPLICAS not in after:
        problem = "elections depend on it, so the cluster's default cannot be taken away; set another value"
    if problem:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{MIN_INSYNC_REPLICAS}: {problem}")


def clear_eligible(image: Image, topic_name: str = "") -> list[Any]:
    """The records after which no replica is eligible because of another minimum than the present one.

    A partition whose ISR is empty commits nothing, so its eligible replicas stay the ones to trust.
    """
    topics = [image.topics[topic_name]] if topic_name else list(image.topics.values())
    if not topic_name and not any(image.eligible_counts.values()) and not image.leaderless:
        return []
    affected = [
        (topic.topic_id, index, state)
        for topic in topics
        for index, state in enumerate(topic.partitions)
        if state.eligible_leader_replicas or state.last_known_leader_replicas
    ]
    if all(state.in_sync_replicas for _, _, state in affected):
        return [ClearElrRecord(topic_name=topic_name)] if affected else []
    return [
        PartitionChangeRecord(index, topic_id, eligible_leader_replicas=(), last_known_elr=())
        for topic_id, index, state in affected
        if state.in_sync_replicas
    ]
