"""Why a broker does not serve a partition, in Kafka's errors; and when it ceases to."""

from __future__ import annotations

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.replication.partition import Partition
from penstock.storage.files import CorruptLogError, StorageError


def unknown_partition(topic: str, partition: int) -> ApiError:
    """The metadata has no such partition."""
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of a topic {topic!r}")


def not_served(name: TopicPartition, failure: StorageError | None) -> ApiError:
    """The partition exists; its replica here is offline, or another broker leads it."""
    if failure is not None:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is offline on this broker: {failure}")
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {name}")


def note_read_failure(partition: Partition, error: ApiError) -> ErrorCode:
    """Act on a failed read: other brokers are to lead what a disk has lost or damaged. Returns the client's error.

    A consumer gives up after CORRUPT_MESSAGE, so it only gets that where no other replica can take over.
    """
    if isinstance(error, StorageError) and error.is_disk_failure:
        partition.on_failure(error)
    if isinstance(error, CorruptLogError):
        partition.on_damage(error)
        leading = partition.leading
        if leading is None or len(leading.in_sync_replicas) > 1:
            return ErrorCode.KAFKA_STORAGE_ERROR
    return error.code
