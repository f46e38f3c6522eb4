"""An in-memory broker for tests of applications: topics, groups, transactions and share groups, as they use them.

It guarantees: records keep their order in a partition, keys map to partitions as in Java's client, groups resume from
their commits, messages and offsets of an exactly-once commit appear together, and share groups count deliveries. It
has one member per group, no failures and no retention. The same tests run on it and on a broker.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from penstock.app.context import Message as OutgoingMessage
from penstock.app.processing.key_queue import Partition
from penstock.app.processing.progress import Ranges, decode_ranges
from penstock.app.processing.share_group import deliveries_wanted
from penstock.app.processing.transport import Outcomes, Position, ShareLimits
from penstock.app.subscription import Subscription
from penstock.client.application.delivery import encode_any
from penstock.client.application.serdes import plain_key
from penstock.wire.partitioner import partition_for_key

CREATE_TIME = 1
# How long a read without records waits, as with a broker.
IDLE_S = 0.002
LOCK_S = 30.0


class MemoryMessage(Message):
    """A stored record."""

    deliveries = 0

    def delivery_count(self) -> int | None:
        """How often a share group has delivered it; None if it was never delivered."""
        return self.deliveries or None


class MemoryBroker:
    """Topics and the groups' commits. Topics are created when they are first used."""

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
        for notify in self.listeners.get(message.topic, ()):
            notify(stored)
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
        # The offsets up to which records were taken over: a caller that reads again has taken over those read before.
        self._taken: dict[Partition, int] = {}
        self._assigned: Callable[[dict[Partition, Ranges]], None]

    def open(
        self, assigned: Callable[[dict[Partition, Ranges]], None], revoked: Callable[[list[Partition]], None]
    ) -> None:
        """Assign all partitions."""
        del revoked
        self._assigned = assigned
        self._assign_new_partitions()

    def read(self, max_records: int, timeout_s: float) -> list[Any]:
        """Return the records that are there now."""
        del timeout_s
        self._assign_new_partitions()
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
        """Do nothing: records are only returned by `read`."""

    def is_at_end(self) -> bool:
        """Whether every record has been read and taken over."""
        taken = self._taken
        return all(taken.get(each, 0) >= len(self._broker.logs[each[0]][each[1]]) for each in [*self._next])

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

    def _assign_new_partitions(self) -> None:
        """Assign partitions of topics that are new."""
        found: dict[Partition, Ranges] = {}
        committed = self._broker.commits[self._subscription.group]
        for topic in self._subscription.topics:
            self._broker.create(topic)
            for number, log in enumerate(self._broker.logs[topic]):
                partition = (topic, number)
                if partition not in self._next:
                    first = 0 if self._subscription.start == "earliest" else len(log)
                    offset, metadata = committed.get(partition, (first, ""))
                    self._next[partition] = offset
                    found[partition] = decode_ranges(offset, metadata)
        if found:
            self._assigned(found)


class MemoryShare:
    """The only member of a share group, and its sink."""

    def __init__(self, broker: MemoryBroker, subscription: Subscription) -> None:
        self._broker = broker
        self._topics = subscription.topics
        self._limits = ShareLimits(deliveries_wanted(subscription.policy), LOCK_S)
        self._taken: set[tuple[object, ...]] = set()
        self._released: list[MemoryMessage] = []
        # Whether the last read returned records; a caller that reads again has processed them.
        self._is_processing = False

    def open(self) -> None:
        """Do nothing: the group has one member."""

    def limits(self) -> ShareLimits:
        """The limits that the subscription requires."""
        return self._limits

    def read(self, max_records: int, timeout_s: float) -> list[object]:
        """Return released records, then new ones."""
        del timeout_s
        self._is_processing = False
        found = self._released[:max_records]
        found += self._new()[: max_records - len(found)]
        self._is_processing = bool(found)
        del self._released[:max_records]
        for message in found:
            self._taken.add((message.topic(), message.partition(), message.offset()))
            message.deliveries += 1
        if not found:
            time.sleep(IDLE_S)
        return list(found)

    def is_at_end(self) -> bool:
        """Whether all records are processed, with none released or new."""
        return not (self._is_processing or self._released or self._new())

    def store(self, messages: Sequence[OutgoingMessage]) -> None:
        """Store messages."""
        for message in messages:
            self._broker.append(message)

    def acknowledge(self, outcomes: Outcomes) -> None:
        """Acknowledge records; released ones are delivered again."""
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

    def open(self, topic: str, received: Callable[[object], None]) -> None:
        """Call `received` with each record that is stored in a topic from now on."""
        self._topic = topic
        self._broker.listeners[topic].append(received)

    def send(self, message: OutgoingMessage) -> None:
        """Store a request."""
        self._broker.append(message)

    def close(self) -> None:
        """Stop receiving."""
        self._broker.listeners.pop(self._topic, None)


def _as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _pairs(headers: Any) -> list[tuple[str, Any]]:
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers or ())
