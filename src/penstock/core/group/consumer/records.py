"""The records that a consumer group writes, all of version 0."""

from __future__ import annotations

from penstock.core.group.assignors.contract import Partitions, rows_of
from penstock.core.group.consumer.members import ConsumerMember
from penstock.core.group.contract import Record
from penstock.core.group.modern.records import RecordKeys
from penstock.core.group.subscription.topics import ResolvedRegex
from penstock.wire.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)

KEYS: RecordKeys[ConsumerMember] = RecordKeys(
    ConsumerGroupMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
member_record = KEYS.member_record
assignment_record = KEYS.assignment_record
member_tombstones = KEYS.member_tombstones


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    """The group's epoch, and the hash of its topics' metadata at that time."""
    return Record(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))


def target_epoch_record(group_id: str, epoch: int) -> Record:
    """The group epoch that the target assignment belongs to. It follows the target records that changed."""
    return Record(ConsumerGroupTargetAssignmentMetadataKey(group_id), ConsumerGroupTargetAssignmentMetadataValue(epoch))


def target_record(group_id: str, member_id: str, target: Partitions) -> Record:
    """A member's target assignment."""
    return Record(
        ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
        ConsumerGroupTargetAssignmentMemberValue([TopicPartition(*row) for row in rows_of(target)]),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> Record:
    """The topics that a pattern matched."""
    return Record(
        ConsumerGroupRegularExpressionKey(group_id, regex),
        ConsumerGroupRegularExpressionValue(sorted(resolved.topics), resolved.version, resolved.timestamp_ms),
    )


def regex_tombstone(group_id: str, regex: str) -> Record:
    """No member subscribes to the pattern any more."""
    return Record(ConsumerGroupRegularExpressionKey(group_id, regex), None)


def partition_metadata_tombstone(group_id: str) -> Record:
    """Removes what Kafka before 4.1 wrote about a group's topics; the metadata hash took its place."""
    return Record(ConsumerGroupPartitionMetadataKey(group_id), None)
