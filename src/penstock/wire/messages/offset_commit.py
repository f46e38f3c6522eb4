"""Messages of the OffsetCommit API.

Generated from definitions/offset_commit.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class OffsetCommitRequestPartition(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""


class OffsetCommitRequestTopic(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[OffsetCommitRequestPartition] = ()


class OffsetCommitRequest(NamedTuple):
    """Versions 2-10, flexible from 8."""

    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: Sequence[OffsetCommitRequestTopic] = ()

    def response_class(self) -> type[OffsetCommitResponse]:
        return OffsetCommitResponse


class OffsetCommitResponsePartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class OffsetCommitResponseTopic(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[OffsetCommitResponsePartition] = ()


class OffsetCommitResponse(NamedTuple):
    """Versions 2-10, flexible from 8."""

    throttle_time_ms: int = 0
    topics: Sequence[OffsetCommitResponseTopic] = ()
