"""Messages of the CreatePartitions API.

Generated from definitions/create_partitions.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class CreatePartitionsAssignment(NamedTuple):
    broker_ids: Sequence[int] = ()


class CreatePartitionsTopic(NamedTuple):
    name: str = ""
    count: int = 0  # type: ignore[assignment]
    assignments: Sequence[CreatePartitionsAssignment] | None = ()


class CreatePartitionsRequest(NamedTuple):
    """Versions 0-3, flexible from 2."""

    topics: Sequence[CreatePartitionsTopic] = ()
    timeout_ms: int = 0
    validate_only: bool = False

    def response_class(self) -> type[CreatePartitionsResponse]:
        return CreatePartitionsResponse


class CreatePartitionsTopicResult(NamedTuple):
    name: str = ""
    error_code: int = 0
    error_message: str | None = None


class CreatePartitionsResponse(NamedTuple):
    """Versions 0-3, flexible from 2."""

    throttle_time_ms: int = 0
    results: Sequence[CreatePartitionsTopicResult] = ()
