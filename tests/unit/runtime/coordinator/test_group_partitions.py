"""Which partition of an internal topic a group belongs to: the same as Kafka's."""

from __future__ import annotations

import pytest

from penstock.runtime.coordinator.shards import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("Hello, World!", 1_498_789_909),
        # Java's famous collision, and its smallest integer.
        ("Aa", 2_112),
        ("BB", 2_112),
        ("polygenelubricants", -(2**31)),
        # Two UTF-16 units.
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_texts_are_hashed_as_java_does(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_groups_are_spread_over_the_partitions_as_kafka_does() -> None:
    assert partition_for("hello", 50) == 22
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("", 50) == 0
