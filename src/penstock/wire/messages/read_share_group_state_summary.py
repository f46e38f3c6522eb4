"""Messages of the ReadShareGroupStateSummary API.

Generated from definitions/read_share_group_state_summary.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class PartitionData(NamedTuple):
    partition: int = 0
    leader_epoch: int = 0


class ReadStateSummaryData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class ReadShareGroupStateSummaryRequest(NamedTuple):
    """Versions 0-1, flexible from 0."""

    group_id: str = ""
    topics: Sequence[ReadStateSummaryData] = ()

    def response_class(self) -> type[ReadShareGroupStateSummaryResponse]:
        return ReadShareGroupStateSummaryResponse


class PartitionResult(NamedTuple):
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1


class ReadStateSummaryResult(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionResult] = ()


class ReadShareGroupStateSummaryResponse(NamedTuple):
    """Versions 0-1, flexible from 0."""

    results: Sequence[ReadStateSummaryResult] = ()
