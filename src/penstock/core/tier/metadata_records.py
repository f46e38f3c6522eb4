"""The records of `__remote_log_metadata`, in Kafka's formats, and what replaying them makes of the partitions.

A record's value begins with the version of this framing, its type and its version, as unsigned varints; it has no key.
Records of all partitions that share a partition of the topic are replayed together.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.core.tier.segments import EpochStart, PartitionDeleteState, RemotePartition, RemoteSegment, SegmentState
from penstock.model.ids import Uuid
from penstock.wire.apis import remote_log_record
from penstock.wire.codec import decode, encode
from penstock.wire.messages.remote_log_records import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from penstock.wire.partitioner import partition_for_key
from penstock.wire.primitives import MalformedMessage

METADATA_TOPIC = "__remote_log_metadata"
_TYPES = {
    RemoteLogSegmentMetadataRecord: 0,
    RemoteLogSegmentMetadataUpdateRecord: 1,
    RemotePartitionDeleteMetadataRecord: 2,
}
# In a record's custom metadata: it is about a copy that is given up, and does not count if that was finished before.
_UNFINISHED = b"unfinished"
# In that of a copy that begins: its objects are not as they are on disk.
_SEALED = b"sealed"
_FRAMING = 1
_VERSION = 0
_HALVES = struct.Struct(">qq")


class TierKey(NamedTuple):
    """A partition by its topic's id."""

    topic_id: Uuid
    partition: int


def metadata_partition(key: TierKey, count: int) -> int:
    """The partition of the topic, out of `count`, that has the records of a partition; the same as Kafka's."""
    most, least = _HALVES.unpack(key.topic_id)
    combined = 1
    for number in (_java_hash(least), _java_hash(most), key.partition):
        combined = (31 * combined + number) & 0xFFFFFFFF
    return partition_for_key(combined.to_bytes(4, "big"), count)


def _java_hash(number: int) -> int:
    return (number ^ (number >> 32)) & 0xFFFFFFFF


def encode_record(record: object) -> bytes:
    """A record's value."""
    return bytes((_FRAMING, _TYPES[type(record)], _VERSION)) + encode(record, _VERSION)


def decode_record(value: bytes) -> object:
    """Read a record's value; raises MalformedMessage."""
    # All three are below 128, so their varints have one byte.
    if len(value) < 3 or value[0] != _FRAMING:
        raise MalformedMessage("a remote log metadata record is framed in a way that is not known here")
    return decode(remote_log_record(value[1]), value[2], value[3:])


def begun(topic: str, key: TierKey, segment: RemoteSegment) -> RemoteLogSegmentMetadataRecord:
    """The record of a copy that begins."""
    return RemoteLogSegmentMetadataRecord(
        _segment_id(topic, key, segment.segment_id),
        segment.start_offset,
        segment.end_offset,
        segment.broker_id,
        segment.max_timestamp_ms,
        segment.event_timestamp_ms,
        tuple(SegmentLeaderEpochEntry(*entry) for entry in segment.epochs),
        segment.size_bytes,
        _SEALED if segment.is_sealed else None,
        int(segment.state),
        not segment.has_aborted_transactions,
    )


def changed(
    topic: str,
    key: TierKey,
    segment_id: Uuid,
    state: SegmentState,
    broker_id: int,
    now_ms: int,
    *,
    only_unfinished: bool = False,
) -> RemoteLogSegmentMetadataUpdateRecord:
    """The record of a segment that changes its state."""
    named = _segment_id(topic, key, segment_id)
    note = _UNFINISHED if only_unfinished else None
    return RemoteLogSegmentMetadataUpdateRecord(named, broker_id, now_ms, note, int(state))


def partition_deletion(
    topic: str, key: TierKey, state: PartitionDeleteState, broker_id: int, now_ms: int
) -> RemotePartitionDeleteMetadataRecord:
    """The record of a partition that is deleted."""
    return RemotePartitionDeleteMetadataRecord(_partition(topic, key), broker_id, now_ms, int(state))


def _segment_id(topic: str, key: TierKey, segment_id: Uuid) -> RemoteLogSegmentIdEntry:
    return RemoteLogSegmentIdEntry(_partition(topic, key), segment_id)


def _partition(topic: str, key: TierKey) -> TopicIdPartitionEntry:
    return TopicIdPartitionEntry(topic, key.topic_id, key.partition)


class RemotePartitions(dict[TierKey, RemotePartition]):
    """What the records of one partition of the topic say, by partition."""

    def replay(self, record: object) -> None:
        """Apply a record; what is not possible is ignored, see `segments`."""
        match record:
            case RemoteLogSegmentMetadataRecord(named):
                segment = RemoteSegment(
                    named.id,
                    record.start_offset,
                    record.end_offset,
                    record.segment_size_in_bytes,
                    record.max_timestamp_ms,
                    tuple(EpochStart(*entry) for entry in record.segment_leader_epochs),
                    SegmentState(record.remote_log_segment_state),
                    record.broker_id,
                    record.event_timestamp_ms,
                    not record.txn_index_empty,
                    record.custom_metadata == _SEALED,
                )
                self.of(named.topic_id_partition).begin(segment)
            case RemoteLogSegmentMetadataUpdateRecord(named):
                state = SegmentState(record.remote_log_segment_state)
                owner = named.topic_id_partition
                known = self.get(TierKey(owner.id, owner.partition))
                if known is not None:
                    given_up = record.custom_metadata == _UNFINISHED
                    known.update(named.id, state, record.broker_id, record.event_timestamp_ms, only_unfinished=given_up)
            case RemotePartitionDeleteMetadataRecord(named):
                deletion = PartitionDeleteState(record.remote_partition_delete_state)
                self.of(named).deletion = deletion
                if deletion is PartitionDeleteState.DELETE_PARTITION_FINISHED:
                    del self[TierKey(named.id, named.partition)]

    def of(self, named: TopicIdPartitionEntry) -> RemotePartition:
        """The partition, known from now on."""
        found = self.get(TierKey(named.id, named.partition))
        if found is None:
            found = self[TierKey(named.id, named.partition)] = RemotePartition(named.name)
        return found
