"""The small HTTP server for metrics and health: what it serves, and what it does not put up with."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Generator

import pytest

from penstock.server import http
from penstock.server.http import HttpAnswer, HttpListener, HttpRequest


def hello(request: HttpRequest) -> Generator[None, None, HttpAnswer]:
    yield
    return HttpAnswer(f"hello {','.join(request.query.get('name', []))}".encode())


# Who worked, in order.
steps: list[str] = []


def laborious(request: HttpRequest) -> Generator[None, None, HttpAnswer]:
    for _ in range(50):
        steps.extend(request.query.get("name", ()))
        time.sleep(0.002)
        yield
    return HttpAnswer(b"done")


def broken(_: HttpRequest) -> Generator[None, None, HttpAnswer]:
    yield
    raise ValueError("a defect")


Talk = Callable[[bytes], Awaitable[bytes]]


def serving(test: Callable[[Talk], Awaitable[None]]) -> None:
    """Run a test against a listener."""

    async def run() -> None:
        listener = HttpListener("127.0.0.1", 0, {"/hello": hello, "/laborious": laborious, "/broken": broken})
        await listener.start()

        async def talk(request: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(request)
            answer = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            return answer

        try:
            await test(talk)
        finally:
            await listener.stop()

    asyncio.run(run())


def test_a_path_is_answered() -> None:
    async def test(talk: Talk) -> None:
        answer = await talk(b"GET /hello?name=you HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Length: 9\r\n" in head
        assert body == b"hello you"

    serving(test)


def test_requests_follow_each_other_on_a_connection() -> None:
    async def test(talk: Talk) -> None:
        one = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"HEAD /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = await talk(one + one + last)
        assert answer.count(b"HTTP/1.1 200 OK") == 3
        assert answer.count(b"hello ") == 2

    serving(test)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nowhere HTTP/1.0\r\n\r\n", 404),
        (b"POST /hello HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /hello?" + b"&".join([b"a=1"] * 100) + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"x" * http.REQUEST_BYTES_MAX * 2 + b" HTTP/1.1\r\n\r\n", 431),
    ],
)
def test_what_is_not_served_is_refused_and_closed(request_bytes: bytes, status: int) -> None:
    async def test(talk: Talk) -> None:
        answer = await talk(request_bytes)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())

    serving(test)


def test_a_peer_that_sends_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S_MAX", 0.1)

    async def test(talk: Talk) -> None:
        assert await talk(b"GET /hel") == b""

    serving(test)


def test_too_many_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 1)

    async def test(talk: Talk) -> None:
        first = asyncio.ensure_future(talk(b"GET /laborious HTTP/1.0\r\n\r\n"))
        await asyncio.sleep(0.02)
        # A reset is another way of being closed.
        with contextlib.suppress(ConnectionResetError):
            assert await talk(b"GET /hello HTTP/1.0\r\n\r\n") == b""
        assert (await first).endswith(b"done")

    serving(test)


def test_an_answer_that_takes_work_leaves_the_others_their_turns() -> None:
    async def test(talk: Talk) -> None:
        steps.clear()
        working = asyncio.ensure_future(talk(b"GET /laborious?name=step HTTP/1.0\r\n\r\n"))
        turns = 0
        while not working.done():
            await asyncio.sleep(0)
            turns += 0 < len(steps) < 50
        assert (await working).endswith(b"done")
        assert turns >= 5

    serving(test)


def test_one_slow_response_is_produced_at_a_time_and_quick_ones_do_not_wait() -> None:
    async def test(talk: Talk) -> None:
        steps.clear()
        ended: list[str] = []

        async def ask(path: str) -> None:
            assert (await talk(f"GET {path} HTTP/1.0\r\n\r\n".encode())).startswith(b"HTTP/1.1 200")
            ended.append(path)

        await asyncio.gather(ask("/laborious?name=a"), ask("/laborious?name=b"), ask("/hello"))
        assert ended[0] == "/hello"
        # Each has its first moment, then one goes on to its end before the other does.
        changes = sum(one != other for one, other in itertools.pairwise(steps))
        assert changes <= 3

    serving(test)


def test_a_defect_costs_one_answer() -> None:
    async def test(talk: Talk) -> None:
        answer = await talk(b"GET /broken HTTP/1.0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert (await talk(b"GET /hello HTTP/1.0\r\n\r\n")).endswith(b"hello ")

    serving(test)
