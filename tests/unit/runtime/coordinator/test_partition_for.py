"""The partition of an internal topic that a name belongs to: by Java's hash, whatever the name's length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.coordinator import shards
from penstock.runtime.coordinator.shards import HASHED_AT_ONCE, java_hash, partition_for


def java_hash_by_definition(text: str) -> int:
    units = text.encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) % 2**32
    return value - 2**32 if value >= 2**31 else value


@pytest.mark.parametrize("size", [0, 1, HASHED_AT_ONCE - 1, HASHED_AT_ONCE, HASHED_AT_ONCE + 1, 1000, 32_767])
def test_the_hash_of_a_name_of_any_length_is_javas(size: int) -> None:
    text = ("grüße𝄞" * size)[:size]
    assert java_hash(text) == java_hash_by_definition(text)


@given(st.text(max_size=300))
def test_the_hash_is_javas(text: str) -> None:
    assert java_hash(text) == java_hash_by_definition(text)


def test_known_hashes() -> None:
    assert java_hash("hello") == 99162322
    # Its hash is Java's smallest integer.
    assert partition_for("polygenelubricants", 50) == 0


def test_long_names_are_not_remembered() -> None:
    shards._remembered.cache_clear()
    for number in range(100):
        partition_for(f"{number}" + "x" * 30_000, 50)
    assert shards._remembered.cache_info().currsize == 0
    partition_for("short", 50)
    assert shards._remembered.cache_info().currsize == 1
