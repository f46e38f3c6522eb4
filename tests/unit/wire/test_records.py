"""Batches as a broker handles them: header, CRC, patches, rules, building and reading."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_values import NOW_MS, SAMPLE, SIZE_MAX, record_lists

from penstock.model.errors import ErrorCode
from penstock.wire.records import (
    HEADER_SIZE,
    BatchTooLarge,
    Compression,
    ControlType,
    CorruptBatch,
    InvalidRecords,
    Record,
    TimestampType,
    UnsupportedMagic,
    build_batch,
    check_crc,
    check_produced,
    control_key,
    control_type,
    patch,
    patch_timestamps,
    read_header,
    read_records,
    recompress,
    split_batches,
)


def test_header_fields_are_those_the_batch_was_built_with() -> None:
    batch = build_batch(
        [Record(40, 7, None, b"a"), Record(42, 5, None, b"b")],
        base_offset=40,
        compression=Compression.LZ4,
        producer_id=9,
        producer_epoch=3,
        base_sequence=11,
        leader_epoch=6,
        transactional=True,
    )
    header = read_header(batch)
    assert header.base_offset == 40
    assert header.size_bytes == len(batch) == header.batch_length + 12
    assert (header.last_offset_delta, header.last_offset, header.next_offset) == (2, 42, 43)
    assert (header.base_timestamp, header.max_timestamp) == (7, 7)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 3, 11, 13)
    assert header.partition_leader_epoch == 6
    assert header.records_count == 2
    assert header.compression is Compression.LZ4
    assert header.timestamp_type is TimestampType.CREATE
    assert header.is_transactional
    assert not header.is_control
    assert header.delete_horizon is None
    assert header.magic == 2


@pytest.mark.parametrize(
    ("base_sequence", "count", "last_sequence"),
    [(0, 1, 0), (2**31 - 1, 1, 2**31 - 1), (2**31 - 1, 2, 0), (2**31 - 2, 4, 1), (-1, 4, -1)],
)
def test_sequences_wrap_to_zero(base_sequence: int, count: int, last_sequence: int) -> None:
    batch = build_batch([Record(i, 0, None, None) for i in range(count)], base_sequence=base_sequence)
    assert read_header(batch).last_sequence == last_sequence


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("codec", list(Compression))
def test_every_codec_and_buffer_gives_the_records_back(codec: Compression, kind: type) -> None:
    batch = kind(build_batch(SAMPLE, compression=codec))
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert header.compression is codec
    assert read_records(batch, SIZE_MAX) == SAMPLE


@given(records=record_lists(gaps=True), codec=st.sampled_from(Compression), base=st.integers(0, 1 << 60))
def test_round_trip(records: list[Record], codec: Compression, base: int) -> None:
    records = [record._replace(offset=base + record.offset) for record in records]
    batch = build_batch(records, base_offset=base, compression=codec)
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert read_records(batch, SIZE_MAX) == records
    assert header.max_timestamp == max(record.timestamp for record in records)


def test_a_batch_is_read_where_it_lies() -> None:
    first, second = build_batch(SAMPLE), build_batch(SAMPLE[:1], base_offset=0)
    assert read_records(first + second, SIZE_MAX, len(first)) == SAMPLE[:1]


def test_split_gives_every_batch_with_its_position() -> None:
    batches = [build_batch(SAMPLE[:count]) for count in (1, 3, 6)]
    found = split_batches(b"".join(batches), SIZE_MAX)
    assert [header.records_count for _, header in found] == [1, 3, 6]
    assert [position for position, _ in found] == [0, len(batches[0]), len(batches[0]) + len(batches[1])]


def test_split_refuses_what_is_not_whole_batches() -> None:
    batch = build_batch(SAMPLE[:2])
    for cut in range(1, len(batch)):
        with pytest.raises(CorruptBatch):
            split_batches(batch + batch[:cut], SIZE_MAX)
    with pytest.raises(BatchTooLarge) as caught:
        split_batches(batch, len(batch) - 1)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert split_batches(batch, len(batch))[0][0] == 0
    assert split_batches(b"", SIZE_MAX) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_below_the_header_is_refused(length: int) -> None:
    batch = bytearray(build_batch(SAMPLE[:1]))
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatch, match="length"):
        read_header(batch)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [34, 200])
def test_old_formats_are_named(magic: int, size: int) -> None:
    message = bytearray(size)
    message[16] = magic
    with pytest.raises(UnsupportedMagic, match=f"magic {magic}.*upgrade") as caught:
        read_header(message)
    assert caught.value.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_unknown_magic_and_short_headers_are_corrupt() -> None:
    batch = bytearray(build_batch(SAMPLE[:1]))
    for size in (0, 16, 60):
        with pytest.raises(CorruptBatch, match="only"):
            read_header(bytes(batch[:size]))
    batch[16] = 3
    with pytest.raises(CorruptBatch, match="magic 3"):
        read_header(batch)


def test_crc_covers_every_byte_from_the_attributes_on() -> None:
    batch = build_batch(SAMPLE[:3], compression=Compression.GZIP)
    header = read_header(batch)
    for index in range(21, len(batch)):
        damaged = bytearray(batch)
        damaged[index] ^= 0x10
        with pytest.raises(CorruptBatch, match="CRC") as caught:
            check_crc(damaged, 0, header)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(CorruptBatch, match="cut short"):
        check_crc(batch[:-1], 0, header)


def test_patching_assigns_offset_and_epoch_and_leaves_the_crc_right() -> None:
    batch = build_batch(SAMPLE)
    payload = bytearray(batch + batch)
    patch(memoryview(payload), len(batch), 1 << 40, 77)
    header = read_header(payload, len(batch))
    check_crc(payload, len(batch), header)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 77)
    assert payload[: len(batch)] == batch
    assert [record.offset for record in read_records(payload, SIZE_MAX, len(batch))] == [
        (1 << 40) + record.offset for record in SAMPLE
    ]


def test_log_append_time_replaces_every_timestamp() -> None:
    batch = bytearray(b"before" + build_batch(SAMPLE, compression=Compression.ZSTD))
    header = read_header(batch, 6)
    patched = patch_timestamps(batch, 6, header, NOW_MS + 123)
    assert patched == read_header(batch, 6)
    assert patched.timestamp_type is TimestampType.LOG_APPEND
    assert patched.compression is Compression.ZSTD
    check_crc(batch, 6, patched)
    assert {record.timestamp for record in read_records(batch, SIZE_MAX, 6)} == {NOW_MS + 123}
    restored = patch_timestamps(batch, 6, patched, header.max_timestamp, TimestampType.CREATE)
    assert restored == header
    assert read_records(batch, SIZE_MAX, 6) == SAMPLE


def test_a_thinned_out_batch_keeps_its_range_and_horizon() -> None:
    kept = [Record(12, NOW_MS, b"a", None), Record(17, NOW_MS + 2, b"b", b"")]
    batch = build_batch(kept, base_offset=10, last_offset_delta=9, delete_horizon=NOW_MS + 50)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset) == (10, 19)
    assert header.delete_horizon == NOW_MS + 50
    assert read_records(batch, SIZE_MAX) == kept
    empty = read_header(build_batch([], base_offset=10, last_offset_delta=9))
    assert (empty.records_count, empty.next_offset, empty.max_timestamp) == (0, 20, -1)


def test_offsets_that_do_not_rise_cannot_be_built() -> None:
    for offsets in ([1, 1], [2, 1], [-1], [1 << 31]):
        with pytest.raises(ValueError, match="does not follow"):
            build_batch([Record(offset, 0, None, None) for offset in offsets])


@pytest.mark.parametrize("target", list(Compression))
@pytest.mark.parametrize("source", list(Compression))
def test_recompressing_changes_the_codec_only(source: Compression, target: Compression) -> None:
    batch = build_batch(
        SAMPLE, compression=source, producer_id=4, producer_epoch=1, base_sequence=8, leader_epoch=2, transactional=True
    )
    header = read_header(batch)
    result = recompress(batch, header, target, None, SIZE_MAX)
    changed = read_header(result)
    check_crc(result, 0, changed)
    assert changed.compression is target
    assert read_records(result, SIZE_MAX) == SAMPLE
    same = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert changed._replace(**same) == header._replace(**same)
    assert changed.is_transactional
    assert changed.size_bytes == len(result)


def test_control_batches_have_types() -> None:
    batch = build_batch([Record(0, NOW_MS, control_key(ControlType.COMMIT), b"\0\0\0\0\0\7")], control=True)
    header = read_header(batch)
    assert header.is_control
    (marker,) = read_records(batch, SIZE_MAX)
    assert marker.key == b"\0\0\0\1"
    assert control_type(marker.key) is ControlType.COMMIT
    assert control_type(b"\0\0\0\x63") is None
    for key in (None, b"", b"\0\0\0"):
        with pytest.raises(InvalidRecords, match="control"):
            control_type(key)


def test_rules_for_produced_batches() -> None:
    good = read_header(build_batch(SAMPLE, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    check_produced(good)
    check_produced(read_header(build_batch(SAMPLE)))
    bad = {
        "counts": [{"records_count": 5}, {"records_count": 0, "last_offset_delta": -1}, {"last_offset_delta": -1}],
        "control": [{"attributes": good.attributes | 0x20}],
        "sequence": [{"base_sequence": -1}, {"producer_epoch": -1}],
        "producer id": [{"producer_id": -1}],
    }
    for reason, changes in bad.items():
        for change in changes:
            with pytest.raises(InvalidRecords, match=reason) as caught:
                check_produced(good._replace(**change))
            assert caught.value.code == ErrorCode.INVALID_RECORD


def test_reading_is_bounded() -> None:
    batch = build_batch([Record(0, 0, None, bytes(500_000))], compression=Compression.ZSTD)
    assert len(batch) < 1000
    with pytest.raises(InvalidRecords, match="more than 100000 bytes"):
        read_records(batch, 100_000)
    assert HEADER_SIZE == 61
