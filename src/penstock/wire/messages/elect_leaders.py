"""Messages of the ElectLeaders API.

Generated from definitions/elect_leaders.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TopicPartitions(NamedTuple):
    topic: str = ""
    partitions: Sequence[int] = ()


class ElectLeadersRequest(NamedTuple):
    """Versions 0-2, flexible from 2."""

    election_type: int = 0
    topic_partitions: Sequence[TopicPartitions] | None = ()
    timeout_ms: int = 60000

    def response_class(self) -> type[ElectLeadersResponse]:
        return ElectLeadersResponse


class PartitionResult(NamedTuple):
    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = ""


class ReplicaElectionResult(NamedTuple):
    topic: str = ""
    partition_result: Sequence[PartitionResult] = ()


class ElectLeadersResponse(NamedTuple):
    """Versions 0-2, flexible from 2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: Sequence[ReplicaElectionResult] = ()
