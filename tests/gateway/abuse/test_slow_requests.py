"""Callers that send slowly, never read, or use up a limit: they are dropped, and others are served."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from penstock.testing import Cluster
from support.gateway_process import GatewayProcess
from support.raw_http import RawConnection, get, neighbour, post

PATIENCE_S = 60.0
LIMITS = {
    "head_timeout_s": 1,
    "body_timeout_s": 1,
    "idle_timeout_s": 2,
    "reader_timeout_s": 2,
    "bytes_per_s_min": 1000,
    "head_bytes_max": 8192,
    "requests_max": 20,
    "connections_max": 300,
    "connections_per_caller_max": 200,
    "tails_max": 6,
    "tails_per_caller_max": 3,
    "instances_max": 6,
    "instances_per_caller_max": 3,
    "instance_idle_s": 2,
    "readers_max": 2,
    "long_polls_max": 6,
    "long_polls_per_caller_max": 3,
}


@pytest.fixture(scope="module")
def strict(penstock_cluster: Cluster) -> Iterator[GatewayProcess]:
    """A gateway with little patience."""
    options = [word for name, value in LIMITS.items() for word in ("--limit", f"{name}={value}")]
    with GatewayProcess(penstock_cluster.bootstrap_servers, *options) as process:
        yield process


@pytest.fixture
def topic(strict: GatewayProcess, penstock_topic: str) -> str:
    httpx.post(f"{strict.rest}/topics/{penstock_topic}/publish", json={"value": "first"}).raise_for_status()
    return penstock_topic


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def in_use(gateway: GatewayProcess, what: str) -> int:
    text = httpx.get(f"{gateway.rest}/metrics").text
    found = re.search(rf'penstock_gateway_in_use{{what="{what}"}} (\d+)', text)
    assert found is not None
    return int(found[1])


def await_long_polls(gateway: GatewayProcess, topic: str) -> None:
    """Long polls of other tests may still be in progress, although no client waits for them."""
    path = f"{gateway.rest}/api/v1/topics/{topic}/partitions/0/messages?offset=latest&timeout=1"
    eventually(lambda: httpx.get(path, timeout=60).status_code == 200)


def publish_until_answered(client: httpx.Client, topic: str, poll: RawConnection) -> None:
    """End a long poll, once it has found where to wait."""
    deadline = time.monotonic() + PATIENCE_S
    while poll.is_silent(0.1):
        assert time.monotonic() < deadline
        client.post(f"/topics/{topic}/publish", json={"value": "the end"}).raise_for_status()


def test_an_endless_head_times_out(strict: GatewayProcess, topic: str) -> None:
    for half in (b"G", b"GET /status/alive HTTP/1.1\r\nHost: loc", post(f"/topics/{topic}/publish", b"")[:-2]):
        with RawConnection(strict.rest) as connection:
            connection.send(half)
            answer = connection.answer()
            assert (answer.status, answer.json()["error_code"]) == (408, 40801)
            assert connection.rest() == b""


def test_a_trickling_head_times_out(strict: GatewayProcess) -> None:
    with RawConnection(strict.registry) as connection:
        connection.send(b"GET /subjects HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(1000):
            try:
                connection.send(b"X-%d: y\r\n" % number)
            except OSError:
                break
            if not connection.is_silent(0.05):
                break
        assert connection.answer().status == 408


@pytest.mark.parametrize("path", ["/topics/{}/publish", "/topics"])
def test_an_endless_body_times_out(strict: GatewayProcess, topic: str, path: str) -> None:
    whole = post(path.format(topic), b'{"value": "slowly", "name": "!"}')
    with RawConnection(strict.rest) as connection:
        connection.send(whole[:-20])
        for byte in whole[-20:-1]:
            if not connection.is_silent(0.05):
                break
            connection.send(bytes([byte]))
        assert connection.answer().status == 408
        assert connection.rest() == b""


def test_a_long_body_may_take_its_time(strict: GatewayProcess, topic: str) -> None:
    whole = post(f"/api/v1/topics/{topic}/messages", b"x" * 80_000)
    with RawConnection(strict.rest) as connection:
        for start in range(0, len(whole), 8_000):
            connection.send(whole[start : start + 8_000])
            time.sleep(0.2)
        assert connection.answer().status == 200


def test_silent_connections_are_closed(strict: GatewayProcess, topic: str) -> None:
    with RawConnection(strict.rest) as silent, RawConnection(strict.rest) as short, RawConnection(strict.rest) as other:
        short.send(post(f"/topics/{topic}/publish", b'{"value": "v"}'))
        other.send(get("/status/alive"))
        assert (short.answer().status, other.answer().status) == (200, 200)
        assert [each.rest() for each in (silent, short, other)] == [b"", b"", b""]


@pytest.mark.slow
def test_a_long_poll_is_not_idle(strict: GatewayProcess, topic: str) -> None:
    """Time that the gateway itself takes does not count."""
    await_long_polls(strict, topic)
    with RawConnection(strict.rest) as connection:
        connection.send(get(f"/api/v1/topics/{topic}/partitions/0/messages?offset=latest&timeout=4000"))
        assert connection.answer().status == 200


def test_long_polls_of_one_caller_do_not_block_other_reads(strict: GatewayProcess, topic: str) -> None:
    path = f"/api/v1/topics/{topic}/partitions/0/messages?offset=latest"
    with contextlib.ExitStack() as stack:
        polls = [stack.enter_context(RawConnection(strict.rest)) for _ in range(10)]
        for each in polls:
            each.send(get(f"{path}&timeout=60000"))
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=strict.rest, timeout=60, transport=elsewhere) as other:
            assert other.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 1
            assert other.get(f"{path}&timeout=1").status_code == 200
            # None of the polls had to end for that; those that were not refused end with the next record.
            waiting = [each for each in polls if each.is_silent(0.1)]
            assert waiting
            for each in waiting:
                publish_until_answered(other, topic, each)


@pytest.mark.parametrize("flood", ["long line", "many lines", "long path", "trailers", "extension", "blank lines"])
def test_the_size_of_heads_is_limited(strict: GatewayProcess, flood: str) -> None:
    chunked = b"POST /topics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    begin, more = {
        "long line": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"y" * 1000),
        "many lines": (b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X: y\r\n" * 200),
        "long path": (b"GET /", b"y" * 1000),
        "trailers": (chunked + b"2\r\n{}\r\n0\r\n", b"X: y\r\n" * 200),
        "extension": (chunked + b"2;", b"y" * 1000),
        "blank lines": (b"", b"\r\n" * 500),
    }[flood]
    with RawConnection(strict.rest) as connection:
        with contextlib.suppress(OSError):
            connection.send(begin)
            for _ in range(100):
                connection.send(more)
                time.sleep(0.002)
        # The body had come, so the request was answered before its trailers became too many.
        assert connection.answer().status in ((431, 400) if flood == "trailers" else (431,))
    assert httpx.get(f"{strict.rest}/status/alive").status_code == 200


def test_slow_requests_do_not_count_against_the_limit(strict: GatewayProcess, topic: str) -> None:
    half_head = b"POST /topics HTTP/1.1\r\nHost: localhost\r\n"
    half_body = post("/topics", b'{"name": "never"}', "Content-Type: application/json")[:-1]
    half_hot = post(f"/topics/{topic}/publish", b'{"value": "never"}')[:-1]
    with neighbour(strict.rest, topic) as someone:
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(RawConnection(strict.rest)) for _ in range(160)]
            for number, connection in enumerate(slow):
                connection.send((half_head, half_body, half_hot, b"")[number % 4])
            answered = someone.answers
            eventually(lambda: someone.answers > answered + 4)
            answers = [connection.rest() for connection in slow]
        assert [answer[9:12] for answer in answers[:4]] == [b"408", b"408", b"408", b""]
        assert {answer[9:12] for answer in answers} == {b"408", b""}


def test_one_caller_does_not_get_all_connections(strict: GatewayProcess, topic: str) -> None:
    with neighbour(strict.rest, topic), contextlib.ExitStack() as stack:
        # They are closed after a while, so it takes more than the limit to meet it on a slow machine.
        count = 2 * LIMITS["connections_per_caller_max"]
        many = [stack.enter_context(RawConnection(strict.rest)) for _ in range(count)]
        answers = {connection.rest() for connection in many}
        assert len(answers) == 2
        refused = max(answers)
        assert refused.startswith(b"HTTP/1.1 429 ")
        assert b"connections_per_caller_max" in refused


def test_idle_subscriptions_leave_capacity_for_other_callers(strict: GatewayProcess, topic: str) -> None:
    def subscribe(client: httpx.Client, group: str) -> httpx.Response:
        return client.get(f"/topics/{topic}/subscribe", params={"group": group, "timeout": 0})

    eventually(lambda: in_use(strict, "consumer instances") == 0)
    elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
    with (
        httpx.Client(base_url=strict.rest, timeout=60) as greedy,
        httpx.Client(base_url=strict.rest, timeout=60, transport=elsewhere) as other,
    ):
        statuses = [subscribe(greedy, f"idle-{number}").status_code for number in range(3)]
        statuses += [greedy.post(f"/consumers/idle-{number}", json={}).status_code for number in range(3)]
        assert in_use(strict, "consumer instances") <= LIMITS["instances_per_caller_max"]
        assert set(statuses) <= {200, 204, 429}
        assert subscribe(other, "other").status_code in (200, 204)
        eventually(lambda: subscribe(greedy, "again").status_code in (200, 204))


def test_caller_over_its_quota_gets_the_reason(strict: GatewayProcess) -> None:
    def refused() -> bool:
        answers = [httpx.post(f"{strict.rest}/consumers/why-{number}", json={}) for number in range(6)]
        return any("instances_per_caller_max" in answer.text and "retry-after" in answer.headers for answer in answers)

    eventually(refused)


@pytest.fixture
def full_topic(strict: GatewayProcess, penstock_cluster: Cluster) -> str:
    """A topic that holds more than sockets do."""
    name = penstock_cluster.create_topic()
    with httpx.Client(base_url=strict.rest, timeout=60) as client:
        for _ in range(40):
            client.post(f"/api/v1/topics/{name}/messages", content=os.urandom(300_000)).raise_for_status()
    return name


def handshake() -> tuple[str, ...]:
    """The headers that open a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    return "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"


def test_a_handshake_that_is_too_long_is_answered(strict: GatewayProcess, topic: str) -> None:
    """uvicorn reads it well, the WebSocket's own parser does not."""
    with RawConnection(strict.rest) as connection:
        connection.send(get(f"/topics/{topic}/tail", *handshake(), *(f"X-{number}: y" for number in range(200))))
        assert b" 431 " in connection.rest()


def unread(gateway: GatewayProcess, request: bytes) -> socket.socket:
    """A connection with small buffers that is never read."""
    host, _, port = gateway.rest.removeprefix("http://").rpartition(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(PATIENCE_S)
    made.connect((host, int(port)))
    made.sendall(request)
    return made


def test_unread_tails_are_dropped_and_leave_capacity_for_other_callers(
    strict: GatewayProcess, topic: str, full_topic: str
) -> None:
    path = f"/topics/{full_topic}/tail?offset=earliest"
    with neighbour(strict.rest, topic), contextlib.ExitStack() as stack:
        for request in (get(path), get(path, *handshake())):
            for _ in range(LIMITS["tails_per_caller_max"] + 2):
                stack.enter_context(unread(strict, request))
            eventually(lambda: in_use(strict, "tails") > 0)
            elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
            with (
                httpx.Client(transport=elsewhere, timeout=60) as other,
                other.stream("GET", f"{strict.rest}{path}") as followed,
            ):
                assert followed.status_code == 200
                assert next(followed.iter_lines()).startswith(":")
            eventually(lambda: in_use(strict, "tails") == 0)
    log = strict.log()
    assert "does not read its response" in log
    assert "does not read its WebSocket" in log


def test_slow_reader_that_resumes_gets_the_reason_in_the_close_frame(strict: GatewayProcess, full_topic: str) -> None:
    address = f"{strict.rest.replace('http', 'ws')}/topics/{full_topic}/tail?offset=earliest"
    seen = strict.log().count("does not read its WebSocket")
    with connect(address, max_size=None, max_queue=1) as tail:
        eventually(lambda: strict.log().count("does not read its WebSocket") > seen)
        with pytest.raises(ConnectionClosed) as closed:  # noqa: PT012
            while True:
                tail.recv(PATIENCE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        assert "slowly" in closed.value.rcvd.reason


def test_a_response_that_is_not_read_is_closed(strict: GatewayProcess, full_topic: str) -> None:
    await_long_polls(strict, full_topic)
    seen = strict.log().count("does not read its response")
    path = f"/topics/{full_topic}/partitions/0/records?offset=0&timeout=1000&max_bytes=8000000"
    with unread(strict, get(path, "Accept: application/vnd.kafka.binary.v2+json")):
        eventually(lambda: strict.log().count("does not read its response") > seen)
