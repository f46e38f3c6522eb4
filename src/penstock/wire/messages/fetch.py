"""Messages of the Fetch API.

Generated from definitions/fetch.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID
from penstock.wire.primitives import RecordBuffers


class ReplicaState(NamedTuple):
    replica_id: int = -1
    replica_epoch: int = -1


class FetchPartition(NamedTuple):
    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = 9223372036854775807


class FetchTopic(NamedTuple):
    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[FetchPartition] = ()


class ForgottenTopic(NamedTuple):
    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[int] = ()


class FetchRequest(NamedTuple):
    """Versions 4-18, flexible from 12."""

    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: ReplicaState = ReplicaState()
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: Sequence[FetchTopic] = ()
    forgotten_topics_data: Sequence[ForgottenTopic] = ()
    rack_id: str = ""

    def response_class(self) -> type[FetchResponse]:
        return FetchResponse


class EpochEndOffset(NamedTuple):
    epoch: int = -1
    end_offset: int = -1


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = -1
    leader_epoch: int = -1


class SnapshotId(NamedTuple):
    end_offset: int = -1
    epoch: int = -1


class AbortedTransaction(NamedTuple):
    producer_id: int = 0
    first_offset: int = 0


class PartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset = EpochEndOffset()
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    snapshot_id: SnapshotId = SnapshotId()
    aborted_transactions: Sequence[AbortedTransaction] | None = ()
    preferred_read_replica: int = -1
    records: RecordBuffers | None = None


class FetchableTopicResponse(NamedTuple):
    topic: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[PartitionData] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class FetchResponse(NamedTuple):
    """Versions 4-18, flexible from 12."""

    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: Sequence[FetchableTopicResponse] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()
