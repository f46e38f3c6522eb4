"""Peers that send too slowly, or never read: closed by their deadline, and never held more for than the limits say."""

from __future__ import annotations

import socket
import struct
import time

import pytest
from hostile_settings import READ_TIMEOUT_MS, STALL_TIMEOUT_MS, WRITE_BUFFER_BYTES

from penstock.testing import Cluster
from penstock.wire.messages.metadata import MetadataRequest
from support.processes import forget_peak, peak_bytes, rss_bytes
from support.wire_client import FETCH_VERSION, WireClient, batch_of, fetch_request, records_in

MB = 2**20
# Deadlines are looked at once a second.
WATCH_SECONDS = 1.0
SLACK_SECONDS = 1.0


def connect(broker: Cluster) -> socket.socket:
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def seconds_until_closed(connection: socket.socket, trickle: bytes = b"") -> float:
    """Send `trickle` byte by byte until the broker hangs up, and say how long that took."""
    began = time.monotonic()
    connection.settimeout(0.1)
    remaining = list(trickle)
    while time.monotonic() - began < 20:
        try:
            if remaining:
                connection.sendall(bytes([remaining.pop(0)]))
            if connection.recv(1) == b"":
                return time.monotonic() - began
        except TimeoutError:
            continue
        except ConnectionError:
            return time.monotonic() - began
    raise AssertionError("the broker never hung up")


@pytest.mark.parametrize(
    "beginning",
    [b"\0", b"\0\0\0", struct.pack(">i", 50), struct.pack(">i", 50) + b"\0\x12\0", struct.pack(">i", 40_000)],
    ids=["a byte of the size", "most of the size", "a size", "a part of a request", "a part of a larger one"],
)
def test_a_request_that_trickles_in_is_closed_by_its_deadline(broker: Cluster, beginning: bytes) -> None:
    allowed = READ_TIMEOUT_MS / 1000 + WATCH_SECONDS + SLACK_SECONDS
    with connect(broker) as connection:
        connection.sendall(beginning)
        assert seconds_until_closed(connection, trickle=b"\0" * 200) < allowed


def test_a_quiet_connection_is_not_a_slow_one(client: WireClient) -> None:
    client.call(MetadataRequest([]), 12)
    time.sleep(READ_TIMEOUT_MS / 1000 + WATCH_SECONDS + 0.3)
    client.call(MetadataRequest([]), 12)


@pytest.fixture(scope="module")
def filled(shared_broker: Cluster) -> str:
    """A topic with eight megabytes in it."""
    topic = shared_broker.create_topic()
    with WireClient(shared_broker.bootstrap_servers) as client:
        for number in range(16):
            assert client.produce(topic, batch_of([bytes([number]) * (MB // 2)]), acks=1).error_code == 0
    return topic


def test_a_reader_that_never_reads_is_closed_and_costs_little(broker: Cluster, filled: str) -> None:
    """It asks for 8 MB a hundred times over. One answer is made, the others wait until it is taken, which is never."""
    before = rss_bytes(broker.pid)
    forget_peak(broker.pid)
    with WireClient(broker.bootstrap_servers) as client:
        for _ in range(100):
            client.send(fetch_request(filled, 0, max_wait_ms=500), FETCH_VERSION)
        time.sleep(0.5)
        assert peak_bytes(broker.pid) - before < 40 * MB
        with WireClient(broker.bootstrap_servers) as neighbour:
            began = time.monotonic()
            neighbour.call(MetadataRequest([]), 12)
            # Others wait for nothing that the reader keeps waiting.
            assert time.monotonic() - began < STALL_TIMEOUT_MS / 1000
        time.sleep(STALL_TIMEOUT_MS / 1000 + WATCH_SECONDS + SLACK_SECONDS)
        with pytest.raises(ConnectionError):
            receive_all(client)
    assert peak_bytes(broker.pid) - before < 40 * MB


def receive_all(client: WireClient) -> None:
    for _ in range(100):
        client.receive_bytes()


def test_small_requests_for_large_answers_are_not_all_served_at_once(broker: Cluster, client: WireClient) -> None:
    """Two thousand metadata requests in one write ask for far more than the write buffer's limit."""
    for _ in range(20):
        broker.create_topic(partitions=20)
    answer_bytes = len(client.receive_body(*_sent(client))[1])
    assert 2_000 * answer_bytes > 50 * WRITE_BUFFER_BYTES
    before = rss_bytes(broker.pid)
    forget_peak(broker.pid)
    frame = struct.pack(">ihhihi", 14, 3, 1, 7, -1, -1)
    with connect(broker) as connection:
        connection.sendall(frame * 2_000)
        time.sleep(1.0)
        assert peak_bytes(broker.pid) - before < 30 * MB
        # Taken at last, they are all there and in order.
        connection.settimeout(20)
        with connection.makefile("rb") as reader:
            for _ in range(2_000):
                size, correlation_id = struct.unpack(">ii", reader.read(8))
                assert correlation_id == 7
                assert len(reader.read(size - 4)) == size - 4


def _sent(client: WireClient) -> tuple[MetadataRequest, int]:
    request = MetadataRequest(None)
    client.send(request, 1)
    return request, 1


def test_a_slow_but_steady_reader_gets_everything(broker: Cluster, filled: str) -> None:
    """It takes three times the stall timeout, and is never stalled."""
    with WireClient(broker.bootstrap_servers) as client:
        client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        request = fetch_request(filled, 0)
        client.send(request, FETCH_VERSION)
        received = bytearray()
        began = time.monotonic()
        seconds = 3 * STALL_TIMEOUT_MS / 1000
        while len(received) < 8 * MB:
            due = (time.monotonic() - began) / seconds * 8 * MB
            if len(received) > due:
                time.sleep(0.05)
                continue
            chunk = client._socket.recv(64 * 1024)
            assert chunk, "hung up on although it was reading"
            received += chunk
        assert time.monotonic() - began > seconds * 0.9
    with WireClient(broker.bootstrap_servers) as client:
        assert [record.offset for record in records_in(client.fetch(filled, 0).records)] == list(range(16))
