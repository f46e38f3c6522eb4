"""The hot keys of a topic, added up from those of its partitions."""

from __future__ import annotations

import pytest

from penstock.core.hot_keys.merged import MergedKey, merge
from penstock.wire.messages.describe_hot_keys import HotKeyRow, HotPartition


def rows(*keys: tuple[bytes, bool, int, int]) -> list[HotKeyRow]:
    return [HotKeyRow(key=key, is_cut=is_cut, records=records, size_bytes=size) for key, is_cut, records, size in keys]


def partition(index: int, *keys: tuple[bytes, bool, int, int], error_code: int = 0) -> HotPartition:
    return HotPartition(
        partition_index=index,
        error_code=error_code,
        records=100 + index,
        size_bytes=1_000 + index,
        keyless_records=10 + index,
        keyless_bytes=20 + index,
        records_error=3 + index,
        bytes_error=4 + index,
        keys=rows(*keys),
    )


def test_figures_are_added_up_and_partitions_with_errors_are_left_out() -> None:
    merged = merge([partition(1), partition(7, (b"k", False, 5, 5), error_code=3), partition(2)])
    assert (merged.partitions, merged.records, merged.size_bytes) == (2, 203, 2_003)
    assert (merged.keyless_records, merged.keyless_bytes) == (23, 43)
    assert (merged.records_error, merged.bytes_error) == (9, 11)
    assert merged.keys == []


def test_a_key_of_several_partitions_is_one_key() -> None:
    merged = merge([partition(0, (b"a", False, 5, 50)), partition(1, (b"b", False, 1, 90), (b"a", False, 2, 7))])
    assert merged.keys == [MergedKey(b"a", False, [0, 1], 7, 57), MergedKey(b"b", False, [1], 1, 90)]
    assert [one.key for one in merged.top(2, by_bytes=False)] == [b"a", b"b"]
    assert [one.key for one in merged.top(2, by_bytes=True)] == [b"b", b"a"]
    assert [one.key for one in merged.top(1, by_bytes=True)] == [b"b"]


def test_keys_that_were_cut_are_never_taken_for_the_same() -> None:
    merged = merge([partition(0, (b"a", True, 5, 5), (b"a", True, 4, 4)), partition(1, (b"a", True, 3, 3))])
    assert [(one.records, one.partitions, one.is_cut) for one in merged.keys] == [
        (5, [0], True),
        (4, [0], True),
        (3, [1], True),
    ]


@pytest.mark.parametrize(
    ("key", "is_cut", "text"),
    [
        (b"order-7", False, "order-7"),
        (b"order-7", True, "order-7…"),
        (b"\xff\x00", False, "0xff00"),
        (b"a\n", False, "0x610a"),
        (b"", False, '""'),
    ],
)
def test_keys_are_shown_as_text_where_they_are_text(key: bytes, is_cut: bool, text: str) -> None:
    assert MergedKey(key, is_cut).text == text
