"""Versions 1-5. KIP-113 data directories with their partitions, KIP-827 disk sizes, KIP-1066 cordoned ones.

A tagged field of Penstock's own says when a disk will be full at the rate of the last hours.
"""

from __future__ import annotations

from penstock.api.access import guarded
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api, BrokerServices
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


def make_describe_log_dirs(services: BrokerServices) -> Handler:
    """The handler."""
    partitions = services.partitions

    def describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
        wanted = None
        if request.topics is not None:
            wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        return DescribeLogDirsResponse(results=[describe(directory, wanted) for directory in partitions.directories])

    def describe(directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
        if directory.failure is not None:
            return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, str(directory.path))
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for name in sorted(directory.partitions):
            if wanted is None or name in wanted:
                partition = partitions.get(*name)
                assert partition is not None
                log = partition.log
                lag = max(0, partition.high_watermark - log.end_offset)
                topics.setdefault(name.topic, []).append(DescribeLogDirsPartition(name.partition, log.size_bytes, lag))
        for name, future in sorted(directory.futures.items()):
            partition = partitions.get(*name)
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

    return describe_log_dirs


API = Api(
    ApiKey.DESCRIBE_LOG_DIRS,
    (1, 5),
    on_broker=guarded(Operation.DESCRIBE, make_describe_log_dirs, DescribeLogDirsResponse),
)
