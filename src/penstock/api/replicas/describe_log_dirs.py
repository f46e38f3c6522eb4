"""Versions 1-5. KIP-113 data directories with their partitions, KIP-827 disk sizes, KIP-1066 cordoned ones.

A tagged field of Penstock's own contains when a disk will be full at the rate of the last hours.
"""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.model.access import Operation
from penstock.model.errors import ErrorCode
from penstock.runtime.logs.directories import LogDirectory
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@broker_api(
    ApiKey.DESCRIBE_LOG_DIRS,
    versions={
        1: "the first version still served; brokers throttle after the response (KIP-219)",
        2: "flexible versions (KIP-482)",
        3: "an error code for the whole response (KIP-784)",
        4: "total and usable bytes of each directory's disk in the response (KIP-827)",
        5: "the response contains which directories are cordoned (KIP-1066)",
    },
    cluster_right=Operation.DESCRIBE,
)
def describe_log_dirs(
    services: BrokerServices, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[_describe(services, directory, wanted) for directory in services.partitions.directories]
    )


def _describe(
    services: BrokerServices, directory: LogDirectory, wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    if directory.failure is not None:
        return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, str(directory.path))
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for name in sorted(directory.partitions):
        if wanted is None or name in wanted:
            partition = services.partitions.get(*name)
            assert partition is not None
            log = partition.log
            lag = max(0, partition.high_watermark - log.end_offset)
            topics.setdefault(name.topic, []).append(DescribeLogDirsPartition(name.partition, log.size_bytes, lag))
    for name, future in sorted(directory.futures.items()):
        partition = services.partitions.get(*name)
        if partition is not None and (wanted is None or name in wanted):
            lag = max(0, partition.log.end_offset - future.end_offset)
            row = DescribeLogDirsPartition(name.partition, future.size_bytes, lag, True)
            topics.setdefault(name.topic, []).append(row)
    space = services.env.filesystem.disk_space(directory.path)
    return DescribeLogDirsResult(
        0,
        str(directory.path),
        [DescribeLogDirsTopic(topic, rows) for topic, rows in topics.items()],
        space.total_bytes,
        space.free_bytes,
        directory.is_cordoned,
        -1 if directory.full_in_ms is None else directory.full_in_ms,
    )
