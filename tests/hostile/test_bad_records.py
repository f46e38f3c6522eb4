"""Record batches that are damaged, lie, or swell when unpacked: refused with the right error, and not appended."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hostile_settings import REQUEST_BYTES_MAX

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.compression import Compression
from penstock.wire.kernel import encode_records
from penstock.wire.record_types import Record
from penstock.wire.records import BatchHeader, assemble, read_header
from support.processes import forget_peak, peak_bytes, rss_bytes
from support.wire_client import WireClient, batch_of, records_in

MB = 2**20
BOMB_BYTES = 3 * REQUEST_BYTES_MAX
LATEST = -1


def test_a_bomb_is_refused_at_the_cap(broker: Cluster, client: WireClient, codec: str) -> None:
    """Nothing near the unpacked size is ever in memory."""
    topic = broker.create_topic(configs={"max.message.bytes": str(8 * MB)})
    bomb = bomb_in(codec)
    assert len(bomb) < 8 * MB < REQUEST_BYTES_MAX
    before = rss_bytes(broker.pid)
    forget_peak(broker.pid)
    answer = client.produce(topic, bomb)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.error_message
    assert peak_bytes(broker.pid) - before < 2 * REQUEST_BYTES_MAX + 16 * MB
    assert client.list_offset(topic, LATEST).offset == 0


@pytest.fixture(params=["gzip", "snappy", "lz4", "zstd"])
def codec(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def bomb_in(codec: str) -> bytes:
    """A batch of one record that unpacks to three times the cap."""
    body = encode_records([Record(0, 0, None, bytes(BOMB_BYTES))], 0, 0)
    packers: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
        "lz4": lz4.frame.compress,
        "zstd": zstandard.ZstdCompressor().compress,
    }
    good = read_header(batch_of([b""]))
    return assemble(good._replace(attributes=Compression[codec.upper()]), packers[codec](body))


# What is wrong, how a good batch of three records is spoilt, and the error that the client must see.


def with_header(**changes: int) -> Callable[[bytes], bytes]:
    """The batch with other header fields, length and CRC being right for them."""

    def spoil(batch: bytes) -> bytes:
        header: BatchHeader = read_header(batch)
        return assemble(header._replace(**changes), batch[61:])

    return spoil


def with_body(body: bytes) -> Callable[[bytes], bytes]:
    return lambda batch: assemble(read_header(batch), body)


def flip_value(batch: bytes) -> bytes:
    return batch[:-2] + bytes([batch[-2] ^ 1]) + batch[-1:]


def flip_crc(batch: bytes) -> bytes:
    return batch[:17] + bytes([batch[17] ^ 0x80]) + batch[18:]


def cut(batch: bytes) -> bytes:
    return batch[:-5]


def announce_more(batch: bytes) -> bytes:
    return batch[:8] + struct.pack(">i", len(batch) + 1000) + batch[12:]


def announce_less(batch: bytes) -> bytes:
    return batch[:8] + struct.pack(">i", 3) + batch[12:]


def announce_negative(batch: bytes) -> bytes:
    return batch[:8] + struct.pack(">i", -1) + batch[12:]


def magic(number: int) -> Callable[[bytes], bytes]:
    return lambda batch: batch[:16] + bytes([number]) + batch[17:]


def negative_offset_delta(batch: bytes) -> bytes:
    """Three records whose second has the offset delta -1."""
    record = bytes([2 * 7, 0, 0, 0, 1, 2, ord("a"), 0])
    second = bytes([2 * 7, 0, 0, 1, 1, 2, ord("b"), 0])
    third = bytes([2 * 7, 0, 0, 4, 1, 2, ord("c"), 0])
    return assemble(read_header(batch), record + second + third)


CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
SPOILT: dict[str, tuple[Callable[[bytes], bytes], set[ErrorCode]]] = {
    "a flipped bit in a value": (flip_value, {CORRUPT}),
    "a flipped bit in the CRC": (flip_crc, {CORRUPT}),
    "cut short": (cut, {CORRUPT}),
    "a length past the end": (announce_more, {CORRUPT}),
    "a length below the header": (announce_less, {CORRUPT}),
    "a negative length": (announce_negative, {CORRUPT}),
    "not even a header": (lambda batch: batch[:30], {CORRUPT}),
    "two records said to be three": (
        with_body(encode_records([Record(0, 0, None, b"a"), Record(1, 0, None, b"b")], 0, 0)),
        {INVALID},
    ),
    "a count of zero": (with_header(records_count=0, last_offset_delta=0), {INVALID}),
    "a negative count": (with_header(records_count=-1), {INVALID}),
    "a count of two billion": (with_header(records_count=2**31 - 1, last_offset_delta=2**31 - 2), {INVALID}),
    "a count unlike the offsets": (with_header(records_count=3, last_offset_delta=7), {INVALID}),
    "a negative last offset delta": (with_header(last_offset_delta=-1), {INVALID}),
    "a negative offset delta": (negative_offset_delta, {INVALID}),
    "a base offset that is not 0": (with_header(base_offset=5), {INVALID}),
    "a control batch": (with_header(attributes=0x20), {INVALID}),
    "a codec that never was": (with_header(attributes=7), {INVALID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, CORRUPT}),
    "gzip that is none": (with_header(attributes=1), {INVALID, CORRUPT}),
    "zstd that is none": (with_header(attributes=4), {INVALID, CORRUPT}),
    "noise for records": (with_body(b"\xff" * 40), {INVALID}),
    "two batches": (lambda batch: batch * 2, {INVALID}),
    "a batch and a tail": (lambda batch: batch + b"tail", {INVALID, CORRUPT}),
    "magic 1": (magic(1), {ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID, CORRUPT}),
    "magic 9": (magic(9), {ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID, CORRUPT}),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_spoilt_batch_is_refused_and_nothing_appended(broker: Cluster, client: WireClient, what: str) -> None:
    spoil, errors = SPOILT[what]
    topic = broker.create_topic()
    good = batch_of([b"one", b"two", b"three"])
    assert client.produce(topic, good).error_code == 0
    answer = client.produce(topic, spoil(good))
    assert answer.error_code in errors, answer
    assert answer.base_offset == -1
    assert client.list_offset(topic, LATEST).offset == 3
    assert client.produce(topic, good).base_offset == 3
    assert [record.offset for record in records_in(client.fetch(topic, 0).records)] == list(range(6))
