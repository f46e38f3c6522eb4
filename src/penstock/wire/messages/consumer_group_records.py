"""Messages of the group family.

Generated from definitions/consumer_group_records.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class ConsumerGroupMetadataKey(NamedTuple):
    """Version 0."""

    group_id: str = ""


class ConsumerGroupMetadataValue(NamedTuple):
    """Version 0, flexible from 0."""

    epoch: int = 0
    metadata_hash: int = 0


class ConsumerGroupPartitionMetadataKey(NamedTuple):
    """Version 0."""

    group_id: str = ""


class PartitionMetadata(NamedTuple):
    partition: int = 0
    racks: Sequence[str] = ()


class TopicMetadata(NamedTuple):
    topic_id: bytes = ZERO_UUID
    topic_name: str = ""
    num_partitions: int = 0
    partition_metadata: Sequence[PartitionMetadata] = ()


class ConsumerGroupPartitionMetadataValue(NamedTuple):
    """Version 0, flexible from 0."""

    topics: Sequence[TopicMetadata] = ()


class ConsumerGroupMemberMetadataKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    member_id: str = ""


class ClassicProtocol(NamedTuple):
    name: str = ""
    metadata: bytes = b""


class ClassicMemberMetadata(NamedTuple):
    session_timeout_ms: int = 0
    supported_protocols: Sequence[ClassicProtocol] = ()


class ConsumerGroupMemberMetadataValue(NamedTuple):
    """Version 0, flexible from 0."""

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Sequence[str] = ()
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = ""
    classic_member_metadata: ClassicMemberMetadata | None = ClassicMemberMetadata()


class ConsumerGroupTargetAssignmentMetadataKey(NamedTuple):
    """Version 0."""

    group_id: str = ""


class ConsumerGroupTargetAssignmentMetadataValue(NamedTuple):
    """Version 0, flexible from 0."""

    assignment_epoch: int = 0
    assignment_timestamp: int = 0


class ConsumerGroupTargetAssignmentMemberKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    member_id: str = ""


class TopicPartition(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class ConsumerGroupTargetAssignmentMemberValue(NamedTuple):
    """Version 0, flexible from 0."""

    topic_partitions: Sequence[TopicPartition] = ()


class ConsumerGroupCurrentMemberAssignmentKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    member_id: str = ""


class TopicPartitions(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()
    assignment_epochs: Sequence[int] | None = ()


class ConsumerGroupCurrentMemberAssignmentValue(NamedTuple):
    """Version 0, flexible from 0."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: Sequence[TopicPartitions] = ()
    partitions_pending_revocation: Sequence[TopicPartitions] = ()


class ConsumerGroupRegularExpressionKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    regular_expression: str = ""


class ConsumerGroupRegularExpressionValue(NamedTuple):
    """Version 0, flexible from 0."""

    topics: Sequence[str] = ()
    version: int = 0
    timestamp: int = 0
