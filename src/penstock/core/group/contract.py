"""The group coordinator's view of the cluster, and its settings; core/contract.py describes how its shell drives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.core.contract import Caller, Effects, ProducerIdentity, Record, Reply, Timer, TimerKey, Token
from penstock.model.ids import Uuid

__all__ = [
    "Bounded",
    "Caller",
    "Effects",
    "GroupSettings",
    "ProducerIdentity",
    "Record",
    "Reply",
    "Timer",
    "TimerKey",
    "Token",
    "Topics",
]


class Topics(Protocol):
    """The cluster's topics, always as of the latest committed metadata."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, or None when there is no such topic."""

    def topic_id(self, topic: str) -> Uuid | None:
        """The id of a topic."""

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic, or None after it was deleted."""

    def names(self) -> Sequence[str]:
        """Every topic's name, for subscriptions by pattern."""

    def racks(self, topic: str, partition: int) -> frozenset[str]:
        """The racks that hold a replica of a partition; empty where brokers have none."""


class Bounded(NamedTuple):
    """A number that the broker sets, and the bounds of those that groups set themselves."""

    default: int
    least: int
    most: int

    def of(self, own: str | None) -> int:
        """A group's own number within the bounds, or the broker's."""
        return self.default if own is None else min(max(int(own), self.least), self.most)


_SESSION_TIMEOUT = Bounded(45_000, 45_000, 60_000)
_HEARTBEAT_INTERVAL = Bounded(5_000, 5_000, 15_000)
_ASSIGNMENT_INTERVAL = Bounded(1_000, 0, 15_000)
_STANDBY_REPLICAS = Bounded(0, 0, 2)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's group settings, in milliseconds and with Kafka's defaults."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    # Of all members of a group together.
    metadata_bytes_max: int = 16 * 1024 * 1024
    # Of all groups of a shard that a client may use by one right.
    prefix_bytes_max: int = 64 * 1024 * 1024
    consumer_session_timeout_ms: Bounded = _SESSION_TIMEOUT
    consumer_heartbeat_interval_ms: Bounded = _HEARTBEAT_INTERVAL
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    share_session_timeout_ms: Bounded = _SESSION_TIMEOUT
    share_heartbeat_interval_ms: Bounded = _HEARTBEAT_INTERVAL
    share_max_size: int = 200
    streams_session_timeout_ms: Bounded = _SESSION_TIMEOUT
    streams_heartbeat_interval_ms: Bounded = _HEARTBEAT_INTERVAL
    streams_initial_rebalance_delay_ms: int = 3_000
    streams_assignment_interval_ms: Bounded = _ASSIGNMENT_INTERVAL
    streams_max_size: int = 2**31 - 1
    streams_num_standby_replicas: Bounded = _STANDBY_REPLICAS
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    offset_metadata_max_bytes: int = 4096
