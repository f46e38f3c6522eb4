"""Patterns for transactional ids, which must match the whole id.

They are read with RE2, as patterns of subscriptions are: Python's own expressions may take practically forever, and the
whole broker with them, for an id and a pattern that a client makes for that purpose.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.core.group.subscription.regex import InvalidPattern, NamePattern
from penstock.model.errors import ApiError, ErrorCode

SHOWN_MAX = 100


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A function that returns whether an id matches; raises INVALID_REGULAR_EXPRESSION with the reason."""
    try:
        return NamePattern(pattern).matches
    except InvalidPattern as error:
        text = f"the pattern {pattern[:SHOWN_MAX]!r} cannot be read: {error}"
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from error
