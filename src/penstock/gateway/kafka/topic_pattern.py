"""Translates topic patterns from Java's and Python's syntax to librdkafka's.

librdkafka uses POSIX extended expressions, which match in bounded time. They have neither `\\d` nor
`(?:…)`, and a backslash in brackets is literal; so an expression is parsed by Python's parser and rewritten. Topic
names use few characters, so every character set becomes a short list.
"""

from __future__ import annotations

import re
import string
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

ALPHABET = string.ascii_letters + string.digits + "._-"
# A character that no topic name contains: an expression that requires it matches nothing.
NEVER = "[/]"
# The C library expands repetitions when it compiles an expression.
EXPANDED_MAX = 20_000
CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
}
PLAIN_ANCHORS = (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING, codes.AT_END, codes.AT_END_STRING)


class PatternUnusable(Exception):
    """The pattern is not a valid regular expression, or one that librdkafka cannot match."""


def posix_pattern(pattern: str) -> str:
    """The subscription for topic names that the pattern matches entirely; raises PatternUnusable if there is none."""
    try:
        parsed = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternUnusable(f"it is not a valid regular expression: {error}") from None
    if parsed.state.flags & ~re.UNICODE.value:
        raise PatternUnusable("flags such as (?i) are not supported: list the letters in brackets")
    text, size = _sequence(parsed)
    if size > EXPANDED_MAX:
        raise PatternUnusable(f"its repetitions come to more than {EXPANDED_MAX} characters: repeat less")
    return f"^({text})$"


def _sequence(items: Any) -> tuple[str, int]:
    """The items in sequence, and their length with all repetitions expanded."""
    written = [_item(code, argument) for code, argument in items]
    return "".join(text for text, _ in written) or "()", 1 + sum(size for _, size in written)


def _item(code: object, argument: Any) -> tuple[str, int]:
    if code is codes.ANY:
        return ".", 1
    if code in (codes.LITERAL, codes.NOT_LITERAL):
        return _characters([(code, argument)]), 1
    if code is codes.IN:
        return _characters(argument), 1
    if code is codes.AT and argument in PLAIN_ANCHORS:
        return "^" if argument in PLAIN_ANCHORS[:2] else "$", 1
    if code is codes.SUBPATTERN and not argument[1] and not argument[2]:
        text, size = _sequence(argument[3])
        return f"({text})", size
    if code is codes.BRANCH:
        branches = [_sequence(branch) for branch in argument[1]]
        return f"({'|'.join(text for text, _ in branches)})", sum(size for _, size in branches)
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        least, most, repeated = argument
        text, size = _sequence(repeated)
        unbounded = most is codes.MAXREPEAT
        bounds = f"{{{least},{'' if unbounded else most}}}"
        return f"({text}){bounds}", size * max(1, least if unbounded else int(most))
    raise PatternUnusable("lookarounds, backreferences and word boundaries are not supported")


def _characters(alternatives: Any) -> str:
    """A bracket expression of the topic-name characters that one of the alternatives matches."""
    negated = any(code is codes.NEGATE for code, _ in alternatives)
    chosen = "".join(each for each in ALPHABET if any(_is_one(each, *one) for one in alternatives) is not negated)
    if chosen == ALPHABET:
        return "."
    return f"[{chosen}]" if chosen else NEVER


def _is_one(character: str, code: object, argument: Any) -> bool:
    point = ord(character)
    if code is codes.LITERAL:
        return point == int(argument)
    if code is codes.NOT_LITERAL:
        return point != int(argument)
    if code is codes.RANGE:
        return bool(argument[0] <= point <= argument[1])
    if code is codes.CATEGORY:
        return re.match(CATEGORIES[argument], character) is not None
    return False
