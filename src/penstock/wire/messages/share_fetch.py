"""Messages of the ShareFetch API.

Generated from definitions/share_fetch.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID
from penstock.wire.primitives import RecordBuffers


class AcknowledgementBatch(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    acknowledge_types: Sequence[int] = ()


class FetchPartition(NamedTuple):
    partition_index: int = 0
    acknowledgement_batches: Sequence[AcknowledgementBatch] = ()


class FetchTopic(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[FetchPartition] = ()


class ForgottenTopic(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class ShareFetchRequest(NamedTuple):
    """Versions 1-2, flexible from 1."""

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int = 0
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    max_records: int = 0
    batch_size: int = 0
    share_acquire_mode: int = 0
    is_renew_ack: bool = False
    topics: Sequence[FetchTopic] = ()
    forgotten_topics_data: Sequence[ForgottenTopic] = ()

    def response_class(self) -> type[ShareFetchResponse]:
        return ShareFetchResponse


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = 0
    leader_epoch: int = 0


class AcquiredRecords(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    delivery_count: int = 0


class PartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    records: RecordBuffers | None = None
    acquired_records: Sequence[AcquiredRecords] = ()


class ShareFetchableTopicResponse(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class ShareFetchResponse(NamedTuple):
    """Versions 1-2, flexible from 1."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: Sequence[ShareFetchableTopicResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()
