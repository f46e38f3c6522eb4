"""Messages of the InitializeShareGroupState API.

Generated from definitions/initialize_share_group_state.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class PartitionData(NamedTuple):
    partition: int = 0
    state_epoch: int = 0
    start_offset: int = 0


class InitializeStateData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class InitializeShareGroupStateRequest(NamedTuple):
    """Version 0, flexible from 0."""

    group_id: str = ""
    topics: Sequence[InitializeStateData] = ()

    def response_class(self) -> type[InitializeShareGroupStateResponse]:
        return InitializeShareGroupStateResponse


class PartitionResult(NamedTuple):
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None


class InitializeStateResult(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionResult] = ()


class InitializeShareGroupStateResponse(NamedTuple):
    """Version 0, flexible from 0."""

    results: Sequence[InitializeStateResult] = ()
