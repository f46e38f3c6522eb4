"""How a coordinator core and the shell around it talk.

A request comes with a token. The core answers with `Effects`: records to append to the coordinator's partition, replies
by token, and timers to set. A reply may come at once, or with a later event: a JoinGroup is answered when the whole
rebalance is, so one event can answer many tokens.

The shell appends the records first. It then calls `replay` with each of them, in order, which is the only thing that
changes durable state, and sends the replies once the records are committed. If the append fails, the shell drops the
whole shard and loads it again, so the core need not undo anything.

Soft state (who waits in a rebalance, session deadlines) lives in the core and is not replayed: a coordinator that takes
over starts with none of it, and members that are still there come back by themselves.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from penstock.model.ids import Uuid

Token = Hashable
TimerKey = tuple[str, ...]


class Caller(NamedTuple):
    """Who sent a request. `host` is the peer's address as Kafka shows it, such as /127.0.0.1."""

    client_id: str
    host: str
    api_version: int


class Record(NamedTuple):
    """One record of the coordinator's log, as messages. A `value` of None is a tombstone."""

    key: Any
    value: Any
    value_version: int = 0


class Reply(NamedTuple):
    """The answer to the request that came with `token`."""

    token: Token
    response: Any


class Timer(NamedTuple):
    """Have `timer_fired(key)` called at `deadline_ms`; a later Timer with the same key replaces it, None cancels it."""

    key: TimerKey
    deadline_ms: int | None


@dataclass(slots=True)
class Effects:
    """What the shell must do: append, then reply; and set the timers."""

    records: list[Record] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)

    def merge(self, other: Effects) -> None:
        """Take another event's effects along, after our own."""
        self.records += other.records
        self.replies += other.replies
        self.timers += other.timers


class Topics(Protocol):
    """What a coordinator may ask about the cluster's topics; always the committed metadata of the moment."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, or None when there is no such topic."""

    def topic_id(self, topic: str) -> Uuid | None:
        """The id of a topic."""

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic, or None once it was deleted."""

    def names(self) -> Sequence[str]:
        """Every topic's name, for subscriptions by pattern."""

    def racks(self, topic: str, partition: int) -> frozenset[str]:
        """The racks that hold a replica of a partition; empty where brokers have none."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's group settings, in milliseconds and with Kafka's defaults."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    offset_metadata_max_bytes: int = 4096
