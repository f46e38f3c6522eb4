"""Messages of the TxnOffsetCommit API.

Generated from definitions/txn_offset_commit.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TxnOffsetCommitRequestPartition(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""


class TxnOffsetCommitRequestTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[TxnOffsetCommitRequestPartition] = ()


class TxnOffsetCommitRequest(NamedTuple):
    """Versions 0-5, flexible from 3."""

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: Sequence[TxnOffsetCommitRequestTopic] = ()

    def response_class(self) -> type[TxnOffsetCommitResponse]:
        return TxnOffsetCommitResponse


class TxnOffsetCommitResponsePartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class TxnOffsetCommitResponseTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[TxnOffsetCommitResponsePartition] = ()


class TxnOffsetCommitResponse(NamedTuple):
    """Versions 0-5, flexible from 3."""

    throttle_time_ms: int = 0
    topics: Sequence[TxnOffsetCommitResponseTopic] = ()
