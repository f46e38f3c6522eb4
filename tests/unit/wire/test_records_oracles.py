"""Batches of kafka-python and aiokafka are read by us, and ours by them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from record_values import SAMPLE, SIZE_MAX, record_lists

from penstock.wire.records import (
    Compression,
    Record,
    build_batch,
    check_crc,
    check_produced,
    read_header,
    read_records,
    split_batches,
)

with warnings.catch_warnings():
    # It loads its own data files in a way that Python is about to give up.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

# kafka-python needs python-snappy for that codec; aiokafka stands for it.
CLIENTS = {
    "kafka-python": (KafkaPythonBuilder, KafkaPythonBatch, [codec for codec in Compression if codec.name != "SNAPPY"]),
    "aiokafka": (AiokafkaBuilder, AiokafkaBatch, list(Compression)),
}
CASES = [(client, codec) for client, (_, _, codecs) in CLIENTS.items() for codec in codecs]


def theirs(client: str, records: list[Record], codec: Compression) -> bytes:
    builder = CLIENTS[client][0](
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=77,
        producer_epoch=5,
        base_sequence=1234,
        batch_size=1 << 20,
    )
    for record in records:
        assert builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def read_by(client: str, batch: bytes) -> tuple[Any, list[Record]]:
    reader = CLIENTS[client][1](batch)
    assert reader.validate_crc()
    records = [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in reader
    ]
    return reader, records


@pytest.mark.parametrize(("client", "codec"), CASES)
def test_theirs_are_read_by_us(client: str, codec: Compression) -> None:
    batch = theirs(client, SAMPLE, codec)
    ((_, header),) = split_batches(batch, SIZE_MAX)
    check_crc(batch, 0, header)
    check_produced(header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, 1234)
    assert header.compression is codec
    assert header.is_transactional
    assert header.max_timestamp == max(record.timestamp for record in SAMPLE)
    assert read_records(batch, SIZE_MAX) == SAMPLE


@pytest.mark.parametrize(("client", "codec"), CASES)
def test_ours_are_read_by_them(client: str, codec: Compression) -> None:
    base = 1 << 35
    records = [record._replace(offset=base + record.offset) for record in SAMPLE]
    batch = build_batch(
        records, base_offset=base, compression=codec, producer_id=77, producer_epoch=5, base_sequence=1234
    )
    reader, found = read_by(client, batch)
    assert found == records
    assert (reader.producer_id, reader.producer_epoch, reader.base_sequence) == (77, 5, 1234)
    assert (reader.base_offset, reader.next_offset) == (base, base + len(SAMPLE))
    assert reader.max_timestamp == max(record.timestamp for record in SAMPLE)


@pytest.mark.parametrize("client", CLIENTS)
def test_plain_batches_are_the_same_bytes(client: str) -> None:
    ours = build_batch(SAMPLE, producer_id=77, producer_epoch=5, base_sequence=1234, transactional=True)
    reference = bytearray(theirs(client, SAMPLE, Compression.NONE))
    # The clients leave their own marks in the leader epoch, which brokers overwrite.
    reference[12:16] = ours[12:16]
    assert ours == reference


@settings(max_examples=60)
@given(records=record_lists(size_max=6), case=st.sampled_from(CASES))
def test_any_records_agree(records: list[Record], case: tuple[str, Compression]) -> None:
    client, codec = case
    assert read_by(client, build_batch(records, compression=codec))[1] == records
    # To kafka-python and aiokafka -1 is no time but the lack of one, and they write another.
    assume(all(record.timestamp >= 0 for record in records))
    assert read_records(theirs(client, records, codec), SIZE_MAX) == records


def test_our_batch_header_matches_kafka_pythons_view() -> None:
    header = read_header(build_batch(SAMPLE, base_sequence=2**31 - 3, producer_id=1, producer_epoch=0))
    reader = KafkaPythonBatch(build_batch(SAMPLE, base_sequence=2**31 - 3, producer_id=1, producer_epoch=0))
    assert header.last_sequence == reader.last_sequence
    assert header.crc == reader.crc
