"""Frames that lie about their size, or hold what no client sends: hung up on at once, at no cost to others."""

from __future__ import annotations

import socket
import struct
import time

import pytest
from hostile_settings import REQUEST_BYTES_MAX

from penstock.testing import Cluster
from penstock.wire.codec import encode
from penstock.wire.frame import RequestHeader, encode_request
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from support.processes import rss_bytes
from support.wire_client import WireClient, batch_of, produce_request, records_in

MB = 2**20
SIZES = (-1, 0, 2**31 - 1, -(2**31), REQUEST_BYTES_MAX + 1, int.from_bytes(b"GET ", "big"))
UNSUPPORTED_VERSION = 35


def connect(broker: Cluster) -> socket.socket:
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def hung_up_on(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("size", SIZES)
def test_an_impossible_size_is_hung_up_on_at_once(broker: Cluster, size: int) -> None:
    with connect(broker) as connection:
        connection.sendall(struct.pack(">i", size))
        began = time.monotonic()
        assert hung_up_on(connection)
        assert time.monotonic() - began < 10


def test_impossible_sizes_allocate_nothing(broker: Cluster) -> None:
    before = rss_bytes(broker.pid)
    for number in range(300):
        with connect(broker) as connection:
            connection.sendall(struct.pack(">i", SIZES[number % len(SIZES)]))
            assert hung_up_on(connection)
    assert rss_bytes(broker.pid) - before < 4 * MB


def test_announcing_much_costs_the_broker_little(broker: Cluster) -> None:
    """A hundred peers announce 16 MB each and send ten bytes of it."""
    before = rss_bytes(broker.pid)
    connections = [connect(broker) for _ in range(100)]
    try:
        for connection in connections:
            connection.sendall(struct.pack(">i", REQUEST_BYTES_MAX) + bytes(10))
        time.sleep(0.3)
        assert rss_bytes(broker.pid) - before < 40 * MB
    finally:
        for connection in connections:
            connection.close()


def test_a_large_request_arrives_whole_in_small_pieces(broker: Cluster, client: WireClient) -> None:
    """Its buffer grows several times on the way."""
    topic = broker.create_topic(configs={"max.message.bytes": str(10 * MB)})
    value = bytes(range(256)) * (5 * MB // 256)
    request = produce_request(topic, batch_of([value]))
    body = encode(request, 9)
    data = b"".join(encode_request(RequestHeader(0, 9, 1, "slow"), [body]))
    with connect(broker) as connection:
        for start in range(0, len(data), 100_000):
            connection.sendall(data[start : start + 100_000])
        assert struct.unpack(">ii", connection.recv(8))[1] == 1
    assert [record.value for record in records_in(client.fetch(topic, 0).records)] == [value]


MALFORMED = {
    "shorter than its header": b"\0\x12\0",
    "an API that never was": struct.pack(">hhih", 999, 0, 1, -1),
    "a negative API": struct.pack(">hhih", -5, 0, 1, -1),
    "a version from the future": struct.pack(">hhih", 3, 120, 1, -1),
    "a client id past the end": struct.pack(">hhih", 3, 1, 1, 32767),
    "an array of two billion": struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1),
    "an array of minus two": struct.pack(">hhihii", 2, 1, 1, -1, -1, -2),
    "a varint without an end": struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + b"\xff" * 40,
    "a varint of five gigabytes": struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + b"\xff\xff\xff\xff\x7f",
    "tags that never stop": struct.pack(">hhih", 18, 3, 1, -1) + b"\xff\xff\xff\xff\x0f" + b"\0" * 50,
    "records past the end": struct.pack(">hhihhhi", 0, 3, 1, -1, -1, 1, 1000)
    + struct.pack(">ihci", 1, 1, b"t", 1)
    + struct.pack(">ii", 0, 2**31 - 1)
    + b"x" * 20,
    "text that is not UTF-8": struct.pack(">hhihih", 3, 1, 1, -1, 1, 2) + b"\xff\xfe",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_request_is_hung_up_on(client: WireClient, what: str) -> None:
    client.send_bytes(MALFORMED[what])
    assert client.is_closed()


def test_malformed_requests_allocate_nothing(broker: Cluster) -> None:
    before = rss_bytes(broker.pid)
    for frame in list(MALFORMED.values()) * 20:
        with connect(broker) as connection:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            assert hung_up_on(connection)
    assert rss_bytes(broker.pid) - before < 4 * MB


def test_a_newer_api_versions_is_answered_in_version_0(client: WireClient) -> None:
    client.send_bytes(struct.pack(">hhih", 18, 77, 42, -1) + b"whatever it may hold")
    frame = client.receive_bytes()
    assert frame[:6] == struct.pack(">ih", 42, UNSUPPORTED_VERSION)
    # And the connection goes on.
    assert isinstance(client.call(ApiVersionsRequest("test", "1"), 3), ApiVersionsResponse)


def test_one_bad_frame_leaves_the_frames_before_it_answered(client: WireClient) -> None:
    first = b"".join(encode_request(RequestHeader(18, 0, 7, None), [encode(ApiVersionsRequest(), 0)]))
    client._socket.sendall(first)
    assert client.receive_bytes()[:4] == struct.pack(">i", 7)
    client.send_bytes(b"\0\0")
    assert client.is_closed()
