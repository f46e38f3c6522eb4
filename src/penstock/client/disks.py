"""The data directories of brokers: their space, their replicas, and those on their way to another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.ids import TopicPartition
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsResponse

# A disk that is full sooner than this is worth a word.
SOON_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Arriving:
    """A replica that is filled from one in another directory: its size, and how many records it lacks."""

    size_bytes: int
    lag: int


@dataclass(frozen=True, slots=True)
class DiskView:
    """One data directory of a broker. Sizes are None where the broker does not know them."""

    broker: int
    path: str
    is_online: bool
    is_cordoned: bool = False
    total_bytes: int | None = None
    free_bytes: int | None = None
    # None if the disk does not fill, or for too short a time.
    full_in_ms: int | None = None
    replicas: Mapping[TopicPartition, int] = field(default_factory=dict)
    arriving: Mapping[TopicPartition, Arriving] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """What all replicas here need."""
        return sum(self.replicas.values()) + sum(one.size_bytes for one in self.arriving.values())

    @property
    def used_percent(self) -> float | None:
        """How full the disk is, with whatever else is on it."""
        if not self.total_bytes or self.free_bytes is None:
            return None
        return 100 * (1 - self.free_bytes / self.total_bytes)

    @property
    def is_full_soon(self) -> bool:
        """Whether it will be full within a day at this rate."""
        return self.full_in_ms is not None and self.full_in_ms < SOON_MS


def disks_of(broker: int, response: DescribeLogDirsResponse) -> list[DiskView]:
    """The directories in a broker's response."""
    return [
        DiskView(
            broker,
            row.log_dir,
            row.error_code == 0,
            row.is_cordoned,
            row.total_bytes if row.total_bytes >= 0 else None,
            row.usable_bytes if row.usable_bytes >= 0 else None,
            row.full_in_ms if row.full_in_ms >= 0 else None,
            {
                TopicPartition(topic.name, one.partition_index): one.partition_size
                for topic in row.topics
                for one in topic.partitions
                if not one.is_future_key
            },
            {
                TopicPartition(topic.name, one.partition_index): Arriving(one.partition_size, one.offset_lag)
                for topic in row.topics
                for one in topic.partitions
                if one.is_future_key
            },
        )
        for row in response.results
    ]


def duration(milliseconds: int) -> str:
    """A rough duration in words: `40 min`, `9 h`, `12 days`."""
    minutes = milliseconds // 60_000
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days"
