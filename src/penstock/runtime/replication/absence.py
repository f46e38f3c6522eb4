"""Why a broker does not serve a partition, in Kafka's errors."""

from __future__ import annotations

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.storage.files import StorageError


def unknown_partition(topic: str, partition: int) -> ApiError:
    """The metadata has no such partition."""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of a topic {topic!r}")


def not_served(name: TopicPartition, failure: StorageError | None) -> ApiError:
    """The partition exists; its replica here is offline, or another broker leads it."""
    if failure is not None:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is offline on this broker: {failure}")
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {name}")
