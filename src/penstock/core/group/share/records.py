"""The records that a share group writes, all of version 0."""

from __future__ import annotations

from penstock.core.group.assignors.contract import Partitions, rows_of
from penstock.core.group.contract import Record, Topics
from penstock.core.group.modern.records import RecordKeys
from penstock.core.group.share.members import ShareMember
from penstock.core.group.share.partitions import SharePartitions
from penstock.wire.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartition,
    TopicPartitionsInfo,
)

# The name that Kafka writes for a topic that no longer exists.
UNKNOWN_TOPIC = "<UNKNOWN>"

KEYS: RecordKeys[ShareMember] = RecordKeys(
    ShareGroupMetadataKey,
    ShareGroupMemberMetadataKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
member_record = KEYS.member_record
assignment_record = KEYS.assignment_record
member_tombstones = KEYS.member_tombstones


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """The group's epoch, and the hash of its topics' metadata at that time."""
    return Record(ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash))


def target_epoch_record(group_id: str, epoch: int) -> Record:
    """The group epoch that the target assignment belongs to. It follows the target records that changed."""
    return Record(ShareGroupTargetAssignmentMetadataKey(group_id), ShareGroupTargetAssignmentMetadataValue(epoch))


def target_record(group_id: str, member_id: str, target: Partitions) -> Record:
    """A member's target assignment."""
    return Record(
        ShareGroupTargetAssignmentMemberKey(group_id, member_id),
        ShareGroupTargetAssignmentMemberValue([TopicPartition(*row) for row in rows_of(target)]),
    )


def state_record(group_id: str, partitions: SharePartitions, topics: Topics) -> Record:
    """The share-partitions of the group."""

    def rows(found: Partitions) -> list[TopicPartitionsInfo]:
        return [
            TopicPartitionsInfo(topic_id, topics.topic_name(topic_id) or UNKNOWN_TOPIC, numbers)
            for topic_id, numbers in rows_of(found)
        ]

    value = ShareGroupStatePartitionMetadataValue(
        rows(partitions.initializing),
        rows(partitions.initialized),
        [TopicInfo(topic_id, topics.topic_name(topic_id) or UNKNOWN_TOPIC) for topic_id in sorted(partitions.deleting)],
    )
    return Record(ShareGroupStatePartitionMetadataKey(group_id), value)
