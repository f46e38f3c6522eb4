"""Messages of the BeginQuorumEpoch API.

Generated from definitions/begin_quorum_epoch.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class BeginQuorumEpochRequestPartitionData(NamedTuple):
    partition_index: int = 0
    voter_directory_id: bytes = ZERO_UUID
    leader_id: int = 0
    leader_epoch: int = 0


class BeginQuorumEpochRequestTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[BeginQuorumEpochRequestPartitionData] = ()


class LeaderEndpoint(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0


class BeginQuorumEpochRequest(NamedTuple):
    """Versions 0-1, flexible from 1."""

    cluster_id: str | None = None
    voter_id: int = -1
    topics: Sequence[BeginQuorumEpochRequestTopicData] = ()
    leader_endpoints: Sequence[LeaderEndpoint] = ()

    def response_class(self) -> type[BeginQuorumEpochResponse]:
        return BeginQuorumEpochResponse


class BeginQuorumEpochResponsePartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0


class BeginQuorumEpochResponseTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[BeginQuorumEpochResponsePartitionData] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0


class BeginQuorumEpochResponse(NamedTuple):
    """Versions 0-1, flexible from 1."""

    error_code: int = 0
    topics: Sequence[BeginQuorumEpochResponseTopicData] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()
