"""Messages of the ListPartitionReassignments API.

Generated from definitions/list_partition_reassignments.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ListPartitionReassignmentsTopics(NamedTuple):
    name: str = ""
    partition_indexes: Sequence[int] = ()


class ListPartitionReassignmentsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    timeout_ms: int = 60000
    topics: Sequence[ListPartitionReassignmentsTopics] | None = None

    def response_class(self) -> type[ListPartitionReassignmentsResponse]:
        return ListPartitionReassignmentsResponse


class OngoingPartitionReassignment(NamedTuple):
    partition_index: int = 0
    replicas: Sequence[int] = ()
    adding_replicas: Sequence[int] = ()
    removing_replicas: Sequence[int] = ()


class OngoingTopicReassignment(NamedTuple):
    name: str = ""
    partitions: Sequence[OngoingPartitionReassignment] = ()


class ListPartitionReassignmentsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: Sequence[OngoingTopicReassignment] = ()
