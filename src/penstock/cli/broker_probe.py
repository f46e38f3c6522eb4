"""Questions to a broker that librdkafka has no call for, asked over a plain socket with Penstock's own wire format.

They answer only where no TLS and no sign-in is needed; elsewhere the caller shows what it knows without them.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.cli.admin import Broker
from penstock.cli.options import Connection
from penstock.wire.apis import APIS, ApiKey, request_class, response_class, response_header_version
from penstock.wire.codec import decode, encode
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.describe_lag import DescribeLagRequest, DescribeLagResponse, LagGroup
from penstock.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from penstock.wire.primitives import MalformedMessage

TIMEOUT_S = 3.0
RESPONSE_BYTES_MAX = 64 * 1024 * 1024


class NoAnswer(Exception):
    """The broker could not be asked, or its answer makes no sense."""


def ask(host: str, port: int, request: object, version: int) -> Any:
    """Send one request on a connection of its own and return the response. Raises NoAnswer."""
    key = next(key for key in APIS if type(request) is request_class(key))
    frame = encode_request(RequestHeader(key, version, 1, "penstock-cli"), [encode(request, version)])
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
            connection.sendall(b"".join(frame))
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 0 <= size <= RESPONSE_BYTES_MAX:
                raise NoAnswer(f"{host}:{port} does not speak Kafka's protocol here")
            response = _receive(connection, size)
        _, position = decode_response_header(response, response_header_version(key, version))
        return decode(response_class(key), version, memoryview(response)[position:])
    except OSError as error:
        raise NoAnswer(f"{host}:{port}: {error}") from error
    except MalformedMessage as error:
        raise NoAnswer(f"{host}:{port}: {error}") from error


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise NoAnswer("the broker closed the connection")
        data += chunk
    return bytes(data)


def api_versions(host: str, port: int) -> ApiVersionsResponse:
    """What a broker says it serves. Raises NoAnswer."""
    response: ApiVersionsResponse = ask(host, port, ApiVersionsRequest("penstock-cli", "0"), 3)
    return response


def is_plain(connection: Connection) -> bool:
    """Whether brokers can be asked directly: neither TLS nor a sign-in is set."""
    return connection.properties.get("security.protocol", "plaintext").lower() == "plaintext"


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


def serves(versions: ApiVersionsResponse, key: ApiKey) -> bool:
    """Whether a broker serves an API at all."""
    return any(entry.api_key == key for entry in versions.api_keys)
