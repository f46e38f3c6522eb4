"""Messages of the AlterPartitionReassignments API.

Generated from definitions/alter_partition_reassignments.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ReassignablePartition(NamedTuple):
    partition_index: int = 0
    replicas: Sequence[int] | None = None


class ReassignableTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[ReassignablePartition] = ()


class AlterPartitionReassignmentsRequest(NamedTuple):
    """Versions 0-1, flexible from 0."""

    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True
    topics: Sequence[ReassignableTopic] = ()

    def response_class(self) -> type[AlterPartitionReassignmentsResponse]:
        return AlterPartitionReassignmentsResponse


class ReassignablePartitionResponse(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""


class ReassignableTopicResponse(NamedTuple):
    name: str = ""
    partitions: Sequence[ReassignablePartitionResponse] = ()


class AlterPartitionReassignmentsResponse(NamedTuple):
    """Versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True
    error_code: int = 0
    error_message: str | None = ""
    responses: Sequence[ReassignableTopicResponse] = ()
