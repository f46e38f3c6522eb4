"""The bytes of messages, what may be left out, and what cannot be written."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.model.errors import ProtocolError
from penstock.wire.codec import decode, decoder, encode, encoder
from penstock.wire.messages.alter_partition import AlterPartitionRequest
from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.wire.messages.consumer_group_records import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from penstock.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.metadata_records import PartitionChangeRecord
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.primitives import Buffer, MalformedMessage, UnsupportedVersion

HEARTBEAT = HeartbeatRequest("readers", 5, "one", None)


def test_the_bytes_of_an_old_version() -> None:
    assert encode(HEARTBEAT, 3).hex(" ") == "00 07 72 65 61 64 65 72 73 00 00 00 05 00 03 6f 6e 65 ff ff"


def test_the_bytes_of_a_flexible_version() -> None:
    assert encode(HEARTBEAT, 4).hex(" ") == "08 72 65 61 64 65 72 73 00 00 00 05 04 6f 6e 65 00 00"


def test_the_bytes_of_tagged_fields() -> None:
    change = PartitionChangeRecord(partition_id=1, topic_id=bytes(16), isr=(1, 2), leader=1)
    expected = "00000001" + "00" * 16 + "02" + "0009" + "03" + "00000001" + "00000002" + "0104" + "00000001"
    assert encode(change, 0).hex() == expected
    assert decode(PartitionChangeRecord, 0, bytes.fromhex(expected)) == change


def test_a_tagged_struct_encodes_null_as_zero() -> None:
    absent = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert encode(absent, 0).endswith(b"\x01\x00\x01\x00")
    assert decode(ConsumerGroupMemberMetadataValue, 0, encode(absent, 0)) == absent
    present = ConsumerGroupMemberMetadataValue(classic_member_metadata=ClassicMemberMetadata(session_timeout_ms=7))
    assert encode(present, 0).endswith(b"\x01\x00\x07\x01\x00\x00\x00\x07\x01\x00")


def test_records_are_never_copied() -> None:
    records: list[Buffer] = [memoryview(bytes(50)), bytearray(70)]
    partition = PartitionData(partition_index=1, records=records)
    response = FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(partition,)),))
    buffers: list[Any] = []
    encoder(FetchResponse, 12)(response, buffers)
    assert [id(buffer) for buffer in buffers[1:3]] == [id(buffer) for buffer in records]
    assert len(buffers) == 4
    joined = b"".join(buffers)
    found = decode(FetchResponse, 12, joined).responses[0].partitions[0].records
    assert isinstance(found, memoryview)
    assert found.obj is joined
    assert len(found) == 120


def test_a_decoder_reads_records_as_views_of_its_buffer() -> None:
    message = ProduceRequest(topic_data=(TopicProduceData("t", partition_data=(PartitionProduceData(0, b"abc"),)),))
    buffer = bytearray(encode(message, 9))
    records = decoder(ProduceRequest, 9)(buffer, 0)[0].topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"abc")] = ord("X")
    assert bytes(records) == b"Xbc"


def test_functions_are_compiled_once() -> None:
    assert decoder(HeartbeatRequest, 4) is decoder(HeartbeatRequest, 4)
    assert encoder(HeartbeatRequest, 4) is encoder(HeartbeatRequest, 4)


@pytest.mark.parametrize("version", [-1, 5, 2**15])
def test_versions_that_do_not_exist_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match=f"HeartbeatRequest has versions 0-4, not {version}"):
        decoder(HeartbeatRequest, version)
    with pytest.raises(UnsupportedVersion):
        encoder(HeartbeatRequest, version)


def test_a_peer_that_breaks_the_protocol_is_one_kind_of_error() -> None:
    assert issubclass(MalformedMessage, ProtocolError)
    assert issubclass(UnsupportedVersion, ProtocolError)


def test_a_field_that_may_be_dropped_is() -> None:
    partition = FetchPartition(3, current_leader_epoch=5, log_start_offset=9)
    request = FetchRequest(rack_id="rack-1", topics=(FetchTopic("t", partitions=(partition,)),))
    read = decode(FetchRequest, 4, encode(request, 4))
    assert read.rack_id == ""
    assert read.topics[0].partitions[0] == FetchPartition(3)


def test_a_field_that_may_not_be_dropped_is_refused() -> None:
    request = FetchRequest(topics=(FetchTopic("t", partitions=(FetchPartition(3, last_fetched_epoch=5),)),))
    with pytest.raises(ValueError, match="FetchRequest version 11: last_fetched_epoch does not exist in this version"):
        encode(request, 11)
    encode(request, 12)


@pytest.mark.parametrize(
    "change",
    [
        {"group_id": None},
        {"generation_id": 2**31},
        {"generation_id": "5"},
        {"group_id": "x" * 40_000},
        {"group_id": "\ud800"},
    ],
)
def test_what_the_wire_cannot_hold_is_refused_and_nothing_is_written(change: dict[str, Any]) -> None:
    buffers: list[Any] = []
    with pytest.raises(ValueError, match=r"cannot be written|can't encode"):
        encoder(HeartbeatRequest, 3)(HEARTBEAT._replace(**change), buffers)
    assert buffers == []


def test_a_uuid_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="topic_id is a uuid"):
        encode(MetadataRequest(topics=(MetadataRequestTopic(topic_id=b"short"),)), 12)


def test_null_is_written_only_where_it_may_be() -> None:
    assert encode(MetadataRequest(topics=None, allow_auto_topic_creation=False), 4) == b"\xff\xff\xff\xff\x00"
    with pytest.raises(ValueError, match="MetadataRequest version 0 cannot be written"):
        encode(MetadataRequest(topics=None), 0)


def test_lists_are_as_good_as_tuples() -> None:
    answer = ApiVersionsResponse(api_keys=[ApiVersion(18, 0, 4)])
    assert decode(ApiVersionsResponse, 3, encode(answer, 3)).api_keys == (ApiVersion(18, 0, 4),)


@pytest.mark.parametrize("size", [126, 127, 128, 16_382, 16_383, 16_384])
def test_lengths_around_the_size_of_a_varint(size: int) -> None:
    request = HeartbeatRequest(group_id="g" * size)
    assert decode(HeartbeatRequest, 4, encode(request, 4)) == request


def test_long_arrays_have_long_counts() -> None:
    request = MetadataRequest(topics=tuple(MetadataRequestTopic(name=f"topic-{n}") for n in range(500)))
    assert decode(MetadataRequest, 9, encode(request, 9)) == request
    assert decode(AlterPartitionRequest, 2, encode(AlterPartitionRequest(broker_id=1), 2)).broker_id == 1
