"""Memory under abuse: bounded while it lasts, and given back when it is over."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.testing import Cluster
from support.gateway_process import GatewayProcess
from support.raw_http import get, neighbour, post

MEGABYTE = 1 << 20
# A minute, and as much again for a machine that is busy with other tests.
PATIENCE_S = 110.0
LEFT_BYTES_MAX = 50 * MEGABYTE
SOCKETS = 1000

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc"),
]


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def abused(penstock_cluster: Cluster) -> Iterator[GatewayProcess]:
    """A gateway for these tests alone, so that its memory is theirs."""
    with GatewayProcess(penstock_cluster.bootstrap_servers, "--limit", "reader_timeout_s=5") as process:
        yield process


@pytest.fixture
def topic(abused: GatewayProcess, penstock_cluster: Cluster) -> str:
    """A topic with more in it than consumers read ahead."""
    name = penstock_cluster.create_topic(partitions=3)
    with httpx.Client(base_url=abused.rest, timeout=60) as client:
        for number in range(60):
            path, headers = f"/api/v1/topics/{name}/messages", {"X-Partition-Key": str(number)}
            client.post(path, content=os.urandom(100_000), headers=headers).raise_for_status()
    return name


@contextlib.contextmanager
def flood(gateway: GatewayProcess, requests: list[bytes]) -> Iterator[None]:
    """Connections on which requests are sent, and nothing is ever read."""
    host, _, port = gateway.rest.removeprefix("http://").rpartition(":")
    with contextlib.ExitStack() as stack:
        for request in requests:
            made = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            # One caller may have too many by now, and be hung up on.
            with contextlib.suppress(OSError):
                made.sendall(request)
        yield


def assert_memory_returns(gateway: GatewayProcess, before: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (now := resident_bytes(gateway.pid)) > before + LEFT_BYTES_MAX:
        assert time.monotonic() < deadline, f"{before / MEGABYTE:.0f} MB became {now / MEGABYTE:.0f} MB, and stayed"
        time.sleep(0.5)


def tail_request(topic: str) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}")
    deflate = "Sec-WebSocket-Extensions: permessage-deflate"
    return get(f"/topics/{topic}/tail?offset=earliest", *upgrade, deflate)


def test_a_thousand_websockets(abused: GatewayProcess, topic: str) -> None:
    before = resident_bytes(abused.pid)
    with neighbour(abused.rest, topic) as someone, flood(abused, [tail_request(topic) for _ in range(SOCKETS)]):
        answered = someone.answers
        highest = 0
        while someone.answers < answered + 40:
            highest = max(highest, resident_bytes(abused.pid))
            time.sleep(0.1)
        # Without limits it was more than a gigabyte.
        assert highest < before + 500 * MEGABYTE
    assert_memory_returns(abused, before)


def test_endless_bodies_use_limited_memory(abused: GatewayProcess, topic: str) -> None:
    """A caller has only so much of the memory for large bodies; others have theirs."""
    before = resident_bytes(abused.pid)
    whole = post(f"/api/v1/topics/{topic}/messages", b"x" * (4 * MEGABYTE))
    with neighbour(abused.rest, topic) as someone, flood(abused, [whole[:-1]] * 60):
        answered = someone.answers
        while someone.answers < answered + 20:
            assert resident_bytes(abused.pid) < before + 500 * MEGABYTE
            time.sleep(0.1)
    assert_memory_returns(abused, before)


def test_unread_responses_use_limited_memory(abused: GatewayProcess, topic: str) -> None:
    before = resident_bytes(abused.pid)
    path = f"/topics/{topic}/partitions/0/records?offset=0&timeout=1000&max_bytes=8000000"
    request = get(path, "Accept: application/vnd.kafka.binary.v2+json")
    with neighbour(abused.rest, topic, patience_s=20) as someone, flood(abused, [request] * 60):
        answered = someone.answers
        while someone.answers < answered + 20:
            assert resident_bytes(abused.pid) < before + 500 * MEGABYTE
            time.sleep(0.1)
    assert_memory_returns(abused, before)
