"""The group coordinator's view of the cluster, and its settings; core/contract.py describes how its shell drives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.contract import Caller, Effects, ProducerIdentity, Record, Reply, Timer, TimerKey, Token
from penstock.model.ids import Uuid

__all__ = [
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
    "bounded",
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
    share_session_timeout_ms: int = 45_000
    share_min_session_timeout_ms: int = 45_000
    share_max_session_timeout_ms: int = 60_000
    share_heartbeat_interval_ms: int = 5_000
    share_min_heartbeat_interval_ms: int = 5_000
    share_max_heartbeat_interval_ms: int = 15_000
    share_max_size: int = 200
    streams_session_timeout_ms: int = 45_000
    streams_min_session_timeout_ms: int = 45_000
    streams_max_session_timeout_ms: int = 60_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_min_heartbeat_interval_ms: int = 5_000
    streams_max_heartbeat_interval_ms: int = 15_000
    streams_initial_rebalance_delay_ms: int = 3_000
    streams_assignment_interval_ms: int = 1_000
    streams_min_assignment_interval_ms: int = 0
    streams_max_assignment_interval_ms: int = 15_000
    streams_max_size: int = 2**31 - 1
    streams_num_standby_replicas: int = 0
    streams_max_standby_replicas: int = 2
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    offset_metadata_max_bytes: int = 4096


def bounded(own: str | None, default: int, least: int, most: int) -> int:
    """A group's own number within the broker's bounds, or the broker's default."""
    return default if own is None else min(max(int(own), least), most)
