"""The fast path: which requests take it, and that responses are the same on both paths."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from penstock.gateway.web.hot_path import (
    BODY_BYTES_MAX,
    Head,
    HotHandler,
    HotProtocol,
    HttpReply,
    hot_protocol,
    read_head,
)
from support.gateway_process import GatewayProcess

PLAIN = b"POST /hot HTTP/1.1\r\nHost: here\r\nContent-Length: 2"


def test_a_plain_head_is_read() -> None:
    head = read_head(PLAIN + b"\r\nX-Partition-Key:  a b ")
    assert head == Head(b"/hot", {b"host": b"here", b"content-length": b"2", b"x-partition-key": b"a b"}, 2)
    assert read_head(PLAIN + b"\r\nConnection: Keep-Alive") is not None


@pytest.mark.parametrize(
    "block",
    [
        b"GET /hot HTTP/1.1\r\nHost: here\r\nContent-Length: 2",
        b"POST /hot HTTP/1.0\r\nHost: here\r\nContent-Length: 2",
        b"POST hot HTTP/1.1\r\nHost: here\r\nContent-Length: 2",
        b"POST /hot  HTTP/1.1\r\nHost: here\r\nContent-Length: 2",
        b"POST /hot HTTP/1.1\r\nContent-Length: 2",
        b"POST /hot HTTP/1.1\r\nHost: here",
        PLAIN + b"\r\nContent-Length: 2",
        PLAIN + b"\r\nTransfer-Encoding: chunked",
        PLAIN + b"\r\nExpect: 100-continue",
        PLAIN + b"\r\nConnection: close",
        PLAIN + b"\r\nUpgrade: websocket",
        PLAIN + b"\r\n folded: 1",
        PLAIN + b"\r\nName : 1",
        PLAIN + b"\r\nName: a\nOther: b",
        PLAIN + b"\r\nName: a\x00",
        b"POST /hot HTTP/1.1\r\nHost: here\r\nContent-Length: +2",
        b"POST /hot HTTP/1.1\r\nHost: here\r\nContent-Length: 2, 2",
        b"POST /hot HTTP/1.1\r\nHost: here\r\nContent-Length: %d" % (BODY_BYTES_MAX + 1),
    ],
)
def test_unusual_heads_take_the_regular_path(block: bytes) -> None:
    assert read_head(block) is None


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class Hot:
    """A route whose requests wait until they are answered here."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.replies: list[HttpReply] = []

    def routes(self, head: Head) -> HotHandler | None:
        return self.serve if head.path == b"/hot" else None

    def serve(self, body: bytes, reply: HttpReply) -> bool:
        if body == b"no":
            return False
        self.bodies.append(body)
        self.replies.append(reply)
        return True

    def answer(self) -> None:
        self.replies.pop(0).answer(b"HTTP/1.1 200 OK\r\n", b"hot")


async def cold(scope: Any, receive: Any, send: Any) -> None:
    assert scope["type"] == "http"
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"cold"})


def connection(hot: Hot) -> tuple[HotProtocol, Wire]:
    config = Config(cold, lifespan="off", log_config=None, access_log=False)
    config.load()
    made = hot_protocol(hot.routes)(config=config, server_state=ServerState(), app_state={})
    wire = Wire()
    made.connection_made(wire)
    return made, wire


async def until(wire: Wire, end: bytes) -> None:
    async with asyncio.timeout(5):
        while not wire.written.endswith(end):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def request(body: bytes, path: bytes = b"/hot") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body)


def run(scenario: Any) -> None:
    asyncio.run(scenario)


def test_a_complete_request_takes_the_fast_path_and_the_next_one_waits() -> None:
    async def scenario() -> None:
        hot = Hot()
        made, wire = connection(hot)
        made.data_received(request(b"one"))
        made.data_received(request(b"two"))
        assert hot.bodies == [b"one"]
        hot.answer()
        assert wire.written == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nhot"
        assert hot.bodies == [b"one", b"two"]
        made.connection_lost(None)

    run(scenario())


def test_body_in_several_parts_is_read_whole() -> None:
    async def scenario() -> None:
        hot = Hot()
        made, _ = connection(hot)
        whole = request(b"in parts")
        for start in range(len(whole) - 8, len(whole), 3):
            made.data_received(whole[start : start + 3] if start > len(whole) - 8 else whole[: start + 3])
        assert hot.bodies == [b"in parts"]
        made.connection_lost(None)

    run(scenario())


@pytest.mark.parametrize(
    "first", [request(b"no"), request(b"x", b"/other"), request(b"one") + request(b"two"), request(b"x")[:9]]
)
def test_declined_unknown_and_pipelined_requests_take_the_regular_path(first: bytes) -> None:
    async def scenario() -> None:
        hot = Hot()
        made, wire = connection(hot)
        made.data_received(first)
        made.data_received(request(b"x")[9:] if len(first) == 9 else b"")
        await until(wire, b"cold")
        assert hot.bodies == []
        # The connection is idle again, so the next one may take the short way.
        await asyncio.sleep(0.01)
        made.data_received(request(b"later"))
        assert hot.bodies == [b"later"]
        made.connection_lost(None)

    run(scenario())


def test_shutdown_waits_for_the_response() -> None:
    async def scenario() -> None:
        hot = Hot()
        made, wire = connection(hot)
        made.data_received(request(b"one"))
        made.shutdown()
        assert not wire.closed
        hot.answer()
        assert wire.written.endswith(b"hot")
        assert wire.closed
        made.connection_lost(None)

    run(scenario())


@pytest.mark.parametrize(
    "header", [b"Origin: http://localhost", b"Sec-Fetch-Site: same-origin", b"Host: elsewhere.example"]
)
def test_requests_that_browsers_send_take_the_regular_path(header: bytes) -> None:
    async def scenario() -> None:
        hot = Hot()
        made, wire = connection(hot)
        host = b"" if header.startswith(b"Host") else b"Host: localhost\r\n"
        made.data_received(b"POST /hot HTTP/1.1\r\n%b%b\r\nContent-Length: 1\r\n\r\nx" % (host, header))
        await until(wire, b"cold")
        assert hot.bodies == []
        made.connection_lost(None)

    run(scenario())


def test_idle_connection_is_closed() -> None:
    async def scenario() -> None:
        hot = Hot()
        made, wire = connection(hot)
        idle_s = made.policy.limits.idle_timeout_s
        made.data_received(request(b"one"))
        made.check_deadlines(made.loop.time() + 2 * idle_s)
        hot.answer()
        made.check_deadlines(made.loop.time() + idle_s / 2)
        assert not wire.closed
        made.check_deadlines(made.loop.time() + 2 * idle_s)
        assert wire.closed
        made.connection_lost(None)

    run(scenario())


def test_delayed_body_takes_the_regular_path() -> None:
    async def scenario() -> None:
        hot = Hot()
        made, wire = connection(hot)
        made.data_received(request(b"slowly")[:-1])
        made.check_deadlines(made.loop.time())
        made.data_received(b"y")
        await until(wire, b"cold")
        assert hot.bodies == []
        made.connection_lost(None)

    run(scenario())


@pytest.fixture
def topic(rest: httpx.Client) -> str:
    name = f"hot-{uuid.uuid4().hex[:8]}"
    assert rest.post("/topics", json={"name": name, "partitions": 1}).status_code == 201
    return name


@contextlib.contextmanager
def connected(gateway: GatewayProcess) -> Iterator[socket.socket]:
    host, _, port = gateway.rest.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as wire:
        yield wire


def answer_of(wire: socket.socket) -> tuple[int, dict[str, str], Any]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += wire.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    line, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
    while len(body) < int(headers["content-length"]):
        body += wire.recv(65536)
    return int(line.split()[1]), headers, json.loads(body)


def test_both_paths_give_the_same_response(gateway: GatewayProcess, rest: httpx.Client, topic: str) -> None:
    for path, body in (
        (f"/topics/{topic}/publish", b'{"key": "k", "value": "v", "headers": {"h": "x"}}'),
        (f"/api/v1/topics/{topic}/messages", b"any bytes"),
    ):
        rest.post(path, content=body)
        with connected(gateway) as wire:
            wire.sendall(request(body, path.encode()))
            status, headers, short = answer_of(wire)
        ordinary = rest.post(path, content=body, headers={"Idempotency-Key": uuid.uuid4().hex})
        assert (status, headers["content-type"]) == (200, ordinary.headers["content-type"])
        assert list(short) == list(ordinary.json())
        assert short["offset"] + 1 == ordinary.json()["offset"]
    read = rest.get(f"/api/v1/topics/{topic}/partitions/0/messages", params={"offset": "earliest"}).json()["messages"]
    without_place = [{name: each[name] for name in ("key", "value", "headers")} for each in read]
    assert without_place[0] == without_place[1] == without_place[2]
    assert without_place[3] == without_place[4] == without_place[5]


def test_errors_on_the_fast_path_are_the_same(gateway: GatewayProcess, topic: str) -> None:
    path = f"/topics/{topic}/publish".encode()
    with connected(gateway) as wire:
        for body, expected in ((b'{"value": "v"}', 200), (b"{", 400), (b'{"value": "v"}', 200), (b'{"key": 1}', 400)):
            wire.sendall(request(body, path))
            status, _, answer = answer_of(wire)
            assert status == expected
            assert "fix" in answer or expected == 200
        wire.sendall(request(b'{"value": "v"}', b"/topics/never-made/publish"))
        assert answer_of(wire)[0] == 404


def test_a_record_that_a_broker_rejects_is_reported(gateway: GatewayProcess, rest: httpx.Client) -> None:
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    rest.post("/topics", json={"name": name, "retentionPolicy": "compact"})
    path = f"/topics/{name}/publish".encode()
    with connected(gateway) as wire:
        for body, expected in ((b'{"key": "k", "value": "v"}', 200), (b'{"value": "no key"}', 400)):
            wire.sendall(request(body, path))
            status, _, answer = answer_of(wire)
            assert status == expected, answer
    assert "INVALID_RECORD" in answer["message"]


@pytest.mark.parametrize("part", ["rest", "registry"])
def test_invalid_http_is_answered_in_json(part: str, gateway: GatewayProcess) -> None:
    host, _, port = getattr(gateway, part).removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nHost: here\r\nbad header\r\n\r\n")
        status, headers, answer = answer_of(wire)
        assert (status, headers["content-type"], headers["connection"]) == (400, "application/json", "close")
        assert answer["fix"]
        assert wire.recv(100) == b""
