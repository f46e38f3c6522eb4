"""Records of `__remote_log_metadata`: as Apache Kafka 4.3.1 writes them, and where it puts them."""

from __future__ import annotations

import pytest

from penstock.core.tier.metadata_records import (
    RemotePartitions,
    TierKey,
    begun,
    changed,
    decode_record,
    encode_record,
    metadata_partition,
    partition_deletion,
)
from penstock.core.tier.segments import EpochStart, PartitionDeleteState, RemoteSegment, SegmentState
from penstock.model.ids import parse_uuid
from penstock.wire.primitives import MalformedMessage

KEY = TierKey(parse_uuid("yqzWbG3GYBIbgFo9w7o-Rw"), 2)
SEGMENT = RemoteSegment(
    parse_uuid("f9QZpdipYYA-Hj-OkFytCQ"),
    100,
    199,
    4096,
    1_700_000_000_000,
    (EpochStart(0, 0), EpochStart(3, 150)),
    broker_id=1,
    event_timestamp_ms=1_700_000_000_123,
    has_aborted_transactions=False,
)
BEGUN = begun("orders", KEY, SEGMENT)
FINISHED = changed("orders", KEY, SEGMENT.segment_id, SegmentState.COPY_SEGMENT_FINISHED, 1, 1_700_000_000_456)
MARKED = partition_deletion("orders", KEY, PartitionDeleteState.DELETE_PARTITION_MARKED, 1, 1_700_000_000_789)


# Written by RemoteLogMetadataSerde of Apache Kafka 4.3.1.
@pytest.mark.parametrize(
    ("record", "stored"),
    [
        (
            BEGUN,
            "010000076f7264657273caacd66c6dc660121b805a3dc3ba3e4700000002007fd419a5d8a961803e1e3f8e905cad0900000000"
            "000000006400000000000000c7000000010000018bcfe568000000018bcfe5687b030000000000000000000000000000000003"
            "00000000000000960000001000000001000101",
        ),
        (
            FINISHED,
            "010100076f7264657273caacd66c6dc660121b805a3dc3ba3e4700000002007fd419a5d8a961803e1e3f8e905cad0900000000"
            "010000018bcfe569c8000100",
        ),
        (MARKED, "010200076f7264657273caacd66c6dc660121b805a3dc3ba3e470000000200000000010000018bcfe56b150000"),
    ],
)
def test_records_are_those_of_kafka(record: object, stored: str) -> None:
    assert encode_record(record).hex() == stored
    assert decode_record(bytes.fromhex(stored)) == record


# Computed by RemoteLogMetadataTopicPartitioner of Apache Kafka 4.3.1.
@pytest.mark.parametrize(
    ("topic_id", "partition", "expected"),
    [
        ("AAAAAAAAAAAAAAAAAAAAAQ", 0, 35),
        ("AAAAAAAAAAAAAAAAAAAAAQ", 7, 46),
        ("yqzWbG3GYBIbgFo9w7o-Rw", 0, 14),
        ("yqzWbG3GYBIbgFo9w7o-Rw", 7, 2),
        ("f9QZpdipYYA-Hj-OkFytCQ", 1, 13),
    ],
)
def test_a_partition_has_its_place_in_the_topic(topic_id: str, partition: int, expected: int) -> None:
    assert metadata_partition(TierKey(parse_uuid(topic_id), partition), 50) == expected


def test_replay() -> None:
    partitions = RemotePartitions()
    partitions.replay(FINISHED)
    assert not partitions
    partitions.replay(BEGUN)
    assert partitions[KEY].topic == "orders"
    assert partitions[KEY].segments() == [SEGMENT]
    partitions.replay(FINISHED)
    (segment,) = partitions[KEY].segments()
    assert segment.is_readable
    assert segment.event_timestamp_ms == 1_700_000_000_456
    partitions.replay(MARKED)
    assert partitions[KEY].deletion is PartitionDeleteState.DELETE_PARTITION_MARKED
    partitions.replay(partition_deletion("orders", KEY, PartitionDeleteState.DELETE_PARTITION_FINISHED, 1, 5))
    assert not partitions


@pytest.mark.parametrize("value", [b"", b"\x01\x00", b"\x02\x00\x00", b"\x01\x63\x00"])
def test_what_is_not_a_record_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(value)
