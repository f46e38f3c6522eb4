"""Variable-length integers."""

from __future__ import annotations

import pytest

from penstock.wire.primitives import MalformedMessage, read_unsigned_varint, unsigned_varint


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**31 - 1, "ffffffff07"), (2**32 - 1, "ffffffff0f")],
)
def test_the_bytes_of_unsigned_varints(value: int, data: str) -> None:
    assert unsigned_varint(value).hex() == data
    assert read_unsigned_varint(b"x" + bytes.fromhex(data) + b"y", 1) == (value, 1 + len(data) // 2)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff"])
def test_varints_cut_short_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="end inside a varint"):
        read_unsigned_varint(data, 0)


def test_long_varints_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="longer than 5 bytes"):
        read_unsigned_varint(b"\x80" * 5 + b"\x00", 0)


def test_varints_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="does not fit into 32 bits"):
        read_unsigned_varint(b"\xff\xff\xff\xff\x1f", 0)


def test_an_unsigned_varint_is_not_negative() -> None:
    with pytest.raises(ValueError, match="cannot hold -1"):
        unsigned_varint(-1)
