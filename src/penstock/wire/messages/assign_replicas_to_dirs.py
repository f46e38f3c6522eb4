"""Messages of the AssignReplicasToDirs API.

Generated from definitions/assign_replicas_to_dirs.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class AssignReplicasToDirsRequestPartitionData(NamedTuple):
    partition_index: int = 0
    kept_records: bool = False
    partition_epoch: int = -1


class AssignReplicasToDirsRequestTopicData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[AssignReplicasToDirsRequestPartitionData] = ()


class AssignReplicasToDirsRequestDirectoryData(NamedTuple):
    id: bytes = ZERO_UUID
    topics: Sequence[AssignReplicasToDirsRequestTopicData] = ()


class AssignReplicasToDirsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    broker_id: int = 0
    broker_epoch: int = -1
    directories: Sequence[AssignReplicasToDirsRequestDirectoryData] = ()

    def response_class(self) -> type[AssignReplicasToDirsResponse]:
        return AssignReplicasToDirsResponse


class AssignReplicasToDirsResponsePartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class AssignReplicasToDirsResponseTopicData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[AssignReplicasToDirsResponsePartitionData] = ()


class AssignReplicasToDirsResponseDirectoryData(NamedTuple):
    id: bytes = ZERO_UUID
    topics: Sequence[AssignReplicasToDirsResponseTopicData] = ()


class AssignReplicasToDirsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    directories: Sequence[AssignReplicasToDirsResponseDirectoryData] = ()
