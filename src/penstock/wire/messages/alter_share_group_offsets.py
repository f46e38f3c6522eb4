"""Messages of the AlterShareGroupOffsets API.

Generated from definitions/alter_share_group_offsets.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class AlterShareGroupOffsetsRequestPartition(NamedTuple):
    partition_index: int = 0
    start_offset: int = 0


class AlterShareGroupOffsetsRequestTopic(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[AlterShareGroupOffsetsRequestPartition] = ()


class AlterShareGroupOffsetsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    group_id: str = ""
    topics: Sequence[AlterShareGroupOffsetsRequestTopic] = ()

    def response_class(self) -> type[AlterShareGroupOffsetsResponse]:
        return AlterShareGroupOffsetsResponse


class AlterShareGroupOffsetsResponsePartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None


class AlterShareGroupOffsetsResponseTopic(NamedTuple):
    topic_name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[AlterShareGroupOffsetsResponsePartition] = ()


class AlterShareGroupOffsetsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: Sequence[AlterShareGroupOffsetsResponseTopic] = ()
