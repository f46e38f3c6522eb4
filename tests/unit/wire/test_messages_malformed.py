"""Bytes that are not a message are refused, by one exception, before anything large is allocated."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import pytest
from message_values import all_messages

from penstock.wire.codec import decode, decoder, encode
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from penstock.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.metadata_records import DelegationTokenRecord
from penstock.wire.messages.offset_fetch import OffsetFetchRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.primitives import STRING_BYTES_MAX, MalformedMessage

TOPIC_ID = bytes(range(16))
PRODUCE = ProduceRequest(
    transactional_id="transfer",
    acks=-1,
    timeout_ms=1500,
    topic_data=(TopicProduceData(name="orders", partition_data=(PartitionProduceData(3, b"records"),)),),
)
FETCH = FetchRequest(
    cluster_id="cluster",
    replica_state=ReplicaState(2, 7),
    topics=(FetchTopic(topic_id=TOPIC_ID, partitions=(FetchPartition(3, fetch_offset=40, high_watermark=38),)),),
)
JOIN = JoinGroupRequest(
    group_id="readers", protocol_type="consumer", protocols=(JoinGroupRequestProtocol("range", b"\0\1"),)
)
METADATA = MetadataRequest(topics=(MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="payments")))
SAMPLES: list[tuple[Any, int]] = [(PRODUCE, 8), (PRODUCE, 12), (FETCH, 18), (JOIN, 5), (JOIN, 9), (METADATA, 7)]


@pytest.mark.parametrize(("message", "version"), SAMPLES)
def test_a_message_cut_short_anywhere_is_refused(message: Any, version: int) -> None:
    whole = encode(message, version)
    read = decoder(type(message), version)
    for size in range(len(whole)):
        with pytest.raises(MalformedMessage):
            read(whole[:size], 0)


@pytest.mark.parametrize(("message", "version"), SAMPLES)
def test_bytes_behind_a_message_are_refused_unless_the_caller_expects_them(message: Any, version: int) -> None:
    longer = encode(message, version) + b"\0"
    with pytest.raises(MalformedMessage, match="1 bytes too many"):
        decode(type(message), version, longer)
    assert decode(type(message), version, longer, whole=False) == message


@pytest.mark.parametrize("length", [-1, -2, -(2**31), 2**31 - 1, 1000])
def test_lengths_in_the_old_form_are_checked(length: int) -> None:
    # Produce 8: a null transactional id, acks, timeout, one topic, its name, one partition, its number, its records.
    before = struct.pack(">hhiih1sii", -1, 1, 1500, 1, 1, b"t", 1, 0)
    with pytest.raises(MalformedMessage):
        decode(ProduceRequest, 8, struct.pack(">hhii", -1, 1, 1500, length) + b"\0" * 8)
    if length == -1:
        assert decode(ProduceRequest, 8, before + struct.pack(">i", length)).topic_data[0].partition_data[0][1] is None
    elif length > 0:
        with pytest.raises(MalformedMessage, match="records is longer than what is left"):
            decode(ProduceRequest, 8, before + struct.pack(">i", length))


def test_a_huge_count_is_refused_before_memory_is_taken_for_it() -> None:
    # A count of 2^31 - 2 topics in five varint bytes, and not a single topic behind it.
    frame = struct.pack(">Bhi", 0, 1, 1500) + b"\xff\xff\xff\xff\x07"
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match="topic_data has more elements than what is left can hold"):
            decode(ProduceRequest, 9, frame)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_a_count_must_leave_room_for_the_smallest_elements() -> None:
    # Ten topics need at least three bytes each (name, partitions, tags); there are twenty bytes.
    frame = struct.pack(">BhiB", 0, 1, 1500, 11) + bytes(20)
    with pytest.raises(MalformedMessage, match="topic_data has more elements"):
        decode(ProduceRequest, 9, frame)


def test_null_is_refused_where_it_may_not_be() -> None:
    with pytest.raises(MalformedMessage, match="group_id may not be null"):
        decode(HeartbeatRequest, 4, b"\0" + bytes(10))
    with pytest.raises(MalformedMessage, match="group_id may not be null"):
        decode(HeartbeatRequest, 0, b"\xff\xff" + bytes(10))
    assert decode(MetadataRequest, 9, b"\0" + bytes(4)).topics is None


@pytest.mark.parametrize("varint", [b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x7f"])
def test_varints_beyond_32_bits_are_refused(varint: bytes) -> None:
    with pytest.raises(MalformedMessage, match="varint"):
        decode(HeartbeatRequest, 4, varint + bytes(20))


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="not UTF-8"):
        decode(HeartbeatRequest, 4, b"\x03\xc3\x28" + bytes(10))


def test_unknown_tags_are_skipped() -> None:
    whole = encode(ApiVersionsRequest("librdkafka", "2.16"), 3)
    assert whole.endswith(b"\0")
    unknown = b"\x02" + b"\x63\x03abc" + b"\xff\x7f\x00"
    assert decode(ApiVersionsRequest, 3, whole[:-1] + unknown) == ApiVersionsRequest("librdkafka", "2.16")


def test_a_tagged_field_must_have_the_size_it_states() -> None:
    fetch = encode(FetchRequest(cluster_id="abc"), 12)
    assert fetch.endswith(b"\x01\x00\x04\x04abc")
    with pytest.raises(MalformedMessage, match="cluster_id does not have the size it states"):
        decode(FetchRequest, 12, fetch[:-7] + b"\x01\x00\x05\x04abc\0")
    with pytest.raises(MalformedMessage, match="tagged field is longer"):
        decode(FetchRequest, 12, fetch[:-7] + b"\x01\x00\x7f\x04abc")


def test_a_nullable_struct_needs_its_marker() -> None:
    absent = encode(DescribeTopicPartitionsRequest(), 0)
    assert absent[-2:] == b"\xff\0"
    assert decode(DescribeTopicPartitionsRequest, 0, absent).cursor is None
    with pytest.raises(MalformedMessage):
        decode(DescribeTopicPartitionsRequest, 0, absent[:-2] + b"\x01\0")


@pytest.mark.parametrize("name", sorted(all_messages()))
def test_random_bytes_raise_nothing_else(name: str) -> None:
    message = all_messages()[name]
    rng = random.Random(name)
    for version in (message.versions[0], message.versions[-1]):
        read = decoder(message.cls, version)
        for size in (1, 7, 40, 200):
            # Small values make plausible lengths, so that the reader gets far.
            for highest in (3, 255):
                frame = bytes(rng.randint(0, highest) for _ in range(size))
                try:
                    value, position = read(frame, 0)
                except MalformedMessage:
                    continue
                assert position <= size
                assert isinstance(value, message.cls)


def test_damaged_messages_raise_nothing_else_and_take_little_memory() -> None:
    rng = random.Random(1)
    frames = [(type(message), version, encode(message, version)) for message, version in SAMPLES]
    tracemalloc.start()
    try:
        for _ in range(3000):
            cls, version, whole = rng.choice(frames)
            frame = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                frame[rng.randrange(len(frame))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randint(0, 255)))
            try:
                decode(cls, version, frame)
            except MalformedMessage:
                continue
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2_000_000


def test_a_message_may_start_anywhere_in_a_buffer() -> None:
    frame = b"head" + encode(OffsetFetchRequest(), 8) + b"tail"
    message, position = decoder(OffsetFetchRequest, 8)(frame, 4)
    assert message == OffsetFetchRequest()
    assert position == len(frame) - 4


def test_a_string_longer_than_kafkas_limit_is_refused_wherever_a_peer_sends_one() -> None:
    longest, longer = "x" * STRING_BYTES_MAX, "x" * (STRING_BYTES_MAX + 1)
    for message in (
        lambda name: METADATA._replace(topics=(MetadataRequestTopic(name=name),)),
        lambda name: PRODUCE._replace(transactional_id=name),
        lambda name: DescribeTopicPartitionsRequest(cursor=None, topics=(TopicRequest(name),)),
        lambda name: DescribeConfigsResponse(results=(DescribeConfigsResult(error_message=name),)),
    ):
        cls = type(message(""))
        version = {MetadataRequest: 12, ProduceRequest: 9, DescribeConfigsResponse: 4}.get(cls, 0)
        assert decode(cls, version, encode(message(longest), version))
        with pytest.raises(MalformedMessage, match="longer than 32767 bytes"):
            decode(cls, version, encode(message(longer), version))
    # Bytes are not strings, and what is in a log stays readable.
    joining = JOIN._replace(protocols=(JoinGroupRequestProtocol("range", longer.encode()),))
    assert decode(JoinGroupRequest, 9, encode(joining, 9)).protocols[0].metadata == longer.encode()
    record = DelegationTokenRecord(owner=longer)
    assert decode(DelegationTokenRecord, 0, encode(record, 0)).owner == longer
