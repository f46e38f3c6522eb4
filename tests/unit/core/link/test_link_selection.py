"""Which topics a link mirrors."""

from __future__ import annotations

import pytest

from penstock.core.link.selection import TopicSelection
from penstock.model.errors import ApiError


@pytest.mark.parametrize(
    ("topics", "exclude", "topic", "expected"),
    [
        (["orders"], [], "orders", True),
        (["orders"], [], "orders2", False),
        (["shop.*"], [], "shop.orders", True),
        (["shop.*"], ["*.private"], "shop.private", False),
        (["*"], [], "anything.at-all", True),
        (["*"], [], "_audit", False),
        (["_audit"], [], "_audit", True),
        (["__*"], [], "__consumer_offsets", False),
        (["a?c"], [], "abc", True),
        (["a?c"], [], "ac", False),
        (["*a*a*a*a*a*a*b"], [], "a" * 249, False),
    ],
)
def test_patterns(topics: list[str], exclude: list[str], topic: str, expected: bool) -> None:
    assert TopicSelection(topics, exclude).matches(topic) is expected


def test_patterns_that_match_nothing_are_refused() -> None:
    for topics in ([], [""], ["a b"], ["(x)"], ["x"] * 1001):
        with pytest.raises(ApiError):
            TopicSelection(topics).check()
    TopicSelection(["a.*"], ["a.b"]).check()
