"""What is kept under many names, and how much of it belongs to the names that one right gives a client.

A right to names that begin alike gives a client any number of them. Each may be bounded by itself; this bounds all of
them together, without a record of which client has caused what.
"""

from __future__ import annotations

from collections.abc import Callable

# Prefixes whose bytes are kept up to date; they come from access lists, so there are few that matter at a time.
PREFIXES_MAX = 1_000

# Returns how all names begin that the client's right gives it, "" if those are all names; None where there is no limit.
WidestPrefix = Callable[[], str | None]


class KeptBytes:
    """Bytes by name. Nothing but the total is looked at while that is below the limit."""

    __slots__ = ("_lengths", "_limit", "_of", "_prefixes", "total")

    def __init__(self, limit: int = 2**63) -> None:
        self._limit = limit
        self._of: dict[str, int] = {}
        self._prefixes: dict[str, int] = {}
        self._lengths: set[int] = set()
        self.total = 0

    def add(self, name: str, change: int) -> None:
        """More is kept under a name, or less."""
        self.total += change
        left = self._of.get(name, 0) + change
        assert left >= 0, name
        if left:
            self._of[name] = left
        else:
            self._of.pop(name, None)
        for length in self._lengths:
            prefix = name[:length]
            if length <= len(name) and prefix in self._prefixes:
                self._prefixes[prefix] += change

    def has_room(self, widest_prefix: WidestPrefix | None) -> bool:
        """Whether a client may have more kept by its right to some names; without one it may."""
        if self.total < self._limit or widest_prefix is None:
            return True
        prefix = widest_prefix()
        return prefix is None or self.under(prefix) < self._limit

    def under(self, prefix: str) -> int:
        """What is kept under all names that begin like this."""
        known = self._prefixes.get(prefix)
        if known is not None:
            return known
        if len(self._prefixes) >= PREFIXES_MAX:
            self._prefixes.clear()
            self._lengths.clear()
        found = sum(size for name, size in self._of.items() if name.startswith(prefix))
        self._prefixes[prefix] = found
        self._lengths.add(len(prefix))
        return found
