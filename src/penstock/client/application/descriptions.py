"""What `Admin` returns about topics, groups and clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition: who leads it, who has it, who is in sync.

    >>> PartitionDescription(0, 1, (1, 2, 3), (1, 2)).under_replicated
    True
    """

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]

    @property
    def under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.in_sync_replicas) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: its partitions and settings.

    >>> TopicDescription("orders", "id", (PartitionDescription(0, 1, (1,), (1,)),), {}).replication_factor
    1
    """

    name: str
    id: str
    partitions: tuple[PartitionDescription, ...]
    config: Mapping[str, str | None]

    @property
    def partition_count(self) -> int:
        """How many partitions it has."""
        return len(self.partitions)

    @property
    def replication_factor(self) -> int:
        """How many replicas its partitions have."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group, and its partitions.

    >>> GroupMember("m-1", "billing", "10.0.0.7", (("orders", 0),)).partitions
    (('orders', 0),)
    """

    id: str
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group.

    >>> GroupDescription("billing", "empty", ()).state
    'empty'
    """

    group: str
    state: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker.

    >>> Broker(1, "localhost", 9092, None).port
    9092
    """

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster.

    >>> ClusterDescription("id", 1, (Broker(1, "localhost", 9092, None),)).controller
    1
    """

    id: str | None
    controller: int | None
    brokers: tuple[Broker, ...]
