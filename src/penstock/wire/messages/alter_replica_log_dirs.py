"""Messages of the AlterReplicaLogDirs API.

Generated from definitions/alter_replica_log_dirs.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AlterReplicaLogDirTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[int] = ()


class AlterReplicaLogDir(NamedTuple):
    path: str = ""
    topics: Sequence[AlterReplicaLogDirTopic] = ()


class AlterReplicaLogDirsRequest(NamedTuple):
    """Versions 1-2, flexible from 2."""

    dirs: Sequence[AlterReplicaLogDir] = ()

    def response_class(self) -> type[AlterReplicaLogDirsResponse]:
        return AlterReplicaLogDirsResponse


class AlterReplicaLogDirPartitionResult(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class AlterReplicaLogDirTopicResult(NamedTuple):
    topic_name: str = ""
    partitions: Sequence[AlterReplicaLogDirPartitionResult] = ()


class AlterReplicaLogDirsResponse(NamedTuple):
    """Versions 1-2, flexible from 2."""

    throttle_time_ms: int = 0
    results: Sequence[AlterReplicaLogDirTopicResult] = ()
