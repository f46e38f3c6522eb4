"""A broker in memory for tests of applications: topics, groups, transactions and share groups, as far as apps see them.

It claims: records keep their order in a partition, keys choose partitions as with Java's client, groups go on from
what they committed, messages and offsets of an exactly-once commit appear together, and share groups count deliveries.
It has one member per group, no failures and no retention. The same tests run on it and on a broker.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from penstock.app.context import Message as OutgoingMessage
from penstock.app.lines.lane import Partition
from penstock.app.lines.progress import Ranges, decode_ranges
from penstock.app.lines.share_group import deliveries_wanted
from penstock.app.lines.transport import Outcomes, Position, ShareLimits
from penstock.app.subscription import Subscription
from penstock.client.application.delivery import encode_any
from penstock.client.application.serdes import plain_key
from penstock.wire.partitioner import partition_for_key

CREATE_TIME = 1
# A reader that finds nothing waits so long, as a broker would let it wait.
IDLE_S = 0.002
LOCK_S = 30.0


class MemoryMessage(Message):
    """A stored record."""

    deliveries = 0

    def delivery_count(self) -> int | None:
        """How often a share group has handed it out."""
        return self.deliveries or None


class MemoryBroker:
    """Topics and what groups committed. Topics are created when they are first used."""

    def __init__(self, now_ms: Callable[[], int], partitions: int = 3) -> None:
        self._now_ms = now_ms
        self._partitions_default = partitions
        self._keyless = itertools.count()
        self.logs: dict[str, list[list[MemoryMessage]]] = {}
        self.commits: dict[str, dict[Partition, Position]] = defaultdict(dict)
        self.listeners: dict[str, list[Callable[[MemoryMessage], None]]] = defaultdict(list)

    def create(self, topic: str, partitions: int | None = None) -> None:
        """Create a topic, unless it exists."""
        self.logs.setdefault(topic, [[] for _ in range(partitions or self._partitions_default)])

    def append(self, message: OutgoingMessage) -> MemoryMessage:
        """Store a record."""
        self.create(message.topic)
        log = self.logs[message.topic]
        key, value = _as_bytes(plain_key(message.key)), _as_bytes(encode_any(message.value, message.topic))
        number = next(self._keyless) % len(log) if key is None else partition_for_key(key, len(log))
        headers: Any = [(name, _as_bytes(each)) for name, each in _pairs(message.headers)]
        time_ms = (CREATE_TIME, self._now_ms())
        stored = MemoryMessage(message.topic, number, len(log[number]), key, value, headers or None, None, time_ms)
        log[number].append(stored)
        for tell in self.listeners.get(message.topic, ()):
            tell(stored)
        return stored

    def records(self, topic: str) -> list[MemoryMessage]:
        """All records of a topic, partition by partition."""
        return [message for log in self.logs.get(topic, []) for message in log]


class MemorySource:
    """The only member of a group, and its sink."""

    def __init__(self, broker: MemoryBroker, subscription: Subscription) -> None:
        self._broker = broker
        self._subscription = subscription
        self._next: dict[Partition, int] = {}
        # How far everything is taken: whoever reads again has taken what was read.
        self._taken: dict[Partition, int] = {}
        self._assigned: Callable[[dict[Partition, Ranges]], None]

    def open(
        self, assigned: Callable[[dict[Partition, Ranges]], None], revoked: Callable[[list[Partition]], None]
    ) -> None:
        """Take all partitions."""
        del revoked
        self._assigned = assigned
        self._look()

    def read(self, max_records: int, timeout_s: float) -> list[Any]:
        """What is there."""
        del timeout_s
        self._look()
        self._taken = {**self._next}
        found: list[Any] = []
        for (topic, partition), offset in self._next.items():
            taken = self._broker.logs[topic][partition][offset : offset + max_records - len(found)]
            self._next[topic, partition] += len(taken)
            found += taken
        if not found:
            time.sleep(IDLE_S)
        return found

    def pause(self, paused: bool) -> None:
        """Who does not read gets nothing."""

    def is_at_end(self) -> bool:
        """Whether everything has been read and taken."""
        taken = self._taken
        return all(taken.get(place, 0) >= len(self._broker.logs[place[0]][place[1]]) for place in [*self._next])

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Store messages."""
        for message in messages:
            self._broker.append(message)

    def commit(self, messages: Sequence[OutgoingMessage], positions: Mapping[Partition, Position]) -> None:
        """Store messages and positions."""
        self.send(messages)
        self.commit_offsets(positions)

    def commit_offsets(self, positions: Mapping[Partition, Position]) -> None:
        """Store positions."""
        self._broker.commits[self._subscription.group].update(positions)

    def close(self) -> None:
        """Nothing to close."""

    def _look(self) -> None:
        """Take up partitions that are new."""
        found: dict[Partition, Ranges] = {}
        committed = self._broker.commits[self._subscription.group]
        for topic in self._subscription.topics:
            self._broker.create(topic)
            for partition, log in enumerate(self._broker.logs[topic]):
                place = (topic, partition)
                if place not in self._next:
                    first = 0 if self._subscription.start == "earliest" else len(log)
                    offset, metadata = committed.get(place, (first, ""))
                    self._next[place] = offset
                    found[place] = decode_ranges(offset, metadata)
        if found:
            self._assigned(found)


class MemoryShare:
    """The only member of a share group, and its sink."""

    def __init__(self, broker: MemoryBroker, subscription: Subscription) -> None:
        self._broker = broker
        self._topics = subscription.topics
        self._limits = ShareLimits(deliveries_wanted(subscription.policy), LOCK_S)
        self._taken: set[tuple[Any, ...]] = set()
        self._released: list[MemoryMessage] = []
        # Whether the last read found something; whoever reads again has done it.
        self._is_read = False

    def open(self) -> None:
        """Join."""

    def limits(self) -> ShareLimits:
        """Those that the subscription asks for."""
        return self._limits

    def read(self, max_records: int, timeout_s: float) -> list[Any]:
        """What came back, then what is new."""
        del timeout_s
        self._is_read = False
        found = self._released[:max_records]
        found += self._new()[: max_records - len(found)]
        self._is_read = bool(found)
        del self._released[:max_records]
        for message in found:
            self._taken.add((message.topic(), message.partition(), message.offset()))
            message.deliveries += 1
        if not found:
            time.sleep(IDLE_S)
        return list(found)

    def is_at_end(self) -> bool:
        """Whether there is nothing to hand out."""
        return not (self._is_read or self._released or self._new())

    def store(self, messages: Sequence[OutgoingMessage]) -> None:
        """Store messages."""
        for message in messages:
            self._broker.append(message)

    def acknowledge(self, outcomes: Outcomes) -> None:
        """What is released is handed out again."""
        self._released += [message for message, outcome in outcomes if outcome == "release"]

    def close(self) -> None:
        """Nothing to close."""

    def _new(self) -> list[MemoryMessage]:
        return [
            message
            for topic in self._topics
            for message in self._broker.records(topic)
            if (topic, message.partition(), message.offset()) not in self._taken
        ]


class MemoryReplies:
    """Requests of an application, and the replies to them."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._topic = ""

    def open(self, topic: str, received: Callable[[Any], None]) -> None:
        """Tell of what is stored in a topic."""
        self._topic = topic
        self._broker.listeners[topic].append(received)

    def send(self, message: OutgoingMessage) -> None:
        """Store a request."""
        self._broker.append(message)

    def close(self) -> None:
        """Tell no more."""
        self._broker.listeners.pop(self._topic, None)


def _as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _pairs(headers: Any) -> list[tuple[str, Any]]:
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers or ())
