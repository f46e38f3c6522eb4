"""Messages of the EndQuorumEpoch API.

Generated from definitions/end_quorum_epoch.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class ReplicaInfo(NamedTuple):
    candidate_id: int = 0
    candidate_directory_id: bytes = ZERO_UUID


class EndQuorumEpochRequestPartitionData(NamedTuple):
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    preferred_successors: Sequence[int] = ()
    preferred_candidates: Sequence[ReplicaInfo] = ()


class EndQuorumEpochRequestTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[EndQuorumEpochRequestPartitionData] = ()


class LeaderEndpoint(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0


class EndQuorumEpochRequest(NamedTuple):
    """Versions 0-1, flexible from 1."""

    cluster_id: str | None = None
    topics: Sequence[EndQuorumEpochRequestTopicData] = ()
    leader_endpoints: Sequence[LeaderEndpoint] = ()

    def response_class(self) -> type[EndQuorumEpochResponse]:
        return EndQuorumEpochResponse


class EndQuorumEpochResponsePartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0


class EndQuorumEpochResponseTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[EndQuorumEpochResponsePartitionData] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0


class EndQuorumEpochResponse(NamedTuple):
    """Versions 0-1, flexible from 1."""

    error_code: int = 0
    topics: Sequence[EndQuorumEpochResponseTopicData] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()
