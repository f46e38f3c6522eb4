"""Messages of the DescribeQuorum API.

Generated from definitions/describe_quorum.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class DescribeQuorumRequestPartitionData(NamedTuple):
    partition_index: int = 0


class DescribeQuorumRequestTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[DescribeQuorumRequestPartitionData] = ()


class DescribeQuorumRequest(NamedTuple):
    """Versions 0-2, flexible from 0."""

    topics: Sequence[DescribeQuorumRequestTopicData] = ()

    def response_class(self) -> type[DescribeQuorumResponse]:
        return DescribeQuorumResponse


class ReplicaState(NamedTuple):
    replica_id: int = 0
    replica_directory_id: bytes = ZERO_UUID
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1


class DescribeQuorumResponsePartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: Sequence[ReplicaState] = ()
    observers: Sequence[ReplicaState] = ()


class DescribeQuorumResponseTopicData(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[DescribeQuorumResponsePartitionData] = ()


class Listener(NamedTuple):
    name: str = ""
    host: str = ""
    port: int = 0


class Node(NamedTuple):
    node_id: int = 0
    listeners: Sequence[Listener] = ()


class DescribeQuorumResponse(NamedTuple):
    """Versions 0-2, flexible from 0."""

    error_code: int = 0
    error_message: str | None = ""
    topics: Sequence[DescribeQuorumResponseTopicData] = ()
    nodes: Sequence[Node] = ()
