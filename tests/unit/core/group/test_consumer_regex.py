"""Patterns of subscriptions: what they match, what is refused, and what they may cost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.group.subscription.regex import PATTERN_LENGTH_MAX, InvalidPattern, NamePattern
from penstock.core.group.subscription.topics import NAMES_MAX, PATTERNS_MAX, TopicCatalog
from penstock.model.errors import ApiError, ErrorCode
from support.worlds.consumer_world import ClusterTopics

NAMES = ["t", "orders", "orders-eu", "orders.eu", "ORDERS", "a", "ab", "abc", "a_b", "A1", "__offsets", "x" * 40, "9-9"]


def matching(pattern: str) -> set[str]:
    return NamePattern(pattern).matching(NAMES)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "orders",
        "orders.*",
        r"orders\.eu",
        "^orders$|^a$",
        "(a|b)+",
        "(?:a|(?P<name>b)c?)*",
        "a?b?c?",
        "[a-c]{2,3}",
        "[^a-z]*",
        r"\w+",
        r"[\w.-]+",
        r"\D+",
        r"\Aorders\b.*",
        r"a\B.*",
        "(?i)a1|b",
        "(?i:A)b",
        "x{40}",
        "x{3,}",
        "x{,3}",
        "(|a)b",
        "a.c|.",
        r"[\d_a-]+",
        "[]a]",
        "[a-]b",
        "a|",
        r"\x61b",
        "(?s).*",
        "a$b",
        "a{0}b*",
        r"\_\_.*",
    ],
)
def test_patterns_mean_what_they_mean_to_python(pattern: str) -> None:
    assert matching(pattern) == {name for name in NAMES if re.fullmatch(pattern, name)}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"\Qorders.eu\E", {"orders.eu"}),
        (r"\Qorders.", set()),
        (r"orders\Q.\Eeu", {"orders.eu"}),
        ("[[:alpha:]]", {"t", "a"}),
        ("[[:^lower:]]+", {"A1", "ORDERS", "9-9"}),
        (r"\p{Lu}+", {"ORDERS"}),
        (r"\pN.*", {"9-9"}),
        (r"\P{L}[^a].", {"9-9"}),
        (r"\p{^L}.*", {"__offsets", "9-9"}),
        (r"\x{61}b", {"ab"}),
        (r"orders\z", {"orders"}),
        ("(?<name>ab)c", {"abc"}),
        ("(?i-s)ORDERS(?-i)", {"orders", "ORDERS"}),
        ("(a(?i)B|t)", {"ab", "t"}),
        ("a*?b", {"ab"}),
    ],
)
def test_what_re2_has_beyond_python(pattern: str, expected: set[str]) -> None:
    assert matching(pattern) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "a)", "(a", "[a", "[", "\\", "*", "+a", "a**", "a+*", "|*", "(?i)*", "a{2}{3}", "(?P<>a)", "(?P<a"),
        *("(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", r"(a)\1", r"\k<n>", "(?#c)a", "(?>a)", "(?q)a", r"\h"),
        *("[z-a]", "[[:nope:]]", r"\p{Nope}", r"\x{}", r"\xg1", r"\x{110000}", r"a{2,1}", "a{1001}", r"[a-\d]"),
        "a" * (PATTERN_LENGTH_MAX + 1),
        "(a{100}){100}",
        "((a|b|.)?){1000}x",
    ],
)
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        NamePattern(pattern)


literals = st.sampled_from("ab.-")
patterns = st.recursive(
    st.one_of(literals.map(re.escape), st.sampled_from(["[ab]", "[^a]", ".", "", "^", "$", r"\b", r"\B"])),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@given(pattern=patterns, names=st.lists(st.text("ab.-", min_size=1, max_size=6), min_size=1))
def test_random_patterns_agree_with_python(pattern: str, names: list[str]) -> None:
    compiled = NamePattern(pattern)
    assert [compiled.matches(name) for name in names] == [bool(re.fullmatch(pattern, name)) for name in names]


def test_a_pattern_that_would_take_python_years_takes_no_time() -> None:
    pattern = NamePattern("((a+)+)+b")
    assert not pattern.matches("a" * 249)
    assert pattern.matches("a" * 248 + "b")


def catalog(**counts: int) -> TopicCatalog:
    topics = ClusterTopics()
    for name, count in counts.items():
        topics.put(name, count)
    return TopicCatalog(topics)


def test_a_resolved_pattern_follows_the_topics_that_change() -> None:
    found = catalog(ta=1, tb=1, u=1)
    assert found.resolve("t.*") == {"ta", "tb"}
    topics = found.topics
    assert isinstance(topics, ClusterTopics)
    topics.put("tc", 1)
    topics.delete("ta")
    # It is told what changed, and does not look for itself.
    assert found.resolve("t.*") == {"ta", "tb"}
    found.changed(["tc", "ta"])
    assert found.resolve("t.*") == {"tb", "tc"}


def test_only_so_many_patterns_are_kept() -> None:
    found = catalog(t=1)
    for number in range(PATTERNS_MAX + 5):
        found.resolve(f"t|{number}")
    assert len(found._patterns) == PATTERNS_MAX
    assert found.resolve("t|0") == {"t"}


def test_only_so_many_names_are_kept_with_patterns() -> None:
    """Hundreds of patterns may match all topics of a large cluster."""
    topics = ClusterTopics()
    for number in range(NAMES_MAX // 10):
        topics.put(f"t{number}", 1)
    found = TopicCatalog(topics)
    for number in range(15):
        assert len(found.resolve(f"t.*|{number}")) == NAMES_MAX // 10
    assert len(found._patterns) == 10
    assert "t.*|14" in found._patterns
    # Topics that change are remembered until the pattern is needed.
    found.changed([f"t{number}" for number in range(1_000)])
    assert len(found._patterns) == 9
    assert len(found.resolve("t.*|14")) == NAMES_MAX // 10


def test_what_was_used_of_late_is_kept() -> None:
    found = catalog(t=1)
    for number in range(PATTERNS_MAX):
        found.resolve(f"t|{number}")
    found.resolve("t|0")
    found.resolve("another")
    assert "t|0" in found._patterns
    assert "t|1" not in found._patterns


def test_a_pattern_that_takes_long_to_match_with_all_topics_is_refused() -> None:
    topics = ClusterTopics()
    for number in range(1_000):
        topics.put(f"t{number}", 1)
    used_s = 0.0

    def cpu_s() -> float:
        nonlocal used_s
        used_s += cost_s
        return used_s

    found = TopicCatalog(topics, cpu_s)
    cost_s = 0.001
    assert len(found.resolve("t.*")) == 1_000
    cost_s = 0.01
    with pytest.raises(ApiError, match="matching it with 1000 topics takes too long") as refused:
        found.resolve("t.*|slow")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_the_hash_detects_any_change_that_matters_for_an_assignment() -> None:
    found = catalog(t=2, u=2)
    topics = found.topics
    assert isinstance(topics, ClusterTopics)

    def seen(*names: str) -> int:
        found.changed(["t", "u"])
        return found.metadata_hash(names)

    before = seen("t")
    assert seen("t", "missing") == before
    assert seen("t", "u") != before
    assert seen("u", "t") == seen("t", "u")
    topics.put("t", 3)
    grown = seen("t")
    assert grown != before
    topics.rack_of["t", 1] = frozenset({"east"})
    racked = seen("t")
    assert racked != grown
    topics.rack_of["t", 1], topics.rack_of["t", 2] = frozenset(), frozenset({"east"})
    assert seen("t") not in (grown, racked)
    topics.delete("t")
    assert seen("t") == 0
    topics.put("t", 2)
    assert seen("t") not in (0, before)
    assert -(2**63) <= grown < 2**63
