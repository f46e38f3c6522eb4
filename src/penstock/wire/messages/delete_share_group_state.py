"""Messages of the DeleteShareGroupState API.

Generated from definitions/delete_share_group_state.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class PartitionData(NamedTuple):
    partition: int = 0
    state_epoch: int = -1


class DeleteStateData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class DeleteShareGroupStateRequest(NamedTuple):
    """Version 0, flexible from 0."""

    group_id: str = ""
    topics: Sequence[DeleteStateData] = ()

    def response_class(self) -> type[DeleteShareGroupStateResponse]:
        return DeleteShareGroupStateResponse


class PartitionResult(NamedTuple):
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None


class DeleteStateResult(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionResult] = ()


class DeleteShareGroupStateResponse(NamedTuple):
    """Version 0, flexible from 0."""

    results: Sequence[DeleteStateResult] = ()
