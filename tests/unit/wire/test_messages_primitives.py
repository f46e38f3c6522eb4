"""Variable-length integers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.primitives import (
    MalformedMessage,
    read_unsigned_varint,
    read_varint,
    read_varlong,
    unsigned_varint,
    zigzag_varint,
)

QUICK = settings(max_examples=50, derandomize=True, deadline=None, database=None)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**31 - 1, "ffffffff07"), (2**32 - 1, "ffffffff0f")],
)
def test_the_bytes_of_unsigned_varints(value: int, data: str) -> None:
    assert unsigned_varint(value).hex() == data
    assert read_unsigned_varint(b"x" + bytes.fromhex(data) + b"y", 1) == (value, 1 + len(data) // 2)


@pytest.mark.parametrize(("value", "data"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001")])
def test_the_bytes_of_signed_varints(value: int, data: str) -> None:
    assert zigzag_varint(value).hex() == data
    assert read_varint(bytes.fromhex(data), 0) == (value, len(data) // 2)
    assert read_varlong(bytes.fromhex(data), 0) == (value, len(data) // 2)


@QUICK
@given(st.integers(-(2**31), 2**31 - 1))
def test_32_bits_survive(value: int) -> None:
    data = zigzag_varint(value)
    assert len(data) <= 5
    assert read_varint(data, 0) == (value, len(data))


@QUICK
@given(st.integers(-(2**63), 2**63 - 1))
def test_64_bits_survive(value: int) -> None:
    data = zigzag_varint(value)
    assert len(data) <= 10
    assert read_varlong(data, 0) == (value, len(data))


@pytest.mark.parametrize("read", [read_unsigned_varint, read_varint, read_varlong])
@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff"])
def test_varints_cut_short_are_refused(read: object, data: bytes) -> None:
    assert callable(read)
    with pytest.raises(MalformedMessage, match="end inside a varint"):
        read(data, 0)


def test_long_varints_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="longer than 5 bytes"):
        read_unsigned_varint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(MalformedMessage, match="longer than 5 bytes"):
        read_varint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(MalformedMessage, match="longer than 10 bytes"):
        read_varlong(b"\x80" * 10 + b"\x00", 0)


def test_varints_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="does not fit into 32 bits"):
        read_unsigned_varint(b"\xff\xff\xff\xff\x1f", 0)
    with pytest.raises(MalformedMessage, match="does not fit into 32 bits"):
        read_varint(b"\xff\xff\xff\xff\x1f", 0)
    with pytest.raises(MalformedMessage, match="does not fit into 64 bits"):
        read_varlong(b"\xff" * 9 + b"\x03", 0)


def test_an_unsigned_varint_is_not_negative() -> None:
    with pytest.raises(ValueError, match="cannot hold -1"):
        unsigned_varint(-1)
