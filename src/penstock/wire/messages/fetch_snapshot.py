"""Messages of the FetchSnapshot API.

Generated from definitions/fetch_snapshot.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID
from penstock.wire.primitives import RecordBuffers


class SnapshotId(NamedTuple):
    end_offset: int = 0
    epoch: int = 0


class FetchSnapshotRequestPartitionSnapshot(NamedTuple):
    partition: int = 0
    current_leader_epoch: int = 0
    snapshot_id: SnapshotId = SnapshotId()
    position: int = 0
    replica_directory_id: bytes = ZERO_UUID


class FetchSnapshotRequestTopicSnapshot(NamedTuple):
    name: str = ""
    partitions: Sequence[FetchSnapshotRequestPartitionSnapshot] = ()


class FetchSnapshotRequest(NamedTuple):
    """Versions 0-1, flexible from 0."""

    cluster_id: str | None = None
    replica_id: int = -1
    max_bytes: int = 2147483647
    topics: Sequence[FetchSnapshotRequestTopicSnapshot] = ()

    def response_class(self) -> type[FetchSnapshotResponse]:
        return FetchSnapshotResponse


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = 0
    leader_epoch: int = 0


class FetchSnapshotResponsePartitionSnapshot(NamedTuple):
    index: int = 0  # type: ignore[assignment]
    error_code: int = 0
    snapshot_id: SnapshotId = SnapshotId()
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    size: int = 0
    position: int = 0
    unaligned_records: RecordBuffers | None = None


class FetchSnapshotResponseTopicSnapshot(NamedTuple):
    name: str = ""
    partitions: Sequence[FetchSnapshotResponsePartitionSnapshot] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0


class FetchSnapshotResponse(NamedTuple):
    """Versions 0-1, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    topics: Sequence[FetchSnapshotResponseTopicSnapshot] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()
