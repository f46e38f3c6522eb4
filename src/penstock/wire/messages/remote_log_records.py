"""Messages of the remote-log family.

Generated from definitions/remote_log_records.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class TopicIdPartitionEntry(NamedTuple):
    name: str = ""
    id: bytes = ZERO_UUID
    partition: int = 0


class RemoteLogSegmentIdEntry(NamedTuple):
    topic_id_partition: TopicIdPartitionEntry = TopicIdPartitionEntry()
    id: bytes = ZERO_UUID


class SegmentLeaderEpochEntry(NamedTuple):
    leader_epoch: int = 0
    offset: int = 0


class RemoteLogSegmentMetadataRecord(NamedTuple):
    """Version 0, flexible from 0."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = RemoteLogSegmentIdEntry()
    start_offset: int = 0
    end_offset: int = 0
    broker_id: int = 0
    max_timestamp_ms: int = 0
    event_timestamp_ms: int = 0
    segment_leader_epochs: Sequence[SegmentLeaderEpochEntry] = ()
    segment_size_in_bytes: int = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int = 0
    txn_index_empty: bool = False


class RemoteLogSegmentMetadataUpdateRecord(NamedTuple):
    """Version 0, flexible from 0."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = RemoteLogSegmentIdEntry()
    broker_id: int = 0
    event_timestamp_ms: int = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int = 0


class RemotePartitionDeleteMetadataRecord(NamedTuple):
    """Version 0, flexible from 0."""

    topic_id_partition: TopicIdPartitionEntry = TopicIdPartitionEntry()
    broker_id: int = 0
    event_timestamp_ms: int = 0
    remote_partition_delete_state: int = 0


class RemoteLogSegmentMetadataSnapshotRecord(NamedTuple):
    """Version 0, flexible from 0."""

    segment_id: bytes = ZERO_UUID
    start_offset: int = 0
    end_offset: int = 0
    broker_id: int = 0
    max_timestamp_ms: int = 0
    event_timestamp_ms: int = 0
    segment_leader_epochs: Sequence[SegmentLeaderEpochEntry] = ()
    segment_size_in_bytes: int = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int = 0
    txn_index_empty: bool = False
