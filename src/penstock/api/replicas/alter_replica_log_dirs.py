"""Versions 1-2. KIP-113: moves replicas between the data directories of this broker."""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
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


@broker_api(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    versions={
        1: "the first version still served; brokers throttle after the response (KIP-219)",
        2: "flexible versions (KIP-482)",
    },
)
def alter_replica_log_dirs(
    services: BrokerServices, request: AlterReplicaLogDirsRequest, context: RequestContext
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
                code = refused or _alter(services, TopicPartition(topic.name, index), directory.path)
                results.setdefault(topic.name, []).append(AlterReplicaLogDirPartitionResult(index, code))
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(name, rows) for name, rows in results.items()]
    )


def _alter(services: BrokerServices, name: TopicPartition, path: str) -> ErrorCode:
    try:
        services.moves.alter(name, path)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
