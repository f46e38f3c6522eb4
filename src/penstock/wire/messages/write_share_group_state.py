"""Messages of the WriteShareGroupState API.

Generated from definitions/write_share_group_state.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class StateBatch(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    delivery_state: int = 0
    delivery_count: int = 0
    letter_producer_id: int = -1
    letter_sequence: int = -1
    letter_reason: int = 0
    letter_member: str = ""


class PartitionData(NamedTuple):
    partition: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    state_batches: Sequence[StateBatch] = ()
    delays_start: int = -1
    delays_due_ms: int = -1
    delays_offset: int = -1
    write_number: int = 0


class WriteStateData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class WriteShareGroupStateRequest(NamedTuple):
    """Versions 0-1, flexible from 0."""

    group_id: str = ""
    topics: Sequence[WriteStateData] = ()

    def response_class(self) -> type[WriteShareGroupStateResponse]:
        return WriteShareGroupStateResponse


class PartitionResult(NamedTuple):
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None


class WriteStateResult(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionResult] = ()


class WriteShareGroupStateResponse(NamedTuple):
    """Versions 0-1, flexible from 0."""

    results: Sequence[WriteStateResult] = ()
