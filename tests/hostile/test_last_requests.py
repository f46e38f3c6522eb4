"""A producer that sends and closes: what arrived whole is stored, though its sender has gone."""

from __future__ import annotations

import socket
import struct

import pytest

from penstock.testing import Cluster
from penstock.wire.codec import encode
from penstock.wire.frame import RequestHeader, encode_request
from support.processes import eventually
from support.wire_client import WireClient, batch_of, produce_request

LATEST = -1
REQUESTS = 500


def requests(topic: str, acks: int) -> bytes:
    body = encode(produce_request(topic, batch_of([b"x" * 100]))._replace(acks=acks), 9)
    return b"".join(b"".join(encode_request(RequestHeader(0, 9, number, "x"), [body])) for number in range(REQUESTS))


@pytest.mark.parametrize("closing", ["close", "shutdown"])
def test_records_sent_without_acknowledgement_are_stored_after_the_producer_has_closed(
    broker: Cluster, client: WireClient, closing: str
) -> None:
    topic = broker.create_topic()
    data = requests(topic, acks=0)
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(data)
        if closing == "shutdown":
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
    assert eventually(lambda: client.list_offset(topic, LATEST).offset == REQUESTS, 30)


def test_a_producer_that_is_torn_off_leaves_a_broker_that_serves(broker: Cluster, client: WireClient) -> None:
    """A reset discards what was not read yet; what was stored is a beginning of what was sent."""
    topic = broker.create_topic()
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    for _ in range(5):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(requests(topic, acks=1))
    assert client.produce(topic, batch_of([b"after"])).error_code == 0
    assert client.list_offset(topic, LATEST).offset <= 5 * REQUESTS + 1
