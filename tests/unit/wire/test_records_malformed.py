"""Damaged batches end in an error of the BatchError family, quickly: never in a crash or another exception."""

from __future__ import annotations

import contextlib
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_values import NOW_MS, SIZE_MAX

from penstock.wire.records import (
    HEADER_SIZE,
    BatchError,
    Compression,
    CorruptBatch,
    Record,
    build_batch,
    check_crc,
    check_produced,
    read_header,
    read_records,
    recompress,
    split_batches,
)

RECORDS = [
    Record(0, NOW_MS, b"key", b"value" * 20, (("h", b"1"), ("n", None))),
    Record(1, NOW_MS + 5, None, b"v"),
    Record(2, NOW_MS - 7, b"tombstone", None),
]


def take(batch: bytes) -> None:
    """What a broker may do with a batch, without the CRC that would shield the rest."""
    for position, header in split_batches(batch, SIZE_MAX):
        check_produced(header)
        read_records(batch, SIZE_MAX, position)
        recompress(batch[position : position + header.size_bytes], header, Compression.NONE, None, SIZE_MAX)


@pytest.mark.parametrize("codec", list(Compression))
def test_cut_at_each_byte(codec: Compression) -> None:
    batch = build_batch(RECORDS, compression=codec)
    for size in range(1, len(batch)):
        with pytest.raises(CorruptBatch):
            take(batch[:size])


@pytest.mark.parametrize("codec", list(Compression))
def test_body_cut_at_each_byte_under_a_header_that_fits(codec: Compression) -> None:
    batch = build_batch(RECORDS, compression=codec)
    for size in range(HEADER_SIZE, len(batch)):
        cut = bytearray(batch[:size])
        struct.pack_into(">i", cut, 8, size - 12)
        with pytest.raises(BatchError):
            take(bytes(cut))


@pytest.mark.parametrize("codec", list(Compression))
def test_each_bit_flipped(codec: Compression) -> None:
    batch = build_batch(RECORDS, compression=codec)
    for index in range(len(batch)):
        for bit in range(8):
            damaged = bytearray(batch)
            damaged[index] ^= 1 << bit
            with contextlib.suppress(BatchError):
                take(bytes(damaged))
            if index >= 21:
                with pytest.raises(CorruptBatch):
                    check_crc(damaged, 0, read_header(damaged))


@given(head=st.binary(max_size=16), body=st.binary(max_size=300), codec=st.integers(0, 7), count=st.integers())
def test_any_bytes_as_body(head: bytes, body: bytes, codec: int, count: int) -> None:
    batch = bytearray(build_batch([], last_offset_delta=0) + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 57, (count + 2**31) % 2**32 - 2**31)
    with contextlib.suppress(BatchError):
        read_records(batch, SIZE_MAX)
    with contextlib.suppress(BatchError):
        take(head + bytes(batch))


def test_many_random_damages() -> None:
    choices = random.Random(7)
    batches = [build_batch(RECORDS * 1, compression=codec) for codec in Compression]
    for _ in range(4000):
        damaged = bytearray(choices.choice(batches))
        for _ in range(choices.randrange(1, 6)):
            damaged[choices.randrange(8, len(damaged))] = choices.randrange(256)
        if choices.random() < 0.5:
            struct.pack_into(">i", damaged, 8, len(damaged) - 12)
        with contextlib.suppress(BatchError):
            take(bytes(damaged))
        with contextlib.suppress(BatchError):
            read_records(damaged, SIZE_MAX)


@pytest.mark.parametrize("count", [-1, 4, 2**31 - 1])
def test_wrong_counts_are_refused_before_anything_is_sized_by_them(count: int) -> None:
    batch = bytearray(build_batch(RECORDS))
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(BatchError):
        read_records(batch, SIZE_MAX)


def test_unknown_codecs_are_corrupt() -> None:
    batch = bytearray(build_batch(RECORDS))
    for codec in (5, 6, 7):
        batch[22] = codec
        with pytest.raises(CorruptBatch, match=f"codec {codec}"):
            read_records(batch, SIZE_MAX)
