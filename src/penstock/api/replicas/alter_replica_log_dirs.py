"""Versions 1-2. KIP-113: moves replicas between the data directories of this broker."""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.replication.directory_moves import DirectoryMoves
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

API = Api(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    (1, 2),
    on_broker=lambda services: make_alter_replica_log_dirs(services.moves, services.access),
)


def make_alter_replica_log_dirs(moves: DirectoryMoves, access: AccessControl) -> Handler:
    """The handler."""

    def alter_replica_log_dirs(
        request: AlterReplicaLogDirsRequest, context: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        refused = ErrorCode.NONE
        try:
            check_cluster(access, context, Operation.ALTER)
        except ApiError as error:
            refused = error.code
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                for index in topic.partitions:
                    code = refused or alter(TopicPartition(topic.name, index), directory.path)
                    results.setdefault(topic.name, []).append(AlterReplicaLogDirPartitionResult(index, code))
        return AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult(name, rows) for name, rows in results.items()]
        )

    def alter(name: TopicPartition, path: str) -> ErrorCode:
        try:
            moves.alter(name, path)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    return alter_replica_log_dirs
