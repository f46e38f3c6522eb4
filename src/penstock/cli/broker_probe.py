"""Single questions to a broker about sizes, lag and offsets, for commands that otherwise go through librdkafka.

They answer only where no TLS and no sign-in is needed; elsewhere the caller shows what it knows without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.cli.admin import Broker
from penstock.cli.options import Connection
from penstock.cli.wire_client import Channel, NoAnswer, is_plain
from penstock.wire.messages.api_versions import ApiVersionsResponse
from penstock.wire.messages.describe_lag import DescribeLagRequest, DescribeLagResponse, LagGroup
from penstock.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

__all__ = ["NoAnswer", "api_versions", "ask", "delete_offsets", "describe_lag", "is_plain", "replica_sizes"]


def ask(host: str, port: int, request: object, version: int) -> Any:
    """Send one request on a connection of its own and return the response. Raises NoAnswer."""
    with Channel(host, port) as channel:
        return channel.call(request, version)


def api_versions(host: str, port: int) -> ApiVersionsResponse:
    """What a broker says it serves. Raises NoAnswer."""
    with Channel(host, port) as channel:
        return channel.api_versions()


def replica_sizes(
    connection: Connection, brokers: Iterable[Broker], topic: str, leaders: Mapping[int, int]
) -> dict[int, int]:
    """Bytes on the leader's disk by partition; partitions whose size cannot be had are left out."""
    if not is_plain(connection):
        return {}
    sizes: dict[int, int] = {}
    for broker in brokers:
        led = [partition for partition, leader in leaders.items() if leader == broker.node_id]
        if not led:
            continue
        request = DescribeLogDirsRequest([DescribableLogDirTopic(topic, led)])
        try:
            response = ask(broker.host, broker.port, request, 1)
        except NoAnswer:
            continue
        for result in response.results:
            for found in result.topics:
                sizes |= {item.partition_index: item.partition_size for item in found.partitions}
    return sizes


def describe_lag(coordinator: Broker, group_ids: Sequence[str]) -> Sequence[LagGroup]:
    """How far groups are behind, as a Penstock coordinator measures it; nothing while it cannot tell.

    Raises NoAnswer, with every other Kafka too.
    """
    response: DescribeLagResponse = ask(coordinator.host, coordinator.port, DescribeLagRequest(group_ids), 0)
    return response.groups if not response.error_code else ()


def delete_offsets(
    coordinator: Broker, group_id: str, topics: Mapping[str, Iterable[int]]
) -> dict[tuple[str, int], int]:
    """Forget committed offsets of a group; the error code of each partition. Raises NoAnswer."""
    wanted = [
        OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(number) for number in numbers])
        for topic, numbers in topics.items()
    ]
    response: OffsetDeleteResponse = ask(coordinator.host, coordinator.port, OffsetDeleteRequest(group_id, wanted), 0)
    if response.error_code:
        return {
            (each.name, number.partition_index): response.error_code for each in wanted for number in each.partitions
        }
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
