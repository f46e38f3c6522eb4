"""Messages of the ShareAcknowledge API.

Generated from definitions/share_acknowledge.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class AcknowledgementBatch(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    acknowledge_types: Sequence[int] = ()


class AcknowledgePartition(NamedTuple):
    partition_index: int = 0
    acknowledgement_batches: Sequence[AcknowledgementBatch] = ()


class AcknowledgeTopic(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[AcknowledgePartition] = ()


class ShareAcknowledgeRequest(NamedTuple):
    """Versions 1-2, flexible from 1."""

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    is_renew_ack: bool = False
    topics: Sequence[AcknowledgeTopic] = ()

    def response_class(self) -> type[ShareAcknowledgeResponse]:
        return ShareAcknowledgeResponse


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = 0
    leader_epoch: int = 0


class PartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()


class ShareAcknowledgeTopicResponse(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class ShareAcknowledgeResponse(NamedTuple):
    """Versions 1-2, flexible from 1."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: Sequence[ShareAcknowledgeTopicResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()
