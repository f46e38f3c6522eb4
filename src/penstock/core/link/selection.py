"""Which topics of the source a link mirrors: patterns with `*` and `?`, of which the excluding ones win.

Internal topics are never mirrored. A pattern that does not begin with an underscore matches no name that does, so that
`*` leaves out what Penstock and others keep for themselves (`_audit`, `_schemas`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.errors import ApiError, ErrorCode

INTERNAL_PREFIX = "__"
PATTERNS_MAX = 1_000
_LEGAL = re.compile(r"[a-zA-Z0-9._*?-]{1,249}")


class TopicSelection(NamedTuple):
    """The patterns of a link."""

    topics: Sequence[str]
    exclude: Sequence[str] = ()

    def check(self) -> None:
        """Raises INVALID_REQUEST for patterns that cannot be recorded."""
        if not self.topics:
            raise ApiError(ErrorCode.INVALID_REQUEST, "name the topics to mirror: patterns such as orders or shop.*")
        if len(self.topics) + len(self.exclude) > PATTERNS_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a link has at most {PATTERNS_MAX} patterns")
        for pattern in (*self.topics, *self.exclude):
            if not _LEGAL.fullmatch(pattern):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"{pattern!r} matches no topic: patterns have letters, digits, '.', '_', '-', '*' and '?'",
                )

    def matches(self, topic: str) -> bool:
        """Whether the source's topic is mirrored."""
        if topic.startswith(INTERNAL_PREFIX):
            return False
        return any(_matches(one, topic) for one in self.topics) and not any(
            _matches(one, topic) for one in self.exclude
        )


class GroupSelection(NamedTuple):
    """The patterns of the groups whose offsets come along."""

    groups: Sequence[str]

    def matches(self, group: str) -> bool:
        """Whether a group's offsets are committed here."""
        return any(_covers(one, group) for one in self.groups)


def _matches(pattern: str, topic: str) -> bool:
    if topic.startswith("_") and not pattern.startswith("_"):
        return False
    if "*" not in pattern and "?" not in pattern:
        return pattern == topic
    return _covers(pattern, topic)


def _covers(pattern: str, text: str) -> bool:
    """Whether a glob matches all of a text, in linear steps: a pattern comes from a user."""
    position = start = 0
    star = resume = -1
    while position < len(text):
        if start < len(pattern) and pattern[start] in ("?", text[position]) and pattern[start] != "*":
            position += 1
            start += 1
        elif start < len(pattern) and pattern[start] == "*":
            star, resume = start, position
            start += 1
        elif star >= 0:
            resume += 1
            position, start = resume, star + 1
        else:
            return False
    return not pattern[start:].strip("*")
