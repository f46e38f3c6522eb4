"""Headers, sizes, and the prefixes of records in Kafka's own logs."""

from __future__ import annotations

import pytest

from penstock.wire.apis import APIS, ApiKey, response_header_version
from penstock.wire.codec import encode
from penstock.wire.frame import (
    HEADER_TAGGED_FIELDS_MAX,
    RequestHeader,
    decode_coordinator_key,
    decode_metadata_record,
    decode_request_header,
    decode_response_header,
    decode_versioned,
    encode_coordinator_key,
    encode_metadata_record,
    encode_request,
    encode_response,
    encode_versioned,
)
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.metadata_records import FeatureLevelRecord, NoOpRecord, TopicRecord
from penstock.wire.primitives import MalformedMessage, UnsupportedVersion

FLEXIBLE = bytes.fromhex("0000 000a 00000007 0003 616263 00")
OLD = bytes.fromhex("0000 0008 00000007 0003 616263")


def test_the_header_of_an_old_request() -> None:
    header, position = decode_request_header(OLD + b"body")
    assert header == RequestHeader(api_key=0, api_version=8, correlation_id=7, client_id="abc")
    assert position == len(OLD)


def test_the_header_of_a_flexible_request() -> None:
    header, position = decode_request_header(memoryview(FLEXIBLE + b"body"))
    assert header == RequestHeader(api_key=0, api_version=10, correlation_id=7, client_id="abc")
    assert position == len(FLEXIBLE)


def test_tags_in_a_header_are_skipped() -> None:
    header, position = decode_request_header(FLEXIBLE[:-1] + b"\x01\x05\x02xy" + b"body")
    assert header.client_id == "abc"
    assert position == len(FLEXIBLE) + 4


def test_a_header_of_many_tags_is_refused() -> None:
    tags = b"\x05\x00" * HEADER_TAGGED_FIELDS_MAX
    assert decode_request_header(FLEXIBLE[:-1] + bytes([HEADER_TAGGED_FIELDS_MAX]) + tags)[0].client_id == "abc"
    with pytest.raises(MalformedMessage):
        decode_request_header(FLEXIBLE[:-1] + bytes([HEADER_TAGGED_FIELDS_MAX + 1]) + tags + b"\x05\x00")


def test_a_client_need_not_name_itself() -> None:
    header, position = decode_request_header(bytes.fromhex("0012 0000 00000001 ffff"))
    assert header == RequestHeader(18, 0, 1, None)
    assert position == 10


@pytest.mark.parametrize("numbers", ["7fff 0000 00000007", "0012 0063 00000007", "0000 ffff 00000007"])
def test_what_we_do_not_know_still_has_a_number_to_answer_to(numbers: str) -> None:
    header, _ = decode_request_header(bytes.fromhex(numbers) + b"\xff\xff whatever")
    assert header.correlation_id == 7
    assert header.client_id is None


@pytest.mark.parametrize("whole", [OLD, FLEXIBLE])
def test_a_header_cut_short_is_refused(whole: bytes) -> None:
    for size in range(len(whole)):
        with pytest.raises(MalformedMessage):
            decode_request_header(whole[:size])


def test_a_client_id_longer_than_the_frame_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="client_id is longer"):
        decode_request_header(OLD[:8] + b"\x7f\xff" + b"abc")


def test_a_request_is_read_as_it_was_written() -> None:
    body = encode(HeartbeatRequest("g", 1, "m"), 4)
    frame = b"".join(encode_request(RequestHeader(12, 4, 9, "client"), [body]))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(frame[4:])
    assert header == RequestHeader(12, 4, 9, "client")
    assert frame[4 + position :] == body


@pytest.mark.parametrize(("version", "expected"), [(0, "0000000b 00000007"), (1, "0000000c 00000007 00")])
def test_a_response_has_its_size_and_number_before_it(version: int, expected: str) -> None:
    buffers = encode_response(7, version, [b"abcd", memoryview(b"efg")])
    assert b"".join(buffers) == bytes.fromhex(expected) + b"abcdefg"
    assert decode_response_header(b"".join(buffers)[4:], version) == (7, 4 + version)


def test_only_api_versions_never_has_the_new_response_header() -> None:
    for key, api in APIS.items():
        assert response_header_version(key, api.flexible_from - 1) == 0
        assert response_header_version(key, api.flexible_from) == (0 if key == ApiKey.API_VERSIONS else 1)


def test_the_bytes_of_a_metadata_record() -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=27)
    expected = b"\x01\x0c\x00" + b"\x11metadata.version" + b"\x00\x1b" + b"\x00"
    assert encode_metadata_record(record, 0) == expected
    assert decode_metadata_record(expected) == record


def test_metadata_records_are_read_back() -> None:
    record = TopicRecord(name="orders", topic_id=bytes(range(16)))
    assert decode_metadata_record(memoryview(encode_metadata_record(record, 0))) == record
    assert decode_metadata_record(encode_metadata_record(NoOpRecord(), 0)) == NoOpRecord()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "end"),
        (b"\x00\x0c\x00", "frame version 0"),
        (b"\x01\xff\x01\x00", "no records of type 255"),
        (b"\x01\x0c", "end"),
        (b"\x01\x0c\x00\x11meta", "longer than what is left"),
        (b"\x01\x14\x00\x00\x00", "1 bytes too many"),
    ],
)
def test_damaged_metadata_records_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(MalformedMessage, match=problem):
        decode_metadata_record(data)


def test_a_metadata_record_newer_than_we_know_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="FeatureLevelRecord has versions 0, not 9"):
        decode_metadata_record(b"\x01\x0c\x09")


def test_only_records_go_into_the_metadata_log() -> None:
    with pytest.raises(ValueError, match="not a record of the metadata log"):
        encode_metadata_record(OffsetCommitValue(), 0)


def test_a_coordinator_key_starts_with_its_type() -> None:
    key = OffsetCommitKey("g", "t", 3)
    data = encode_coordinator_key(key)
    assert data == bytes.fromhex("0001 0001 67 0001 74 00000003")
    read, classes = decode_coordinator_key("group", data)
    assert read == key
    assert classes.value is OffsetCommitValue
    with pytest.raises(MalformedMessage):
        decode_coordinator_key("group", b"\x00")
    with pytest.raises(ValueError, match="not the key"):
        encode_coordinator_key(OffsetCommitValue())


def test_a_versioned_message_starts_with_its_version() -> None:
    subscription = ConsumerProtocolSubscription(topics=("orders",), generation_id=4)
    data = encode_versioned(subscription, 2)
    assert data[:2] == b"\x00\x02"
    assert decode_versioned(ConsumerProtocolSubscription, data) == subscription
    with pytest.raises(UnsupportedVersion):
        decode_versioned(ConsumerProtocolSubscription, b"\x00\x63")
    with pytest.raises(MalformedMessage):
        decode_versioned(ConsumerProtocolSubscription, b"")
