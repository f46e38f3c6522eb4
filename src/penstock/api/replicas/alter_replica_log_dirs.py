"""Versions 1-2. KIP-113: moves replicas between the data directories of this broker."""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
from penstock.model.access import Operation
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def make_alter_replica_log_dirs(services: BrokerServices) -> Handler:
    """The handler."""

    def alter_replica_log_dirs(
        request: AlterReplicaLogDirsRequest, context: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        refused = ErrorCode.NONE
        try:
            check_cluster(services.access, context, Operation.ALTER)
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
            services.moves.alter(name, path)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    return alter_replica_log_dirs


API = Api(ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), on_broker=make_alter_replica_log_dirs)
