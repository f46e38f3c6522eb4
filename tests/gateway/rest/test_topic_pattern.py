"""Patterns of topics' names: librdkafka's expression matches exactly what Python's own expression matches."""

from __future__ import annotations

import re

import pytest

from penstock.gateway.kafka.topic_pattern import PatternUnusable, posix_pattern

NAMES = [
    "a",
    "orders",
    "WorkerOptions",
    "orders-1",
    "orders.v2",
    "orders_v2",
    "pre-orders",
    "7",
    "a-z",
    "",
    "aaaa",
    "o-r-d",
]


@pytest.mark.parametrize(
    "pattern",
    [
        "orders",
        "orders|a",
        "orders.*",
        r"orders\.v\d",
        r"[\w.]+",
        r"[^\d]+",
        r"[a\-z]+",
        r"\D*?",
        "(?:or(?P<rest>ders)?)(-[0-9]{1,3})?",
        "a{4}",
        "a{2,}",
        "^orders$",
        "|7",
        "order é",
        "[é]?a",
        r"[^x]+",
        r"\S+",
        "",
        ".",
    ],
)
def test_posix_pattern_matches_the_same_names(pattern: str) -> None:
    written = re.compile(posix_pattern(pattern))
    found = [name for name in NAMES if written.search(name)]
    assert found == [name for name in NAMES if re.fullmatch(pattern, name)]


@pytest.mark.parametrize(
    "pattern", ["(", "[", r"(a)\1", "(?=a)b", "(?<!a)b", r"\bword", "(?i)a", "(?i:a)b", "(a{99}){999}"]
)
def test_unmatchable_patterns_are_rejected(pattern: str) -> None:
    with pytest.raises(PatternUnusable):
        posix_pattern(pattern)
