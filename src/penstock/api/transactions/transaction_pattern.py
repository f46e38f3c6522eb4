"""Patterns for transactional ids, in the syntax that Java's and Python's regular expressions share.

A pattern must match the whole id. Python's backtracking can take practically forever for some patterns, and the whole
broker waits with it. So these are rejected: repeated groups, back-references, look-around, and more than a few repeats
in one pattern. Kafka accepts them, and takes the risk.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

from penstock.model.errors import ApiError, ErrorCode

PATTERN_LENGTH_MAX = 1_000
REPEATS_MAX = 4

# An escape, a class as a whole, a group's kind, or any other character.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?:[:=!>]|<[=!]|P?<\w+>|[a-zA-Z-]*[:)])|.", re.DOTALL)
_REPEATS = frozenset("*+{")


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A function that says whether an id matches; raises INVALID_REGULAR_EXPRESSION with the reason."""
    reason = _check(pattern)
    if reason:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"the pattern {pattern[:100]!r} {reason}")
    try:
        with warnings.catch_warnings():
            # Syntax that Python may interpret differently in the future is not allowed.
            warnings.simplefilter("error")
            compiled = re.compile(pattern)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"the pattern {pattern[:100]!r} cannot be read: {error}"
        ) from error
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


def _check(pattern: str) -> str:
    if len(pattern) > PATTERN_LENGTH_MAX:
        return f"is longer than {PATTERN_LENGTH_MAX} characters"
    repeats = 0
    previous = ""
    for match in _TOKEN.finditer(pattern):
        token = match[0]
        if token[0] == "\\" and (token[1:].isdigit() or token[1:] in ("k", "g")):
            return "has a back-reference"
        if token.startswith(("(?=", "(?!", "(?<=", "(?<!", "(?>")):
            return "uses look-around"
        if token in _REPEATS:
            repeats += 1
            if previous == ")":
                return "repeats a group"
        previous = token
    return f"has more than {REPEATS_MAX} repeats" if repeats > REPEATS_MAX else ""
