"""Bounds the cost of untrusted regular expressions.

Python's `re` backtracks, and meanwhile nothing else in the process runs. Some expressions make it try exponentially
many ways. This computes from an expression alone an upper bound of the steps for a text of a given length; as a worst
case, it may be too high but never too low.
"""

from __future__ import annotations

import math
import re
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

# About 20 milliseconds.
STEPS_MAX = 1_000_000
PATTERN_LENGTH_MAX = 10_000

REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


def is_expression(pattern: str) -> bool:
    """Whether it is a valid expression."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def is_quick(pattern: str, length: int) -> bool:
    """Whether a search in a text of this length certainly finishes soon. False for invalid expressions."""
    return steps(pattern, length) <= STEPS_MAX


def steps(pattern: str, length: int) -> float:
    """An upper bound of a search's steps; infinite if it grows faster than any power of the length."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        return math.inf
    try:
        parsed = list(parser.parse(pattern))
    except (re.error, RecursionError, OverflowError):
        return math.inf
    anchored = bool(parsed) and parsed[0] == (codes.AT, codes.AT_BEGINNING)
    return _ways(parsed, length, inside=False) * len(pattern) * (1 if anchored else length + 1)


def _ways(items: Any, length: int, *, inside: bool) -> float:
    """In how many ways items can match. Within a repetition, more than one way means exponentially many."""
    ways = 1.0
    for code, argument in items:
        if code in REPEATS:
            least, most, repeated = argument
            ways *= _ways_of_repeat(least, most, repeated, length, inside=inside)
        elif code is codes.SUBPATTERN:
            ways *= _ways(argument[-1], length, inside=inside)
        elif code is codes.ATOMIC_GROUP:
            ways *= _ways(argument, length, inside=inside)
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            ways *= _ways(argument[1], length, inside=inside)
        elif code is codes.BRANCH:
            ways *= math.inf if inside else sum(_ways(branch, length, inside=inside) for branch in argument[1])
        elif code in (codes.GROUPREF, codes.GROUPREF_IGNORE, codes.GROUPREF_EXISTS):
            return math.inf
        if ways == math.inf:
            break
    return ways


def _ways_of_repeat(least: int, most: int, items: object, length: int, *, inside: bool) -> float:
    if least == most:
        within = _ways(items, length, inside=inside)
        return within if within == 1 else math.inf if least > 1 else within
    if inside or _ways(items, length, inside=True) > 1:
        return math.inf
    return float(min(int(most) - least, length) + 1)
