"""What consumer groups need to know of the cluster's topics: which ones a pattern means, and whether they changed.

A group remembers a hash over its topics, as of the last time its epoch was bumped. If the topics have another hash at a
member's next heartbeat, the group needs a new assignment. The hash covers what an assignment depends on: ids, numbers
of partitions, and the racks of their replicas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import NamedTuple

from penstock.core.group.contract import Topics
from penstock.core.group.subscription.regex import InvalidPattern, NamePattern
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid

# How many resolved patterns are cached; one that was dropped is resolved again when it is needed.
PATTERNS_MAX = 1_000


class ResolvedRegex(NamedTuple):
    """The topics that a pattern stood for at some time."""

    topics: frozenset[str] = frozenset()
    version: int = 0
    timestamp_ms: int = 0


class TopicCatalog:
    """Topics as a shard's consumer groups see them. What it computes is kept until `changed` is told of a topic."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self._hashes: dict[str, bytes] = {}
        self._patterns: dict[str, tuple[NamePattern, set[str]]] = {}
        # Counts the times that topics changed, so that groups know whether their patterns are up to date.
        self.version = 1

    def changed(self, names: Collection[str]) -> None:
        """These topics are new, different or gone."""
        self.version += 1
        for name in names:
            self._hashes.pop(name, None)
        existing = [name for name in names if self.topics.partition_count(name) is not None]
        for pattern, found in self._patterns.values():
            found.difference_update(names)
            found |= pattern.matching(existing)

    def resolve(self, regex: str) -> frozenset[str]:
        """The topics whose names match; raises INVALID_REGULAR_EXPRESSION for a pattern that cannot be used."""
        known = self._patterns.get(regex)
        if known is None:
            try:
                pattern = NamePattern(regex)
                known = (pattern, pattern.matching(self.topics.names()))
            except InvalidPattern as error:
                reason = f"The regular expression {regex!r} of the subscription cannot be used: {error}."
                raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, reason) from None
            if len(self._patterns) >= PATTERNS_MAX:
                del self._patterns[next(iter(self._patterns))]
            self._patterns[regex] = known
        return frozenset(known[1])

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
