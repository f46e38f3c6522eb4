"""Messages of the group family.

Generated from definitions/share_group_records.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class ShareGroupMemberMetadataKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    member_id: str = ""


class ShareGroupMemberMetadataValue(NamedTuple):
    """Version 0, flexible from 0."""

    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Sequence[str] = ()


class ShareGroupMetadataKey(NamedTuple):
    """Version 0."""

    group_id: str = ""


class ShareGroupMetadataValue(NamedTuple):
    """Version 0, flexible from 0."""

    epoch: int = 0
    metadata_hash: int = 0


class ShareGroupTargetAssignmentMetadataKey(NamedTuple):
    """Version 0."""

    group_id: str = ""


class ShareGroupTargetAssignmentMetadataValue(NamedTuple):
    """Version 0, flexible from 0."""

    assignment_epoch: int = 0
    assignment_timestamp: int = 0


class ShareGroupTargetAssignmentMemberKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    member_id: str = ""


class TopicPartition(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class ShareGroupTargetAssignmentMemberValue(NamedTuple):
    """Version 0, flexible from 0."""

    topic_partitions: Sequence[TopicPartition] = ()


class ShareGroupCurrentMemberAssignmentKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    member_id: str = ""


class TopicPartitions(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class ShareGroupCurrentMemberAssignmentValue(NamedTuple):
    """Version 0, flexible from 0."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: Sequence[TopicPartitions] = ()


class ShareGroupStatePartitionMetadataKey(NamedTuple):
    """Version 0."""

    group_id: str = ""


class TopicPartitionsInfo(NamedTuple):
    topic_id: bytes = ZERO_UUID
    topic_name: str = ""
    partitions: Sequence[int] = ()


class TopicInfo(NamedTuple):
    topic_id: bytes = ZERO_UUID
    topic_name: str = ""


class ShareGroupStatePartitionMetadataValue(NamedTuple):
    """Version 0, flexible from 0."""

    initializing_topics: Sequence[TopicPartitionsInfo] = ()
    initialized_topics: Sequence[TopicPartitionsInfo] = ()
    deleting_topics: Sequence[TopicInfo] = ()
