"""Why a broker does not serve a partition, in Kafka's errors; and when it ceases to."""

from __future__ import annotations

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import StorageError


def unknown_partition(topic: str, partition: int) -> ApiError:
    """The metadata has no such partition."""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of a topic {topic!r}")


def not_served(name: TopicPartition, failure: StorageError | None) -> ApiError:
    """The partition exists; its replica here is offline, or another broker leads it."""
    if failure is not None:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is offline on this broker: {failure}")
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {name}")


def note_read_failure(partition: Partition, error: ApiError) -> None:
    """If it was the disk's fault, its directory goes offline, so that other brokers lead what is in it."""
    if isinstance(error, StorageError) and error.is_disk_failure:
        partition.on_failure(error)
