"""Limits on connections: how many at all, how many an address, how long idle, and what happens without descriptors."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.local.process import BrokerProcess
from penstock.testing import Cluster
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from support.node_thread import ONE_NODE
from support.processes import descriptors, eventually, rss_bytes
from support.wire_client import WireClient, batch_of

MB = 2**20
ASK = struct.pack(">ihhih", 10, 18, 0, 7, -1)
IDLE_CONNECTIONS = int(os.environ.get("PENSTOCK_IDLE_CONNECTIONS", "1500"))
BYTES_PER_IDLE_CONNECTION_MAX = 15_000


def connect(address: str, source: str = "127.0.0.1", timeout: float = 5) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=timeout, source_address=(source, 0))


def is_served(connection: socket.socket, timeout: float = 5) -> bool:
    """Whether the broker answers on this connection; False when it hangs up or is silent."""
    connection.settimeout(timeout)
    try:
        connection.sendall(ASK)
        answer = connection.recv(8)
    except (TimeoutError, ConnectionError):
        return False
    if not answer:
        return False
    size = struct.unpack(">i", answer[:4])[0]
    while size > 4:
        size -= len(connection.recv(size - 4))
    return True


def test_connections_over_max_connections_wait_until_others_close() -> None:
    with Cluster({"max.connections": "5"}) as broker, ExitStack() as open_connections:
        connections = [open_connections.enter_context(connect(broker.bootstrap_servers)) for _ in range(5)]
        assert all(is_served(connection) for connection in connections)
        newcomer = open_connections.enter_context(connect(broker.bootstrap_servers))
        assert not is_served(newcomer, timeout=0.5)
        connections[0].close()
        newcomer.settimeout(30)
        assert newcomer.recv(4), "the newcomer is served once there is room"


def test_more_than_max_connections_per_ip_are_hung_up_on() -> None:
    settings = {"max.connections.per.ip": "3", "max.connections.per.ip.overrides": "127.0.0.9:1"}
    with Cluster(settings) as broker, ExitStack() as open_connections:
        address = broker.bootstrap_servers
        for source, allowed in (("127.0.0.1", 3), ("127.0.0.8", 3), ("127.0.0.9", 1)):
            kept = [open_connections.enter_context(connect(address, source)) for _ in range(allowed)]
            assert all(is_served(connection) for connection in kept)
            with connect(address, source) as refused:
                assert not is_served(refused)
            kept[0].close()

            def room_again(source: str = source) -> bool:
                with connect(address, source) as another:
                    return is_served(another)

            assert eventually(room_again, 5)


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    with Cluster({"connections.max.idle.ms": "1200"}) as broker, ExitStack() as open_connections:
        idle, busy = (open_connections.enter_context(connect(broker.bootstrap_servers)) for _ in range(2))
        assert is_served(idle)
        began = time.monotonic()
        while time.monotonic() - began < 3:
            assert is_served(busy)
            time.sleep(0.2)
        idle.settimeout(0.5)
        assert idle.recv(1) == b""


@contextmanager
def broker_with_descriptors(directory: Path, limit: int) -> Iterator[tuple[str, BrokerProcess]]:
    """A broker that may open `limit` files and sockets."""
    data = directory / "data"
    data.mkdir()
    settings = {
        **ONE_NODE,
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "log.dirs": str(data),
        "socket.listen.backlog.size": "1000",
    }
    properties = directory / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    limited = ("bash", "-c", f'ulimit -n {limit}; exec "$@"', "limited", sys.executable, "-m", "penstock", "server")
    process = BrokerProcess(properties, directory / "server.log", limited)
    try:
        yield process.start(20)["PLAINTEXT"], process
    finally:
        process.kill()


def test_without_descriptors_accepting_pauses_and_logs_continue(tmp_path: Path) -> None:
    limit = 200
    with broker_with_descriptors(tmp_path, limit) as (address, process), ExitStack() as open_connections:
        honest = open_connections.enter_context(WireClient(address))
        crowd = [open_connections.enter_context(connect(address)) for _ in range(limit + 100)]
        assert eventually(lambda: descriptors(process.pid) >= limit * 0.6, 5)
        time.sleep(0.5)
        assert descriptors(process.pid) < limit - 20, "nothing was left for the logs"
        # Opening files still works for admitted connections.
        created = honest.call(CreateTopicsRequest([CreatableTopic("made-in-a-crowd", 3, 1)], 5_000), 7)
        assert created.topics[0].error_code == 0
        assert honest.produce("made-in-a-crowd", batch_of([b"written in a crowd"])).error_code == 0
        for connection in crowd:
            connection.close()

        def room_again() -> bool:
            with connect(address) as newcomer:
                return is_served(newcomer, timeout=1)

        assert eventually(room_again, 5)
        assert honest.produce("made-in-a-crowd", batch_of([b"and after"])).base_offset == 1
        log = process.log_path.read_text()
        assert "ulimit" in log
        assert "Traceback" not in log


def test_idle_connections_are_cheap_and_churn_leaves_nothing() -> None:
    """PENSTOCK_IDLE_CONNECTIONS=10000 takes the measure that the targets name."""
    settings = {"socket.listen.backlog.size": "1000"}
    with Cluster(settings) as broker, ExitStack() as open_connections:
        topic = broker.create_topic()
        client = open_connections.enter_context(WireClient(broker.bootstrap_servers))
        assert client.produce(topic, batch_of([b"warm"])).error_code == 0
        before, descriptors_before = rss_bytes(broker.pid), descriptors(broker.pid)
        connections = []
        for number in range(IDLE_CONNECTIONS):
            connection = open_connections.enter_context(
                connect(broker.bootstrap_servers, f"127.0.0.{2 + number % 200}")
            )
            connection.sendall(ASK)
            connections.append(connection)
        assert all(connection.recv(8) for connection in connections)
        each = (rss_bytes(broker.pid) - before) / IDLE_CONNECTIONS
        waits = []
        for _ in range(200):
            began = time.monotonic()
            assert client.produce(topic, batch_of([b"x"]), acks=1).error_code == 0
            waits.append(time.monotonic() - began)
        waits.sort()
        sys.stderr.write(
            f"{IDLE_CONNECTIONS} idle connections: {each:.0f} bytes each, {each / 100:.0f} MB per 10 K; "
            f"produce p99 {1000 * waits[-3]:.1f} ms\n"
        )
        assert each < BYTES_PER_IDLE_CONNECTION_MAX
        for _ in range(300):
            with connect(broker.bootstrap_servers) as churned:
                assert is_served(churned)
        for connection in connections:
            connection.close()
        assert eventually(lambda: descriptors(broker.pid) <= descriptors_before, 10)
