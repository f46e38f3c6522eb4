"""Regular expressions of other people: how long they may take.

Python's `re` goes back and tries again, and while it does nothing else in the process runs. Some expressions make it
try more ways than anybody can wait for. This tells from an expression alone how many steps a text of some length could
take; it is a bound for the worst case, so it may say too much, never too little.
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
    """Whether it can be used at all."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def is_quick(pattern: str, length: int) -> bool:
    """Whether a search in a text of this length is surely over soon. False for what is no expression."""
    return steps(pattern, length) <= STEPS_MAX


def steps(pattern: str, length: int) -> float:
    """How many steps a search could take at most; infinite where that grows faster than any power of the length."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        return math.inf
    try:
        parsed = list(parser.parse(pattern))
    except (re.error, RecursionError, OverflowError):
        return math.inf
    anchored = bool(parsed) and parsed[0] == (codes.AT, codes.AT_BEGINNING)
    return _ways(parsed, length, inside=False) * len(pattern) * (1 if anchored else length + 1)


def _ways(items: Any, length: int, *, inside: bool) -> float:
    """In how many ways items can match. Within a repetition, more than one way is more ways than can be counted."""
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


def _ways_of_repeat(least: int, most: int, items: Any, length: int, *, inside: bool) -> float:
    if least == most:
        within = _ways(items, length, inside=inside)
        return within if within == 1 else math.inf if least > 1 else within
    if inside or _ways(items, length, inside=True) > 1:
        return math.inf
    return float(min(int(most) - least, length) + 1)
