"""Messages of the Vote API.

Generated from definitions/vote.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class VoteRequestPartitionData(NamedTuple):
    partition_index: int = 0
    replica_epoch: int = 0
    replica_id: int = 0
    replica_directory_id: bytes = ZERO_UUID
    voter_directory_id: bytes = ZERO_UUID
    last_offset_epoch: int = 0
    last_offset: int = 0
    pre_vote: bool = False


class VoteRequestTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[VoteRequestPartitionData] = ()


class VoteRequest(NamedTuple):
    """Versions 0-2, flexible from 0."""

    cluster_id: str | None = None
    voter_id: int = -1
    topics: Sequence[VoteRequestTopicData] = ()

    def response_class(self) -> type[VoteResponse]:
        return VoteResponse


class VoteResponsePartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    vote_granted: bool = False


class VoteResponseTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[VoteResponsePartitionData] = ()


class NodeEndpoint(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0


class VoteResponse(NamedTuple):
    """Versions 0-2, flexible from 0."""

    error_code: int = 0
    topics: Sequence[VoteResponseTopicData] = ()
    node_endpoints: Sequence[NodeEndpoint] = ()
