"""What consumer groups need to know of the cluster's topics: which ones a pattern means, and whether they changed.

A group remembers a hash over its topics, as of the last time its epoch was bumped. If the topics have another hash at a
member's next heartbeat, the group needs a new assignment. The hash covers what an assignment depends on: ids, numbers
of partitions, and the racks of their replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from penstock.core.group.contract import Topics
from penstock.core.group.subscription.regex import InvalidPattern, NamePattern
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid

# How many resolved patterns are cached, and how many names with them; what is dropped, what was used longest ago, is
# resolved again when it is needed.
PATTERNS_MAX = 100
NAMES_MAX = 100_000
# What it takes to match a pattern with all topics. Everyday ones take a microsecond or two for each.
MATCHING_S_MAX = 0.05
MATCHING_S_MAX_PER_NAME = 10e-6
# So many names are matched between two looks at the clock.
NAMES_PER_LOOK = 32


class ResolvedRegex(NamedTuple):
    """The topics that a pattern stood for at some time."""

    topics: frozenset[str] = frozenset()
    version: int = 0
    timestamp_ms: int = 0


@dataclass(slots=True)
class _Cached:
    """A pattern with the topics that it matched; those in `changed` have come, changed or gone since."""

    pattern: NamePattern
    found: frozenset[str]
    changed: set[str] = field(default_factory=set)

    @property
    def names_count(self) -> int:
        """How many names it takes the memory for."""
        return len(self.found) + len(self.changed)


class TopicCatalog:
    """Topics as a shard's consumer groups see them. What it computes is kept until `changed` is called with a topic."""

    def __init__(self, topics: Topics, cpu_s: Callable[[], float] = lambda: 0.0) -> None:
        """`cpu_s` is the processor time that was used so far, by which matching is limited."""
        self.topics = topics
        self.cpu_s = cpu_s
        self._hashes: dict[str, bytes] = {}
        # In the order of their last use.
        self._patterns: dict[str, _Cached] = {}
        # Counts the times that topics changed, so that groups know whether their patterns are up to date.
        self.version = 1

    def changed(self, names: Collection[str]) -> None:
        """These topics are new, different or gone."""
        self.version += 1
        for name in names:
            self._hashes.pop(name, None)
        # They are matched when a pattern is needed, rather than with all patterns at once.
        for cached in self._patterns.values():
            cached.changed.update(names)
        self._evict()

    def resolve(self, regex: str) -> frozenset[str]:
        """The topics whose names match; raises INVALID_REGULAR_EXPRESSION for a pattern that cannot be used."""
        cached = self._patterns.pop(regex, None)
        try:
            if cached is None:
                pattern = NamePattern(regex)
                cached = _Cached(pattern, frozenset(self._matching(pattern, self.topics.names())))
            elif cached.changed:
                existing = [name for name in cached.changed if self.topics.partition_count(name) is not None]
                found = cached.found - cached.changed | self._matching(cached.pattern, existing)
                cached = _Cached(cached.pattern, found)
        except InvalidPattern as error:
            reason = f"The regular expression {regex!r} of the subscription cannot be used: {error}."
            raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, reason) from None
        self._patterns[regex] = cached
        self._evict()
        return cached.found

    def _matching(self, pattern: NamePattern, names: Sequence[str]) -> set[str]:
        """Those of the names that match; raises InvalidPattern if that takes too long."""
        limit_s = self.cpu_s() + MATCHING_S_MAX + MATCHING_S_MAX_PER_NAME * len(names)
        found: set[str] = set()
        for start in range(0, len(names), NAMES_PER_LOOK):
            found |= pattern.matching(names[start : start + NAMES_PER_LOOK])
            if self.cpu_s() > limit_s:
                raise InvalidPattern(f"matching it with {len(names)} topics takes too long")
        return found

    def _evict(self) -> None:
        names_count = sum(cached.names_count for cached in self._patterns.values())
        while len(self._patterns) > PATTERNS_MAX or names_count > NAMES_MAX:
            names_count -= self._patterns.pop(next(iter(self._patterns))).names_count

    def ids(self, names: Iterable[str]) -> dict[Uuid, str]:
        """The names of those topics that exist, by id."""
        found = ((self.topics.topic_id(name), name) for name in names)
        return {topic_id: name for topic_id, name in found if topic_id is not None}

    def metadata_hash(self, names: Iterable[str]) -> int:
        """A number that differs if anything about these topics does; topics that don't exist have no part in it."""
        hashes = [self._topic_hash(name) for name in sorted(names)]
        joined = b"".join(hashes)
        return int.from_bytes(blake2b(joined, digest_size=8).digest(), "big", signed=True) if joined else 0

    def _topic_hash(self, name: str) -> bytes:
        topic_id = self.topics.topic_id(name)
        count = self.topics.partition_count(name)
        if topic_id is None or count is None:
            return b""
        known = self._hashes.get(name)
        if known is None:
            state = blake2b(topic_id + name.encode() + count.to_bytes(4, "big"), digest_size=8)
            for partition in range(count):
                racks = self.topics.racks(name, partition)
                if racks:
                    state.update(f"{partition}:{','.join(sorted(racks))};".encode())
            known = self._hashes[name] = state.digest()
        return known
