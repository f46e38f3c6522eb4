"""A shell for one group shard: a clock that stands still until told, timers, and a log of encoded records.

It keeps the order that coordinators rely on: records are appended and replayed, then timers are set and replies sent.
Every token may be answered once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from random import Random
from typing import Any

from penstock.core.group.contract import Caller, Effects, GroupSettings, Record, TimerKey
from penstock.core.group.offsets.offsets import OFFSET_BYTES
from penstock.core.group.shard import GROUP_BYTES, GroupShard
from penstock.model.ids import ZERO_UUID, Uuid
from penstock.wire.frame import decode_coordinator_key, decode_versioned, encode_coordinator_key, encode_versioned

CLIENT_HOST = "/127.0.0.1"


class NoTopics:
    """A cluster whose topics have no partitions; classic groups never look at them."""

    def partition_count(self, _topic: str) -> int | None:
        return None

    def topic_id(self, _topic: str) -> Uuid | None:
        return ZERO_UUID

    def topic_name(self, _topic_id: Uuid) -> str | None:
        return None

    def names(self) -> list[str]:
        return []

    def racks(self, _topic: str, _partition: int) -> frozenset[str]:
        return frozenset()


def check_kept_bytes(shard: GroupShard) -> None:
    """What a shard counts as kept is what it has."""
    offsets, found = shard._offsets, Counter[str]()
    for by_group in (offsets._by_group, *offsets._pending.values()):
        for group_id, topics in by_group.items():
            for topic, partitions in topics.items():
                sizes = (OFFSET_BYTES + len(topic) + len(one.metadata) for one in partitions.values())
                found[group_id] += sum(sizes)
    for encoded, size in offsets._stored_bytes.items():
        assert size == sum(len(key) + len(value) for key, value in offsets._stored[encoded].items())
        found[encoded.decode()] += size
    for group_id, group in shard._groups.items():
        found[group_id] += GROUP_BYTES + len(group_id) + group.metadata_bytes
    kept = shard._kept
    assert kept._of == +found
    assert kept.total == found.total()
    for prefix, size in kept._prefixes.items():
        assert size == sum(of for name, of in found.items() if name.startswith(prefix))


class GroupWorld:
    """One shard, driven by hand."""

    def __init__(self, settings: GroupSettings | None = None, seed: int = 0) -> None:
        self.settings = settings or GroupSettings()
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[TimerKey, int] = {}
        self.tokens_open: set[int] = set()
        self.responses: dict[int, Any] = {}
        self.shard = self._new_shard()
        self.observer: Callable[[Effects], None] = lambda _effects: None
        self._next_token = 0
        # The topics that the caller may know of; None for all.
        self.may_describe: Callable[[str], bool] | None = None
        # How all names begin that its right gives it; None where there are no limits.
        self.widest_prefix: Callable[[], str | None] | None = None

    def ask(self, method: str, request: Any, version: int = 9, client: str = "client") -> int:
        """Send a request; the token finds its response, now or later."""
        token = self._next_token
        self._next_token += 1
        self.tokens_open.add(token)
        caller = Caller(client, CLIENT_HOST, version, self.may_describe, self.widest_prefix)
        self.perform(attrgetter(method)(self.shard)(request, caller, token, self.now_ms))
        return token

    def answer(self, method: str, request: Any, version: int = 9, client: str = "client") -> Any:
        """Send a request that is answered at once."""
        return self.responses.pop(self.ask(method, request, version, client))

    def delete_group(self, group_id: str) -> Any:
        """Delete a group; the response is an error code."""
        token = self._next_token
        self._next_token += 1
        self.tokens_open.add(token)
        self.perform(self.shard.delete_group(group_id, token, self.now_ms))
        return self.responses.pop(token)

    def perform(self, effects: Effects) -> None:
        """Do what the shard asks for."""
        for record in effects.records:
            self._append(record)
        for timer in effects.timers:
            self.timers.pop(timer.key, None)
            if timer.deadline_ms is not None:
                self.timers[timer.key] = timer.deadline_ms
        for token, response in effects.replies:
            assert isinstance(token, int)
            assert token in self.tokens_open, f"request {token} was answered twice"
            self.tokens_open.remove(token)
            self.responses[token] = response
        check_kept_bytes(self.shard)
        self.observer(effects)

    def _append(self, record: Record) -> None:
        value = None if record.value is None else encode_versioned(record.value, record.value_version)
        self.shard.replay(record.key, record.value, len(self.log))
        self.log.append((encode_coordinator_key(record.key), value))

    def advance(self, milliseconds: int) -> None:
        """Let time pass; timers fire in their order."""
        until_ms = self.now_ms + milliseconds
        while True:
            key = min(self.timers, key=self.timers.__getitem__, default=None)
            if key is None or self.timers[key] > until_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.perform(self.shard.timer_fired(key, self.now_ms))
        self.now_ms = until_ms

    def replayed(self, *, latest_only: bool = False) -> GroupShard:
        """Another shard that knows only the log."""
        shard = self._new_shard()
        records = list(enumerate(self.log))
        if latest_only:
            newest = {key: (offset, (key, value)) for offset, (key, value) in records}
            records = [row for row in sorted(newest.values()) if row[1][1] is not None]
        for offset, (key, value) in records:
            message, classes = decode_coordinator_key("group", key)
            shard.replay(message, None if value is None else decode_versioned(classes.value, value), offset)
        return shard

    def reload(self) -> None:
        """The coordinator dies and another one takes over; waiting requests are never answered by the old one."""
        self.timers.clear()
        self.tokens_open.clear()
        self.shard = self.replayed(latest_only=True)
        self.perform(self.shard.loaded(self.now_ms))

    def _new_shard(self) -> GroupShard:
        return GroupShard(self.settings, NoTopics(), self.random, lambda _group: {})
