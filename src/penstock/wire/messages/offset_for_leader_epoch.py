"""Messages of the OffsetForLeaderEpoch API.

Generated from definitions/offset_for_leader_epoch.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class OffsetForLeaderPartition(NamedTuple):
    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0


class OffsetForLeaderTopic(NamedTuple):
    topic: str = ""
    partitions: Sequence[OffsetForLeaderPartition] = ()


class OffsetForLeaderEpochRequest(NamedTuple):
    """Versions 2-4, flexible from 4."""

    replica_id: int = -2
    topics: Sequence[OffsetForLeaderTopic] = ()

    def response_class(self) -> type[OffsetForLeaderEpochResponse]:
        return OffsetForLeaderEpochResponse


class EpochEndOffset(NamedTuple):
    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetForLeaderTopicResult(NamedTuple):
    topic: str = ""
    partitions: Sequence[EpochEndOffset] = ()


class OffsetForLeaderEpochResponse(NamedTuple):
    """Versions 2-4, flexible from 4."""

    throttle_time_ms: int = 0
    topics: Sequence[OffsetForLeaderTopicResult] = ()
