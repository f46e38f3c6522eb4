"""Matches names against a pattern: topics against a subscription's, transactional ids against that of ListTransactions.

Kafka reads these patterns with RE2/J, which takes time linear in the name. Python's `re` accepts patterns that RE2
refuses (look-around, back-references) and may never finish on others, so a client could stop the coordinator with one.
"""

from __future__ import annotations

from collections.abc import Iterable

import re2

PATTERN_LENGTH_MAX = 4_096
# For the compiled program and its cached states; a pattern whose repeats need more is refused. Where its states don't
# fit, a name takes time in proportion to the program: half a millisecond with this much, 20 with a megabyte.
MEMORY_BYTES_MAX = 128 * 1024


class InvalidPattern(ValueError):
    """A pattern that cannot be read, or that needs too much; the text is the reason."""


class NamePattern:
    """A compiled pattern. Raises InvalidPattern if it cannot be read or is too large."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise InvalidPattern(f"it has more than {PATTERN_LENGTH_MAX} characters")
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = MEMORY_BYTES_MAX
        try:
            self._compiled = re2.compile(pattern, options)
        except (re2.error, UnicodeEncodeError) as error:
            raise InvalidPattern(_reason(error)) from None

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        return self._compiled.fullmatch(name) is not None

    def matching(self, names: Iterable[str]) -> set[str]:
        """Those of the names that match."""
        return {name for name in names if self.matches(name)}


def _reason(error: Exception) -> str:
    said = error.args[0]
    return said.decode(errors="replace") if isinstance(said, bytes) else "it is not valid Unicode"
